//! Tests the guards over real servers that forget: with the guards each schedule ends in a refusal,
//! and without them in two holders.

mod support;

use std::time::{Duration, Instant};

use quorlock::{ErrorKind, LeaseGuard, LockError, NodeState, Policy, Redlock, RestartGuard};
use support::proxy::Proxy;
use support::server::Server;
use support::{run, until, urls, warm_up};

/// Of locks that must outlast a schedule, however slow the machine is.
const TTL: Duration = Duration::from_secs(20);
/// Of locks whose end is waited for.
const SHORT: Duration = Duration::from_secs(5);
/// How long a second client tries to get in.
const PATIENCE: Duration = Duration::from_millis(1500);

fn servers(count: usize) -> Vec<Server> {
    (0..count).map(|_| Server::start()).collect()
}

fn client<S: AsRef<str>>(urls: impl IntoIterator<Item = S>, guard: RestartGuard) -> Redlock {
    client_of(TTL, urls, guard)
}

fn client_of<S: AsRef<str>>(
    ttl: Duration,
    urls: impl IntoIterator<Item = S>,
    guard: RestartGuard,
) -> Redlock {
    // Patient with nodes: it is the guards that refuse here, not a busy machine.
    let policy = Policy::builder().ttl(ttl).node_timeout(ttl / 4).restart_guard(guard);
    let policy = policy.build().unwrap();
    Redlock::builder().nodes(urls).policy(policy).build().expect("valid addresses")
}

async fn try_lock(locks: &Redlock) -> Result<LeaseGuard, LockError> {
    locks.lock("r").try_once().acquire().await
}

async fn keep_trying(locks: &Redlock) -> Result<LeaseGuard, LockError> {
    locks.lock("r").timeout(PATIENCE).acquire().await
}

/// Three servers, and a lock held on A and C alone: B cannot be reached by its holder.
struct Setup {
    servers: Vec<Server>,
    to_b: Proxy,
    holder: LeaseGuard,
}

impl Setup {
    async fn set(ttl: Duration) -> Self {
        let servers = servers(3);
        let to_b = Proxy::to(servers[1].port()).await;
        let urls = [servers[0].url(), to_b.url(), servers[2].url()];
        let locks = client_of(ttl, urls, RestartGuard::Auto);
        warm_up(&locks).await;
        to_b.refuse(true);
        to_b.cut();
        until("B is out of reach", || matches!(locks.nodes()[1].1, NodeState::Down(_))).await;
        let holder = locks.lock("r").acquire().await.expect("A and C are a quorum");
        assert_eq!(servers[1].ask().call(&["EXISTS", "r"]), "0", "B has no part in it");
        Self { servers, to_b, holder }
    }
}

/// The schedule of Redis's own page: C comes back without its keys, and B was free all along.
async fn crash_recovery(
    second: impl AsyncFnOnce(&mut Setup) -> Redlock,
) -> Result<LeaseGuard, LockError> {
    let mut setup = Setup::set(TTL).await;
    let locks = second(&mut setup).await;
    let result = keep_trying(&locks).await;
    assert!(setup.holder.is_valid(), "the schedule took too long to mean anything");
    result
}

fn refusal(result: Result<LeaseGuard, LockError>) -> LockError {
    match result {
        Ok(_) => panic!("the lock was had"),
        Err(error) => error,
    }
}

fn assert_quarantined(result: Result<LeaseGuard, LockError>) {
    let words = refusal(result).to_string();
    assert!(words.contains("forgotten") || words.contains("locks among them"), "{words}");
}

#[test]
fn a_new_client_does_not_count_on_a_node_that_came_back_empty() {
    run(async {
        let result = crash_recovery(async |setup| {
            setup.servers[2].restart();
            client(urls(&setup.servers), RestartGuard::Auto)
        });
        assert_quarantined(result.await);
    });
}

#[test]
fn an_old_client_does_not_count_on_a_node_that_came_back_empty() {
    run(async {
        let result = crash_recovery(async |setup| {
            let locks = client(urls(&setup.servers), RestartGuard::Auto);
            warm_up(&locks).await;
            setup.servers[2].restart();
            locks
        });
        assert_quarantined(result.await);
    });
}

#[test]
fn a_client_that_reaches_only_one_side_does_not_rely_on_it() {
    run(async {
        let result = crash_recovery(async |setup| {
            setup.servers[2].restart();
            let to_a = Proxy::to(setup.servers[0].port()).await;
            to_a.refuse(true);
            let urls = [to_a.url(), setup.servers[1].url(), setup.servers[2].url()];
            let locks = client(urls, RestartGuard::Auto);
            std::mem::forget(to_a);
            locks
        });
        assert_quarantined(result.await);
    });
}

#[test]
fn without_the_guard_there_are_two_holders() {
    run(async {
        let result = crash_recovery(async |setup| {
            setup.servers[2].restart();
            client(urls(&setup.servers), RestartGuard::Off)
        });
        result.await.expect("B and C are a quorum").release().await.unwrap();
    });
}

