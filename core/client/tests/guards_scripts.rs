//! Tests what the guards conclude from a server that has forgotten its scripts: nothing yet, but
//! another server may have taken its place, so it must be looked at.

mod support;

use std::time::Duration;

use quorlock::{LeaseGuard, LockError, Policy, Redlock, RestartGuard};
use support::server::{Server, free_port};
use support::{run, urls, warm_up};

fn client(servers: &[Server]) -> Redlock {
    let ttl = Duration::from_secs(20);
    let policy = Policy::builder().ttl(ttl).node_timeout(ttl / 4).restart_guard(RestartGuard::Auto);
    Redlock::builder().nodes(urls(servers)).policy(policy.build().unwrap()).build().unwrap()
}

/// Several resources are always asked for by script.
async fn lock_by_script(locks: &Redlock) -> Result<LeaseGuard, LockError> {
    locks.lock_all(["r", "s"]).try_once().acquire().await
}

fn forget_scripts(server: &Server) {
    assert_eq!(server.ask().call(&["SCRIPT", "FLUSH"]), "OK");
}

#[test]
fn it_is_no_sign_of_lost_locks() {
    run(async {
        let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let locks = client(&servers);
        warm_up(&locks).await;
        servers.iter().for_each(forget_scripts);
        lock_by_script(&locks).await.expect("no one is held back").release().await.unwrap();
        let lock = locks.lock("r").try_once();
        lock.acquire().await.expect("nor then").release().await.unwrap();
    });
}

#[test]
fn the_server_is_looked_at_before_it_takes_part_again() {
    run(async {
        let mut servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let locks = client(&servers);
        warm_up(&locks).await;
        // It has followed another for a moment. Its keys are those that it had, the canary among them, and the
        // connection stays: only a look shows it.
        let nobody = free_port().to_string();
        for master in [["127.0.0.1", &nobody], ["NO", "ONE"]] {
            assert_eq!(servers[2].ask().call(&["REPLICAOF", master[0], master[1]]), "OK");
        }
        forget_scripts(&servers[2]);
        servers[1].kill();
        let Err(error) = lock_by_script(&locks).await else {
            panic!("the lock was had from a server that nobody had looked at");
        };
        let words = error.to_string();
        assert!(words.contains("deleted or replaced"), "{words}");
    });
}
