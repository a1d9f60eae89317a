//! Tests that acquisitions on real servers are woken when the lock becomes free, with any library as its holder.

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::join_all;
use quorlock::{Engine, ErrorKind, LeaseGuard, Lock, LockError, Policy, Redlock, RestartGuard};
use support::proxy::Proxy;
use support::server::Server;
use support::*;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

#[test]
fn a_release_in_another_process_wakes_the_waiter() {
    run(async {
        let servers = servers();
        let (holder, waiting) = (manager(&servers), manager(&servers));
        for _ in 0..5 {
            let lease = holder.lock("r").acquire().await.unwrap();
            let waiter = wait_for(&waiting, &servers).await;
            lease.release().await.unwrap();
            is_woken(waiter).await;
        }
    });
}

#[test]
fn a_key_that_is_deleted_by_hand_wakes_the_waiter() {
    run(async {
        let servers = servers();
        let waiting = manager(&servers);
        for delete in [&["DEL", "r"][..], &["PEXPIRE", "r", "1"], &["RENAME", "r", "s"]] {
            hold(&servers);
            let waiter = wait_for(&waiting, &servers).await;
            for server in &servers {
                server.ask().call(delete);
            }
            is_woken(waiter).await;
        }
    });
}

#[test]
fn a_waiter_is_woken_after_its_connections_were_lost() {
    run(async {
        let (servers, _waiting, waiter) = held_and_waited_for().await;
        for server in &servers {
            assert_eq!(server.ask().call(&["CLIENT", "KILL", "TYPE", "pubsub"]), "1");
        }
        eventually("the wake connections", || servers.iter().all(|it| listeners(it) == 1)).await;
        eventually("the places", || servers.iter().all(|it| places(it) == 1)).await;
        eventually("the watches", || servers.iter().all(is_tracking)).await;
        for server in &servers {
            assert_eq!(server.ask().call(&["DEL", "r"]), "1");
        }
        is_woken(waiter).await;
    });
}

#[test]
fn all_waiters_keep_their_places_where_all_keys_are_deleted() {
    run(async {
        let servers = servers();
        // A node that has forgotten locks takes no part for a while, with the guard.
        let off = Policy::builder().restart_guard(RestartGuard::Off).build().unwrap();
        let manager = || {
            let builder = Redlock::builder().nodes(urls(&servers)).node_settings(patient());
            builder.engine(Engine::start().unwrap()).policy(off).build().unwrap()
        };
        let (waiting, next) = (manager(), manager());
        hold(&servers);
        let mut first = wait_for(&waiting, &servers).await;
        let mut second = tokio::spawn(patient_lock(&next).acquire());
        eventually("two places", || servers.iter().all(|it| places(it) == 2)).await;
        for server in &servers {
            assert_eq!(server.ask().call(&["FLUSHALL"]), "OK");
        }
        let (winner, other) = tokio::select! {
            winner = &mut first => (winner, second),
            winner = &mut second => (winner, first),
        };
        winner.unwrap().unwrap().release().await.unwrap();
        is_woken(other).await;
    });
}

#[test]
fn servers_whose_messages_are_lost_on_the_way_are_polled() {
    run(async {
        let servers = servers();
        let mut proxies = Vec::new();
        for server in &servers {
            proxies.push(Proxy::to(server.port()).await);
        }
        lose_messages(&proxies, true);
        let told = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&told);
        let waiting = Redlock::builder()
            .nodes(proxies.iter().map(Proxy::url))
            .node_settings(patient())
            .engine(Engine::start().unwrap())
            .on_notice(move |notice| {
                count.fetch_add(usize::from(notice.name() == "no-push"), Ordering::Relaxed);
            })
            .build()
            .unwrap();
        let holder = manager(&servers);
        for fair in [false, true] {
            let lease = holder.lock("r").fair(fair).acquire().await.unwrap();
            let lock = waiting.lock("r").set(|policy| policy.retry_delay(MOMENT)).fair(fair);
            let waiter = tokio::spawn(lock.timeout(HALF_A_MINUTE).acquire());
            eventually("the places", || servers.iter().all(|it| places(it) == 1)).await;
            eventually("it is known", || waiting.push_faults().iter().all(Option::is_some)).await;
            lease.release().await.unwrap();
            is_woken(waiter).await;
        }
        assert_eq!(told.load(Ordering::Relaxed), servers.len());
    });
}