#[test]
fn a_flushed_node_is_quarantined_without_a_reconnection() {
    run(async {
        let result = crash_recovery(async |setup| {
            let locks = client(urls(&setup.servers), RestartGuard::Auto);
            warm_up(&locks).await;
            assert_eq!(setup.servers[2].ask().call(&["FLUSHALL"]), "OK");
            locks
        });
        assert_quarantined(result.await);
    });
}

#[test]
fn foreign_keys_in_the_place_of_the_guards_keys_are_named() {
    run(async {
        for key in ["quorlock:{node}:canary", "quorlock:{node}:notes"] {
            let servers = servers(3);
            for server in &servers {
                let mut ask = server.ask();
                ask.call(&["DEL", key]);
                assert_eq!(ask.call(&["ZADD", key, "1", "foreign"]), "1");
            }
            let locks = client(urls(&servers), RestartGuard::Auto);
            let error = refusal(try_lock(&locks).await).to_string();
            assert!(error.contains(key) && error.contains("delete or rename"), "{error}");
        }
    });
}

#[test]
fn foreign_fields_among_the_notes_are_passed_over() {
    run(async {
        let servers = servers(3);
        for server in &servers {
            let mut ask = server.ask();
            let foreign = ["s:foreign", "1 2 3", "s:1", "-", "h:far", "9e99 1 1 9e99", "x", "y"];
            ask.call(&[&["HSET", "quorlock:{node}:notes"][..], &foreign].concat());
            let huge = format!("1 1 1 {}", "9".repeat(40));
            ask.call(&["HSET", "quorlock:{node}:notes", "h:huge", &huge, "s:2", "1  5"]);
        }
        let locks = client(urls(&servers), RestartGuard::Auto);
        let lease = try_lock(&locks).await.expect("nothing is wrong with the nodes");
        lease.release().await.expect("held until now");
    });
}

#[test]
fn a_node_that_came_back_from_an_old_snapshot_is_quarantined() {
    run(async {
        let mut setup = Setup::set(TTL).await;
        // What was on disk before the lock: the canary of that run, and no lock.
        let mut c = setup.servers[2].ask();
        let (lock, ttl) = (c.call(&["GET", "r"]), c.call(&["PTTL", "r"]));
        c.call(&["DEL", "r"]);
        assert_eq!(c.call(&["SAVE"]), "OK");
        c.call(&["SET", "r", &lock, "PX", &ttl]);
        setup.servers[2].restart();
        assert_eq!(setup.servers[2].ask().call(&["EXISTS", "quorlock:{node}:canary"]), "1");
        let locks = client(urls(&setup.servers), RestartGuard::Auto);
        assert_quarantined(keep_trying(&locks).await);
        assert!(setup.holder.is_valid());
    });
}

#[test]
fn a_quarantine_ends_with_the_last_lock_forgotten() {
    run(async {
        let mut setup = Setup::set(SHORT).await;
        setup.servers[2].restart();
        let locks = client_of(SHORT, urls(&setup.servers), RestartGuard::Auto);
        assert_quarantined(try_lock(&locks).await);
        let second = locks.lock("r").timeout(4 * SHORT).acquire().await.expect("in the end");
        assert!(!setup.holder.is_valid());
        second.release().await.unwrap();
        until("C takes part again", || locks.nodes()[2].1 == NodeState::Healthy).await;
        // A client that starts now finds that another has waited.
        let newcomer = client_of(SHORT, urls(&setup.servers), RestartGuard::Auto);
        warm_up(&newcomer).await;
        drop(setup.to_b);
    });
}

#[test]
fn the_holder_goes_on_and_heals_the_node_that_forgot() {
    run(async {
        let mut servers = servers(3);
        let locks = client(urls(&servers), RestartGuard::Auto);
        warm_up(&locks).await;
        let lock = locks.lock("r").ttl(SHORT).auto_extend(true);
        let lease = lock.acquire().await.unwrap();
        servers[2].restart();
        until("C has the key again", || servers[2].ask().call(&["GET", "r"]) == lease.token())
            .await;
        assert!(lease.is_valid());
        lease.release().await.unwrap();
    });
}

#[test]
fn a_lease_lost_early_keeps_others_out_until_released() {
    run(async {
        let servers = servers(5);
        let proxies = [Proxy::to(servers[3].port()).await, Proxy::to(servers[4].port()).await];
        let mut holders = urls(&servers);
        holders.splice(3.., proxies.iter().map(Proxy::url));
        let holders = client(holders, RestartGuard::Auto);
        let others = client(urls(&servers), RestartGuard::Auto);
        warm_up(&holders).await;
        warm_up(&others).await;
        let state = |index: usize| holders.nodes()[index].1.clone();
        for proxy in &proxies {
            proxy.refuse(true);
            proxy.cut();
        }
        until("D and E are out of reach", || {
            (3..5).all(|index| matches!(state(index), NodeState::Down(_)))
        })
        .await;
        let lease = holders.lock("r").acquire().await.expect("A, B and C are a quorum");
        let lease = lease.into_lease();
        until("all three have it", || {
            servers[..3].iter().all(|it| it.ask().call(&["GET", "r"]) == lease.token())
        })
        .await;
        for proxy in &proxies {
            proxy.refuse(false);
        }
        until("D and E are back", || (3..5).all(|index| state(index) == NodeState::Healthy)).await;
        assert_eq!(servers[2].ask().call(&["FLUSHALL"]), "OK");
        let promised = Instant::now() + lease.validity();
        let error = lease.extend(None).await.expect_err("three of five have no key");
        assert_eq!(error.kind(), ErrorKind::LeaseLost);
        refusal(keep_trying(&others).await);
        lease.release().await.expect("it was not released before");
        others.lock("r").timeout(TTL).acquire().await.map(drop).expect("free as soon as that");
        assert!(Instant::now() < promised, "the schedule took too long to mean anything");
    });
}

