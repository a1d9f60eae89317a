//! Tests that a blocking caller drives the engine itself, and that the engine's thread takes over
//! afterwards.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use quorlock::{Engine, ErrorKind, LeaseGuard, LockError, Redlock};
use support::server::Server;
use support::urls;

const TTL: Duration = Duration::from_secs(4);
const LONG: Duration = Duration::from_secs(20);

fn cluster() -> (Vec<Server>, Redlock) {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    // An engine of its own: nobody else drives it.
    let builder = Redlock::builder().engine(Engine::start().expect("a thread"));
    let locks = builder.nodes(urls(&servers)).build().expect("valid addresses");
    (servers, locks)
}

fn acquire(locks: &Redlock, ttl: Duration) -> Result<LeaseGuard, LockError> {
    locks.engine().block_on(locks.lock("r").ttl(ttl).timeout(LONG).acquire())
}

#[test]
fn one_after_the_other() {
    let (servers, locks) = cluster();
    for _ in 0..200 {
        let lease = acquire(&locks, LONG).expect("free");
        assert!(lease.is_valid());
        locks.engine().block_on(lease.release()).expect("held until now");
    }
    for server in &servers {
        assert_eq!(server.ask().call(&["EXISTS", "r"]), "0");
    }
}

#[test]
fn many_threads_at_once_never_hold_together() {
    let (_servers, locks) = cluster();
    let (inside, turns) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let lock = locks.lock("r").timeout(LONG);
                    let lock = lock.set(|it| it.retry_delay(Duration::from_millis(1)));
                    let lease = locks.engine().block_on(lock.acquire()).expect("in the end");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                    turns.fetch_add(1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                    locks.engine().block_on(lease.release()).expect("held until now");
                }
            });
        }
    });
    assert_eq!(turns.into_inner(), 160);
}

#[test]
fn a_lease_is_renewed_and_its_loss_told_while_no_one_blocks() {
    let (servers, locks) = cluster();
    let lock = locks.lock("r").ttl(TTL).auto_extend(true);
    let lease = locks.engine().block_on(lock.acquire()).expect("free");
    let (send, renewed) = mpsc::channel();
    lease.on_renewal(move |_| {
        let _ = send.send(());
    });
    for _ in 0..2 {
        renewed.recv_timeout(LONG).expect("renewed by the engine's thread");
    }
    let (send, lost) = mpsc::channel();
    lease.on_lost(move |error| {
        let _ = send.send(error);
    });
    for server in &servers {
        server.ask().call(&["SET", "r", "another"]);
    }
    assert_eq!(lost.recv_timeout(LONG).expect("told").kind(), ErrorKind::LeaseLost);
}

#[test]
fn one_who_waits_for_long_does_not_keep_another_from_anything() {
    let (_servers, locks) = cluster();
    let lease = acquire(&locks, LONG).expect("free");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| acquire(&locks, LONG).expect("once it is free"));
        for number in 0..50 {
            let lock = locks.lock(&format!("other:{number}"));
            let other = locks.engine().block_on(lock.acquire()).expect("free");
            locks.engine().block_on(other.release()).expect("held until now");
        }
        locks.engine().block_on(lease.release()).expect("held until now");
        assert!(waiter.join().expect("no panic").is_valid());
    });
}

#[test]
fn a_wait_cut_short_leaves_nothing_behind() {
    let (servers, locks) = cluster();
    let lease = acquire(&locks, LONG).expect("free");
    let lock = locks.lock("r").timeout(LONG);
    let cut = locks.engine().block_on_for(Duration::from_millis(30), lock.acquire());
    assert!(cut.is_none(), "it is held");
    locks.engine().block_on(lease.release()).expect("held until now");
    assert!(locks.engine().drain(LONG));
    for server in &servers {
        assert_eq!(server.ask().call(&["EXISTS", "r"]), "0");
    }
}

#[test]
fn an_engine_ends_with_its_last_handle_wherever_that_is_dropped() {
    let (_servers, locks) = cluster();
    drop(acquire(&locks, LONG).expect("free"));
    let engine = locks.engine().clone();
    // On the engine itself, as its last user.
    let task = engine.spawn(async move { drop(locks) });
    assert_eq!(support::run(task), Some(()));
    // In another runtime, which must not be blocked.
    support::run(async move { drop(engine) });
}