#[test]
fn a_waiter_whose_messages_are_lost_later_looks_again_in_time() {
    run(async {
        let servers = servers();
        let proxies = join_all(servers.iter().map(|server| Proxy::to(server.port()))).await;
        let builder = Redlock::builder().nodes(proxies.iter().map(Proxy::url));
        let builder = builder.node_settings(patient()).engine(Engine::start().unwrap());
        let waiting = builder.build().unwrap();
        for fair in [false, true] {
            hold(&servers);
            let waiter = tokio::spawn(patient_lock(&waiting).fair(fair).acquire());
            eventually("the places", || servers.iter().all(|it| places(it) == 1)).await;
            eventually("the watches", || servers.iter().all(is_tracking)).await;
            lose_messages(&proxies, true);
            for server in &servers {
                assert_eq!(server.ask().call(&["DEL", "r"]), "1");
            }
            is_woken_within(REFRESH + SOON, waiter).await;
            lose_messages(&proxies, false);
            assert!(waiting.push_faults().iter().all(Option::is_none));
        }
    });
}

#[test]
fn nothing_is_left_of_a_waiter_that_gives_up() {
    run(async {
        let (servers, waiting, waiter) = held_and_waited_for().await;
        waiter.abort();
        eventually("no place", || servers.iter().all(|it| places(it) == 0)).await;
        let lock = waiting.lock("r").timeout(Duration::from_millis(50));
        assert!(lock.acquire().await.is_err());
        eventually("no place", || servers.iter().all(|it| places(it) == 0)).await;
        waiting.close();
        eventually("no wake connection", || servers.iter().all(|it| listeners(it) == 0)).await;
    });
}

#[test]
fn draining_waits_until_the_places_are_given_up() {
    run(async {
        let (servers, waiting, waiter) = held_and_waited_for().await;
        for server in &servers {
            assert_eq!(server.ask().call(&["CLIENT", "PAUSE", "200", "WRITE"]), "OK");
        }
        waiter.abort();
        assert!(waiter.await.unwrap_err().is_cancelled());
        assert!(waiting.engine().drain(HALF_A_MINUTE));
        assert!(servers.iter().all(|it| places(it) == 0));
    });
}

#[test]
fn an_engine_gives_up_the_places_of_all_who_wait() {
    run(async {
        let (servers, waiting, waiter) = held_and_waited_for().await;
        waiting.engine().leave_queues();
        assert!(waiting.engine().drain(HALF_A_MINUTE));
        assert!(servers.iter().all(|it| places(it) == 0));
        drop(waiter);
    });
}

#[test]
fn managers_that_are_alike_have_one_place_and_one_order() {
    run(async {
        let servers = servers();
        let engine = Engine::start().unwrap();
        let build = |policy| {
            let builder = Redlock::builder().nodes(urls(&servers)).node_settings(patient());
            builder.engine(engine.clone()).policy(policy).build().unwrap()
        };
        let policy = Policy::builder().retry_delay(HALF_A_MINUTE);
        let policy = policy.build().unwrap();
        hold(&servers);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        let managers: Vec<_> = (0..20).map(|_| build(policy)).collect();
        for (number, locks) in managers.iter().enumerate() {
            let (lock, order) = (locks.lock("r").timeout(HALF_A_MINUTE), Arc::clone(&order));
            waiting.push(tokio::spawn(async move {
                let lease = lock.acquire().await?;
                order.lock().unwrap().push(number);
                lease.release().await.map(|_| ())
            }));
            tokio::task::yield_now().await;
        }
        eventually("the places", || servers.iter().all(|it| places(it) == 1)).await;
        eventually("the watches", || servers.iter().all(is_tracking)).await;
        let another = build(policy.to_builder().ttl(HALF_A_MINUTE).build().unwrap());
        let apart = tokio::spawn(async move { another.lock("r").acquire().await.map(drop) });
        eventually("another place", || servers.iter().all(|it| places(it) == 2)).await;
        managers[3].close();
        let closed = waiting.remove(3).await.unwrap().unwrap_err();
        assert_eq!(closed.kind(), ErrorKind::Closed);
        for server in &servers {
            assert_eq!(server.ask().call(&["DEL", "r"]), "1");
        }
        for waiter in waiting {
            timeout(HALF_A_MINUTE, waiter).await.expect("it is woken").unwrap().unwrap();
        }
        timeout(HALF_A_MINUTE, apart).await.expect("it is woken").unwrap().unwrap();
        let expected: Vec<_> = (0..20).filter(|number| *number != 3).collect();
        assert_eq!(*order.lock().unwrap(), expected);
        eventually("no place", || servers.iter().all(|it| places(it) == 0)).await;
    });
}

