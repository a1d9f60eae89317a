//! Tests clients that are paused together with their clocks, so that all nodes of a cluster are
//! ahead at once. Only on Linux, where the clock of one process can be set.
#![cfg(target_os = "linux")]

mod support;

use std::time::{Duration, Instant};

use quorlock::{Engine, ErrorKind, NodeState, Policy, Redlock};
use support::proxy::Proxy;
use support::server::Server;
use support::{run, until, urls, warm_up};
use tokio::time::{sleep, timeout};

const TTL: Duration = Duration::from_secs(100);
const LOST: Duration = Duration::from_secs(60);

fn servers() -> Vec<Server> {
    (0..3).map(|_| Server::with_clock()).collect()
}

/// Servers whose clocks are all set at one moment, as far as clients can tell.
struct Cluster {
    servers: Vec<Server>,
    proxies: Vec<Proxy>,
}

impl Cluster {
    async fn start() -> Self {
        let servers = servers();
        let mut proxies = Vec::new();
        for server in &servers {
            proxies.push(Proxy::to(server.port()).await);
        }
        Self { servers, proxies }
    }

    fn urls(&self) -> Vec<String> {
        self.proxies.iter().map(Proxy::url).collect()
    }

    /// One clock is set after the other. A client that looked in between would find one of them ahead of the others,
    /// and take it for a clock that was set. It cannot look: the proxies run on the thread of the test, and carry
    /// nothing before this returns.
    fn set_clocks(&self, ahead: i32) {
        for server in &self.servers {
            server.begin_to_set_clock(ahead);
        }
        for server in &self.servers {
            server.await_clock(ahead);
        }
    }
}

/// A manager on the shared engine.
fn client(ttl: Duration, urls: Vec<String>) -> Redlock {
    let policy = Policy::builder().ttl(ttl).build().unwrap();
    Redlock::builder().nodes(urls).policy(policy).build().unwrap()
}

/// Has the guards look at the clocks: the next grant tells.
async fn take_a_lock(locks: &Redlock) {
    let lease = locks.lock("other").timeout(2 * LOST).acquire().await;
    lease.expect("the nodes are none the worse for it").release().await.unwrap();
}

#[test]
fn leases_end_sooner_by_the_time_that_was_lost() {
    run(async {
        let cluster = Cluster::start().await;
        let locks = client(TTL, cluster.urls());
        let long = locks.lock("long").acquire().await.unwrap();
        let short = locks.lock("short").ttl(LOST / 2).acquire().await.unwrap();
        assert!(long.validity() + LOST > TTL);
        cluster.set_clocks(60);
        // Nobody's votes are held back for what the client has missed. That time is time for a caller's
        // patience, too.
        let begun = Instant::now();
        take_a_lock(&locks).await;
        assert!(long.validity() + LOST <= TTL, "{:?}", long.validity());
        assert!(long.is_valid());
        let lost = timeout(LOST / 4, short.lost()).await.expect("told at once");
        assert_eq!(lost.kind(), ErrorKind::LeaseLost);
        assert!(begun.elapsed() < LOST / 4);
    });
}

/// Two managers over two clusters in one process. What one of them takes for lost time, as the clocks of its cluster
/// were set, is none for the other.
#[test]
fn what_one_cluster_shows_moves_nothing_on_another() {
    run(async {
        let (ours, mut theirs) = (Cluster::start().await, servers());
        let here = client(TTL, ours.urls());
        let there = client(LOST / 2, urls(&theirs));
        warm_up(&here).await;
        warm_up(&there).await;
        let own = here.lock("own").acquire().await.unwrap();
        let healthy = there.lock("healthy").acquire().await.unwrap();
        theirs[0].restart();
        let is_quarantined = || matches!(there.nodes()[0].1, NodeState::Quarantined(_));
        until("the restart is seen", is_quarantined).await;
        let (begun, left) = (Instant::now(), there.nodes()[0].1.quarantine_left().unwrap());
        let valid = healthy.validity();
        ours.set_clocks(60);
        take_a_lock(&here).await;
        assert!(own.validity() + LOST <= TTL, "{:?}", own.validity());
        let passed = |since: Duration, now: Duration| since.saturating_sub(now) <= begun.elapsed();
        assert!(passed(valid, healthy.validity()), "{valid:?} {:?}", healthy.validity());
        // Also at the next looks, every second.
        while begun.elapsed() < Duration::from_secs(3) {
            let now = there.nodes()[0].1.quarantine_left();
            let now = now.expect("it is held back still");
            assert!(passed(left, now + GRAIN), "{left:?} {now:?} {:?}", begun.elapsed());
            sleep(GRAIN).await;
        }
        assert!(healthy.is_valid());
    });
}

/// What one manager has found has the others of its engine look at once, each at its own nodes; those of another
/// engine look by themselves, in ten seconds.
#[test]
fn all_managers_look_at_once_when_one_has_lost_time() {
    run(async {
        let cluster = Cluster::start().await;
        let engine = Engine::start().unwrap();
        let policy = Policy::builder().ttl(TTL).build().unwrap();
        let manager = || {
            let builder = Redlock::builder().nodes(cluster.urls()).policy(policy);
            builder.engine(engine.clone()).build().unwrap()
        };
        let (one, two) = (manager(), manager());
        warm_up(&one).await;
        warm_up(&two).await;
        let idle = two.lock("idle").acquire().await.unwrap();
        cluster.set_clocks(60);
        let begun = Instant::now();
        take_a_lock(&one).await;
        until("the idle one has looked", || idle.validity() + LOST <= TTL).await;
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        // Once, and not once for each of them.
        assert!(idle.validity() + LOST + Duration::from_secs(20) > TTL, "{:?}", idle.validity());
    });
}

/// Readings are whole microseconds, and moments are taken one after the other.
const GRAIN: Duration = Duration::from_millis(20);
