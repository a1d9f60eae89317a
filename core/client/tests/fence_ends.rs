//! How long nodes keep fences: long enough after each grant, although not every grant says so.

mod support;

use std::time::Duration;

use quorlock::{Lock, NodeState, Policy, Redlock};
use support::server::Server;
use support::{run, urls};
use tokio::time::sleep;

const TTL: Duration = Duration::from_millis(500);
/// In milliseconds.
const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;
const FENCE: &str = "quorlock:fence:{r}";

/// Three nodes under guard, of which the client has seen the clocks.
async fn begin() -> (Vec<Server>, Redlock) {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    // A node that has forgotten is waited for for as long.
    let policy = Policy::builder().ttl(TTL).max_ttl(Some(TTL)).build().expect("a valid policy");
    let locks = Redlock::builder().nodes(urls(&servers)).policy(policy).build();
    let locks = locks.expect("valid addresses");
    use_once(&locks.lock("another")).await;
    done(&servers[0], "another").await;
    servers[0].ask().call(&["CONFIG", "RESETSTAT"]);
    (servers, locks)
}

async fn use_once(lock: &Lock) {
    let lease = lock.clone().timeout(Duration::from_secs(20)).acquire().await.expect("free");
    lease.release().await.expect("held until now");
}

/// How often the end of a fence was put off; `None` on a server that does all by script.
fn put_off(server: &Server) -> Option<u64> {
    let mut ask = server.ask();
    if ask.call(&["INFO", "server"]).contains("redis_version:6.") {
        return None;
    }
    let statistics = ask.call(&["INFO", "commandstats"]);
    let line = statistics.lines().find(|line| line.starts_with("cmdstat_pexpire:"));
    let calls = line.map(|line| line.split(['=', ',']).nth(1).expect("a number"));
    Some(calls.map_or(0, |calls| calls.parse().expect("a number")))
}

/// Waits until the node has done all for a lock: it may be behind the others.
async fn done(server: &Server, resource: &str) {
    let (mut ask, fence) = (server.ask(), format!("quorlock:fence:{{{resource}}}"));
    until(|| ask.number(&["EXISTS", &fence]) == 1 && ask.number(&["EXISTS", resource]) == 0).await;
}

async fn until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        sleep(Duration::from_millis(1)).await;
    }
}

async fn millis_left(server: &Server) -> u64 {
    done(server, "r").await;
    u64::try_from(server.ask().number(&["PTTL", FENCE])).expect("it has an end")
}

/// Whether the fence lasts for `days` from now; by script it is from the last grant.
async fn lasts(server: &Server, days: u64) -> bool {
    let passed = if put_off(server).is_some() { 0 } else { MINUTE };
    millis_left(server).await >= days * DAY - passed
}

#[test]
fn an_end_that_was_put_off_a_moment_ago_is_left_alone() {
    run(async {
        let (servers, locks) = begin().await;
        for _ in 0..10 {
            use_once(&locks.lock("r")).await;
            assert!(lasts(&servers[0], 7).await);
        }
        assert!(put_off(&servers[0]).is_none_or(|times| times == 2), "with NX and with GT");
        let longer = locks.lock("r").set(|it| it.fence_retention(Duration::from_millis(8 * DAY)));
        for _ in 0..10 {
            use_once(&longer).await;
            assert!(lasts(&servers[0], 8).await);
        }
        assert!(put_off(&servers[0]).is_none_or(|times| times == 4), "for who needs it longer");
        use_once(&locks.lock("r")).await;
        assert!(millis_left(&servers[0]).await >= 8 * DAY - MINUTE, "never sooner");
    });
}

#[test]
fn an_end_that_is_to_come_soon_is_put_off_by_each_grant() {
    run(async {
        let (servers, locks) = begin().await;
        let lock = locks.lock("r").set(|it| it.fence_retention(Duration::from_millis(MINUTE)));
        for times in 1..5 {
            use_once(&lock).await;
            assert!(put_off(&servers[0]).is_none_or(|seen| seen == 2 * times));
            assert!((1..=MINUTE).contains(&millis_left(&servers[0]).await));
        }
    });
}

#[test]
fn a_node_that_has_forgotten_a_fence_is_told_its_end_again() {
    run(async {
        let (servers, locks) = begin().await;
        let lock = locks.lock("r");
        use_once(&lock).await;
        done(&servers[0], "r").await;
        let mut ask = servers[0].ask();
        ask.call(&["FLUSHALL"]);
        // Makes a fence there, before it is seen that the node has forgotten what it knew.
        use_once(&lock).await;
        until(|| locks.nodes()[0].1 != NodeState::Healthy).await;
        until(|| ask.number(&["PTTL", FENCE]) != -1).await;
        until(|| locks.nodes()[0].1 == NodeState::Healthy).await;
        // When its grants count again, nothing is taken for granted.
        ask.call(&["DEL", FENCE]);
        use_once(&lock).await;
        assert!(lasts(&servers[0], 7).await);
    });
}