type Waiter = JoinHandle<Result<LeaseGuard, LockError>>;

fn servers() -> Vec<Server> {
    (0..3).map(|_| Server::start()).collect()
}

/// A manager of an engine of its own, as of another process.
fn manager(servers: &[Server]) -> Redlock {
    let builder = Redlock::builder().nodes(urls(servers)).node_settings(patient());
    builder.engine(Engine::start().unwrap()).build().unwrap()
}

/// Somebody who knows nothing of queues takes the lock.
fn hold(servers: &[Server]) {
    for server in servers {
        assert_eq!(server.ask().call(&["SET", "r", "other", "PX", "60000"]), "OK");
    }
}

/// Begins to wait; returns once the waiter has its places and watches the keys.
async fn wait_for(locks: &Redlock, servers: &[Server]) -> Waiter {
    let waiter = tokio::spawn(patient_lock(locks).acquire());
    eventually("the places", || servers.iter().all(|it| places(it) == 1)).await;
    eventually("the watches", || servers.iter().all(is_tracking)).await;
    waiter
}

/// A lock for which a caller waits that does not look again for a long time by itself.
fn patient_lock(locks: &Redlock) -> Lock {
    let lock = locks.lock("r").set(|policy| policy.retry_delay(HALF_A_MINUTE));
    lock.timeout(HALF_A_MINUTE)
}

/// A lock that somebody holds who knows nothing of queues, and a caller that waits for it.
async fn held_and_waited_for() -> (Vec<Server>, Redlock, Waiter) {
    let servers = servers();
    let waiting = manager(&servers);
    hold(&servers);
    let waiter = wait_for(&waiting, &servers).await;
    (servers, waiting, waiter)
}

/// Waits until the waiter has the lock, which must be soon, and releases it.
async fn is_woken(waiter: Waiter) {
    is_woken_within(SOON, waiter).await;
}

async fn is_woken_within(limit: Duration, waiter: Waiter) {
    let begun = Instant::now();
    let lease = timeout(Duration::from_secs(20), waiter).await.expect("it is woken");
    let spent = begun.elapsed();
    assert!(spent < limit, "woken only after {spent:?}");
    lease.unwrap().unwrap().release().await.unwrap();
}

fn places(server: &Server) -> i64 {
    server.ask().number(&["ZCARD", "quorlock:queue:{r}"])
}

fn lose_messages(proxies: &[Proxy], loses: bool) {
    for proxy in proxies {
        proxy.lose_messages(loses);
    }
}

fn listeners(server: &Server) -> usize {
    server.ask().call(&["CLIENT", "LIST", "TYPE", "pubsub"]).matches("id=").count()
}

fn is_tracking(server: &Server) -> bool {
    !server.ask().call(&["INFO", "stats"]).contains("tracking_total_keys:0\r\n")
}

const HALF_A_MINUTE: Duration = Duration::from_secs(30);
const SOON: Duration = Duration::from_millis(500);
/// A waiter looks again by itself after this time.
const REFRESH: Duration = Duration::from_secs(3);
/// For a waiter that polls.
const MOMENT: Duration = Duration::from_millis(20);
