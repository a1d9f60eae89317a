//! Tests over real servers that a manager that is closed leaves no key of what was under way.

mod support;

use std::time::Duration;

use futures::future::join_all;
use quorlock::{Engine, ErrorKind, Holder, Policy, Redlock, ReleaseOutcome, SequencerRecord};
use support::proxy::Proxy;
use support::server::Server;
use support::*;
use tokio::time::{Instant, sleep};

#[test]
fn an_acquisition_that_is_ended_by_a_close_leaves_no_key() {
    run(async {
        let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let proxies = join_all(servers.iter().map(|it| Proxy::to(it.port()))).await;
        let locks = manager(proxies.iter().map(Proxy::url));
        warm_up(&locks).await;
        proxies.iter().for_each(Proxy::hold);
        let lock = locks.lock("r").ttl(LONG);
        let acquiring = tokio::spawn(async move { lock.acquire().await });
        // Time for the nodes to be asked. Nothing tells that: what is said does not reach them.
        sleep(Duration::from_millis(100)).await;
        locks.close();
        assert_eq!(acquiring.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
        proxies.iter().for_each(Proxy::release);
        all_hung_up(&servers).await;
        assert!(servers.iter().all(|it| keys(it) == 0), "keys are left");
    });
}

#[test]
fn a_lease_that_is_dropped_just_before_a_close_leaves_no_key() {
    run(async {
        let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        for _ in 0..10 {
            let locks = manager(urls(&servers));
            warm_up(&locks).await;
            drop(locks.lock("r").ttl(LONG).acquire().await.unwrap());
            locks.close();
            all_hung_up(&servers).await;
            assert!(servers.iter().all(|it| keys(it) == 0), "keys are left");
        }
    });
}

#[test]
fn a_release_that_comes_just_before_a_close_leaves_no_key() {
    run(async {
        let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let locks = manager(urls(&servers));
        let lease = locks.lock("r").ttl(LONG).acquire().await.unwrap();
        let releasing = lease.release();
        locks.close();
        assert_eq!(releasing.await.unwrap(), ReleaseOutcome::Released);
        all_hung_up(&servers).await;
        assert!(servers.iter().all(|it| keys(it) == 0), "keys are left");
    });
}

#[test]
fn a_release_after_a_close_takes_the_keys_back() {
    run(async {
        let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        for ending in [Ending::Release, Ending::Drop, Ending::Withdraw] {
            let builder = Redlock::builder().engine(Engine::start().unwrap());
            let locks = builder.nodes(urls(&servers)).owner([("service", "s")]).build().unwrap();
            let lease = locks.lock("r").ttl(LONG).acquire().await.unwrap();
            assert!(lease.record_sequencer().await);
            eventually("three keys", || servers.iter().all(|it| keys(it) == 3)).await;
            locks.close();
            all_hung_up(&servers).await;
            match ending {
                Ending::Release => {
                    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
                }
                Ending::Drop => drop(lease),
                Ending::Withdraw => lease.withdraw(),
            }
            eventually("no key", || servers.iter().all(|it| keys(it) == 0)).await;
            drop(locks);
            all_hung_up(&servers).await;
        }
    });
}

enum Ending {
    Release,
    Drop,
    Withdraw,
}

#[test]
fn a_release_after_a_close_waits_for_no_node_that_hangs() {
    run(async {
        let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let locks = manager(urls(&servers));
        let lease = locks.lock("r").ttl(LONG).acquire().await.unwrap();
        locks.close();
        all_hung_up(&servers).await;
        servers[0].pause();
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
        eventually("no key", || servers[1..].iter().all(|it| keys(it) == 0)).await;
        servers[0].resume();
        eventually("no key", || keys(&servers[0]) == 0).await;
    });
}

#[test]
fn a_node_that_hangs_keeps_the_others_open_for_a_moment_only() {
    run(async {
        let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
        let locks = manager(urls(&servers));
        warm_up(&locks).await;
        servers[0].pause();
        let lock = locks.lock("r").ttl(LONG);
        // The one that hangs is asked again and again to delete its key.
        lock.acquire().await.unwrap().release().await.unwrap();
        let since = Instant::now();
        locks.close();
        locks.close();
        all_hung_up(&servers[1..]).await;
        assert!(since.elapsed() < Duration::from_secs(4), "they were kept for a while");
        servers[0].resume();
    });
}

/// A manager with an engine of its own.
fn manager(nodes: impl IntoIterator<Item = String>) -> Redlock {
    let engine = Engine::start().unwrap();
    let policy = Policy::builder().node_timeout(Duration::from_secs(10)).build().unwrap();
    Redlock::builder().engine(engine).nodes(nodes).policy(policy).build().unwrap()
}

/// Waits until the servers have answered everything, and the connections have ended.
async fn all_hung_up(servers: &[Server]) {
    for server in servers {
        eventually("no connection", || connections(server).is_empty()).await;
    }
}

/// How many keys the server has of the lock, and of what is written beside it.
fn keys(server: &Server) -> i64 {
    let (record, owner) = (SequencerRecord::key("r"), Holder::record_key("r"));
    server.ask().number(&["EXISTS", "r", &record, &owner])
}

const LONG: Duration = Duration::from_secs(60);
