//! Tests over real servers what a lease tells of its nodes while it is extended, renewed and lost.

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quorlock::{ErrorKind, Lease, NodeReport, Redlock, ReleaseOutcome, Vote};
use support::run;
use support::server::Server;
use tokio::time::{sleep, timeout};

fn servers() -> (Vec<Server>, Redlock) {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let urls = servers.iter().map(Server::url);
    let locks = Redlock::builder().nodes(urls).build().expect("valid addresses");
    (servers, locks)
}

fn outcomes(votes: &[NodeReport]) -> Vec<Vote> {
    votes.iter().map(|report| report.vote).collect()
}

/// Waits until the lease tells these votes.
async fn until_votes(lease: &Lease, wanted: [Vote; 3]) {
    let wait = async {
        while outcomes(&lease.votes()) != wanted {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let told = timeout(Duration::from_secs(20), wait).await;
    told.unwrap_or_else(|_| panic!("not {wanted:?} but {:?}", lease.votes()));
}

#[test]
fn an_extension_tells_the_votes_of_its_own_round() {
    run(async {
        let (mut servers, locks) = servers();
        let lease = locks.lock("r").acquire().await.unwrap();
        until_votes(&lease, [Vote::Granted; 3]).await;
        servers[1].kill();
        lease.extend(None).await.unwrap();
        until_votes(&lease, [Vote::Granted, Vote::Failed, Vote::Granted]).await;
        servers[2].kill();
        assert_eq!(lease.extend(None).await.unwrap_err().kind(), ErrorKind::QuorumUnreachable);
        assert_eq!(outcomes(&lease.votes())[1..], [Vote::Failed; 2]);
    });
}

#[test]
fn renewals_tell_their_votes_once_a_round() {
    run(async {
        let (mut servers, locks) = servers();
        let lock = locks.lock("r").ttl(Duration::from_secs(4)).auto_extend(true);
        let lease = lock.acquire().await.unwrap();
        let told = Arc::new(Mutex::new(Vec::new()));
        let rounds = Arc::clone(&told);
        lease.on_renewal(move |votes| rounds.lock().unwrap().push(outcomes(votes)));
        until_votes(&lease, [Vote::Granted; 3]).await;
        servers[1].kill();
        until_votes(&lease, [Vote::Granted, Vote::Failed, Vote::Granted]).await;
        servers[2].kill();
        let error = lease.lost().await;
        // Two faults decide, also where the third node has not answered yet.
        assert_eq!(outcomes(error.votes())[1..], [Vote::Failed; 2]);
        let told = told.lock().unwrap();
        assert!(told.contains(&vec![Vote::Granted, Vote::Failed, Vote::Granted]), "{told:?}");
        assert_eq!(told.last().unwrap(), &outcomes(error.votes()));
        // Every 1.3 s while it succeeds, then after 20, 40, ... 500 ms: a round told twice or at
        // every look would make more of them.
        assert!(told.len() < 20, "{} rounds", told.len());
    });
}

#[test]
fn a_loss_found_at_the_release_tells_what_the_nodes_answered() {
    run(async {
        let (servers, locks) = servers();
        let lease = locks.lock("r").acquire().await.unwrap().into_lease();
        until_votes(&lease, [Vote::Granted; 3]).await;
        for server in &servers {
            server.ask().call(&["SET", "r", "another"]);
        }
        let outcome = lease.release().await.unwrap();
        assert_eq!(outcome, ReleaseOutcome::Taken);
        let loss = lease.loss(outcome).expect("it was lost");
        let refused = loss.votes().iter().filter(|report| report.vote == Vote::Refused);
        assert!(refused.count() >= 2, "{:?}", loss.votes());
    });
}
