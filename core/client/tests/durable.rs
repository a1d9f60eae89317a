//! Tests nodes that the user declares durable because their servers do not answer `CONFIG GET`.

mod support;

use std::time::Duration;

use quorlock::{NodeState, QuarantineReason, Redlock};
use support::run;
use support::server::Server;
use tokio::time::{sleep, timeout};

fn client(urls: &[String]) -> Redlock {
    Redlock::builder().nodes(urls).build().expect("valid addresses")
}

async fn lock_and_release(locks: &Redlock) {
    locks.lock("r").acquire().await.expect("a quorum").release().await.expect("released");
}

/// The state of the first node once it is known.
async fn settled(locks: &Redlock) -> NodeState {
    let looked = async {
        while locks.nodes()[0].1 == NodeState::Connecting {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(20), looked).await.expect("its state is known in the end");
    locks.nodes()[0].1.clone()
}

/// What a client makes of a node that has come back with everything it ever confirmed, but that does not
/// say how it writes to disk, as managed services do not.
async fn state_after_restart(option: &str) -> NodeState {
    let writes = ["--appendonly", "yes", "--appendfsync", "always"];
    let hides = ["--rename-command", "CONFIG", ""];
    let mut server = Server::with(&[&writes[..], &hides].concat());
    let others = [Server::start(), Server::start()];
    let urls = [format!("{}{option}", server.url()), others[0].url(), others[1].url()];
    let locks = client(&urls);
    lock_and_release(&locks).await;
    assert_eq!(settled(&locks).await, NodeState::Healthy);
    locks.close();
    server.restart();
    let locks = client(&urls);
    lock_and_release(&locks).await;
    settled(&locks).await
}

#[test]
fn a_node_that_is_declared_durable_is_not_quarantined() {
    run(async {
        assert_eq!(state_after_restart("?durable=true").await, NodeState::Healthy);
    });
}

#[test]
fn a_node_that_does_not_say_how_it_writes_is_quarantined() {
    run(async {
        for option in ["", "?durable=false"] {
            let state = state_after_restart(option).await;
            let NodeState::Quarantined(quarantine) = state else { panic!("{state:?}") };
            assert_eq!(quarantine.reason, QuarantineReason::Restarted);
        }
    });
}