#[test]
fn a_restarted_majority_blocks_locks_and_says_for_how_long() {
    run(async {
        let mut servers = servers(3);
        let locks = client_of(SHORT, urls(&servers), RestartGuard::Auto);
        warm_up(&locks).await;
        let begun = Instant::now();
        servers[0].restart();
        servers[1].restart();
        until("both are seen", || {
            let quarantined =
                |(_, state): &(_, NodeState)| matches!(state, NodeState::Quarantined(_));
            locks.nodes().iter().filter(|it| quarantined(it)).count() == 2
        })
        .await;
        let error = refusal(try_lock(&locks).await);
        assert!(error.to_string().contains("2 of 3 nodes in quarantine, "), "{error}");
        locks.lock("r").timeout(4 * SHORT).acquire().await.map(drop).expect("after the quarantine");
        assert!(begun.elapsed() >= SHORT, "{:?}", begun.elapsed());
    });
}

#[test]
fn a_strict_guard_holds_a_new_cluster_back_too() {
    run(async {
        let servers = servers(3);
        let locks = client_of(SHORT, urls(&servers), RestartGuard::Strict);
        let error = refusal(try_lock(&locks).await);
        assert!(error.to_string().contains("3 of 3 nodes in quarantine, "), "{error}");
        locks.lock("r").timeout(4 * SHORT).acquire().await.map(drop).expect("after the quarantine");
    });
}

#[test]
fn clients_that_come_together_set_a_new_cluster_up_at_once() {
    run(async {
        let servers = servers(5);
        let clients: Vec<_> = (0..8).map(|_| client(urls(&servers), RestartGuard::Auto)).collect();
        let locks = clients.iter().enumerate().map(|(index, locks)| async move {
            locks.lock(&format!("r{index}")).timeout(TTL).acquire().await.map(drop)
        });
        let begun = Instant::now();
        for result in futures::future::join_all(locks).await {
            result.expect("nobody is held back");
        }
        assert!(begun.elapsed() < TTL);
    });
}

#[test]
fn a_single_node_is_not_guarded_unless_strictly() {
    run(async {
        let mut servers = servers(1);
        let locks = client(urls(&servers), RestartGuard::Auto);
        warm_up(&locks).await;
        servers[0].restart();
        locks.lock("r").timeout(TTL / 2).acquire().await.map(drop).expect("at once");
    });
}

#[test]
fn a_node_that_keeps_everything_on_disk_is_not_quarantined() {
    run(async {
        let durable = ["--appendonly", "yes", "--appendfsync", "always"];
        let mut servers: Vec<_> = (0..3).map(|_| Server::with(&durable)).collect();
        let locks = client(urls(&servers), RestartGuard::Auto);
        warm_up(&locks).await;
        // As long as nobody would wait for, were the nodes held back.
        let lock = locks.lock("r").ttl(20 * TTL).try_once();
        let lease = lock.acquire().await.unwrap();
        servers[1].restart();
        servers[2].restart();
        warm_up(&client(urls(&servers), RestartGuard::Auto)).await;
        assert!(lease.is_valid());
        lease.release().await.unwrap();
    });
}

#[test]
fn a_lock_above_the_longest_ttl_is_refused() {
    let policy = Policy::builder().max_ttl(Some(SHORT)).ttl(SHORT);
    assert!(policy.clone().build().is_ok());
    let text = policy.ttl(2 * SHORT).build().unwrap_err().to_string();
    assert!(text.contains("max_ttl, 5 s") && text.contains("10 s"), "{text}");
}

#[test]
fn a_long_extension_is_noted_on_the_nodes_first() {
    run(async {
        let servers = servers(3);
        let locks = client(urls(&servers), RestartGuard::Auto);
        warm_up(&locks).await;
        let lease = locks.lock("r").acquire().await.expect("a quorum");
        let noted = |server: &Server| server.ask().call(&["HVALS", "quorlock:{node}:notes"]);
        let knows = |server: &Server, keep: Duration| {
            noted(server).contains(&format!(" {} ", keep.as_millis()))
        };
        // One entry for all clients with locks of about this length.
        until("the ttl of the lock is noted", || servers.iter().all(|it| knows(it, TTL))).await;
        lease.extend(Some(TTL * 10)).await.expect("a quorum");
        let told = servers.iter().filter(|it| knows(it, TTL * 10)).count();
        assert!(told >= 2, "those who have extended know for how long: {told}");
        lease.release().await.expect("released");
    });
}
