//! Tests the public Rust API, over nodes in this process and nodes that the tests implement.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quorlock::{ErrorKind, Lock, LockError, Redlock, ReleaseOutcome, Vote};

/// Three memory nodes that no other test shares.
fn three_nodes() -> Redlock {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let cluster = NEXT.fetch_add(1, Ordering::Relaxed);
    let names = (0..3).map(|node| format!("memory://lock-test-{cluster}-{node}"));
    Redlock::builder().nodes(names).build().expect("three nodes")
}

/// For leases that are to run out.
fn short(lock: Lock) -> Lock {
    lock.ttl(Duration::from_millis(300))
}

/// For leases that must still be held after something else was done, and are to run out then.
fn short_lived(lock: Lock) -> Lock {
    lock.ttl(Duration::from_secs(2))
}

fn kind<T: std::fmt::Debug>(result: Result<T, LockError>) -> ErrorKind {
    result.expect_err("an error").kind()
}

#[tokio::test]
async fn is_held_by_one_at_a_time() {
    let locks = three_nodes();
    let lease = locks.lock("r").acquire().await.unwrap();
    assert!(lease.is_valid());
    let refused = locks.lock("r").try_once().acquire().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotAcquired);
    assert!(refused.to_string().contains("'r' is held by another: 3 of 3 nodes refused"));
    assert!(refused.votes().iter().all(|vote| vote.vote == Vote::Refused));
    assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(locks.lock("r").try_once().acquire().await.is_ok());
}

#[tokio::test]
async fn a_waiter_gets_it_after_the_release() {
    let locks = three_nodes();
    // On a busy machine the waiter may begin only after the release: it is given more time, then.
    for patience in [20, 200, 2000] {
        let lease = locks.lock("r").acquire().await.unwrap();
        let waiter = tokio::spawn({
            let lock = locks.lock("r");
            async move {
                let lease = lock.acquire().await?;
                let attempts = lease.attempts();
                lease.release().await.map(|_| attempts)
            }
        });
        // Time in which it could end wrongly.
        tokio::time::sleep(Duration::from_millis(patience)).await;
        assert!(!waiter.is_finished(), "it is held");
        lease.release().await.unwrap();
        if waiter.await.unwrap().unwrap() >= 2 {
            return;
        }
    }
    panic!("it never had to wait");
}

#[tokio::test]
async fn tokens_grow_with_every_acquisition() {
    let locks = three_nodes();
    let mut last = 0;
    for _ in 0..20 {
        let lease = locks.lock("r").acquire().await.unwrap();
        let token = lease.fencing_token().unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_dropped_guard_frees_the_lock() {
    let locks = three_nodes();
    drop(locks.lock("r").acquire().await.unwrap());
    assert!(locks.engine().drain(Duration::from_secs(20)));
    assert!(locks.lock("r").try_once().acquire().await.is_ok());
}

#[tokio::test]
async fn an_abandoned_acquisition_leaves_no_key() {
    let locks = three_nodes();
    let lease = locks.lock("r").acquire().await.unwrap();
    let waiting = locks.lock("r");
    let gave_up = tokio::time::timeout(Duration::from_millis(200), waiting.acquire()).await;
    assert!(gave_up.is_err());
    lease.release().await.unwrap();
    assert!(locks.engine().drain(Duration::from_secs(20)));
    assert!(!locks.is_locked(["r"]).await.unwrap());
}

#[tokio::test]
async fn extending_prolongs_and_keeps_the_token() {
    let locks = three_nodes();
    let lease = locks.lock("r").acquire().await.unwrap();
    let token = lease.fencing_token();
    let validity = lease.extend(Some(Duration::from_secs(50))).await.unwrap();
    assert!(validity > Duration::from_secs(40));
    assert_eq!(lease.fencing_token(), token);
    assert_eq!(lease.ttl(), Duration::from_secs(50));
}

#[tokio::test]
async fn on_lost_is_told_also_after_an_extension() {
    let locks = three_nodes();
    let lease = short_lived(locks.lock("r")).acquire().await.unwrap();
    lease.extend(None).await.unwrap();
    tokio::time::timeout(Duration::from_secs(20), lease.lost()).await.expect("told");
}

#[tokio::test]
async fn extending_or_releasing_twice_is_an_error_of_its_own() {
    let locks = three_nodes();
    let lease = locks.lock("r").acquire().await.unwrap().into_lease();
    lease.release().await.unwrap();
    assert_eq!(kind(lease.release().await), ErrorKind::LockNotHeld);
    assert_eq!(kind(lease.extend(None).await), ErrorKind::LockNotHeld);
    assert_eq!(kind(lease.check().await), ErrorKind::LockNotHeld);
}

#[tokio::test]
async fn a_lease_is_lost_at_the_end_of_its_validity() {
    let locks = three_nodes();
    let lease = short(locks.lock("r")).acquire().await.unwrap();
    let end = Instant::now() + lease.validity();
    let error = lease.lost().await;
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    assert!(Instant::now() + Duration::from_millis(5) >= end, "told before the end");
    assert!(!lease.is_valid());
    assert_eq!(kind(lease.extend(None).await), ErrorKind::LeaseLost);
    let again = lease.into_lease();
    let outcome = again.release().await.unwrap();
    assert_eq!(outcome, ReleaseOutcome::Expired);
    assert!(again.loss(outcome).unwrap().to_string().contains("validity passed"));
}

#[tokio::test]
async fn a_renewed_lease_outlives_its_ttl() {
    let locks = three_nodes();
    let lease = short_lived(locks.lock("r")).auto_extend(true).acquire().await.unwrap();
    let waited = tokio::time::timeout(2 * lease.ttl(), lease.lost()).await;
    assert!(waited.is_err(), "still held after twice its ttl");
    assert!(lease.is_valid());
    assert!(locks.is_locked(["r"]).await.unwrap());
}

#[tokio::test]
async fn renewal_stops_at_max_hold() {
    let locks = three_nodes();
    let lock = short_lived(locks.lock("r")).auto_extend(true).max_hold(Duration::from_secs(1));
    let lease = lock.acquire().await.unwrap();
    let error = tokio::time::timeout(Duration::from_secs(20), lease.lost()).await.unwrap();
    assert!(error.to_string().contains("max_hold"));
}

#[tokio::test]
async fn an_abandoned_lease_is_renewed_no_more() {
    let locks = three_nodes();
    let lease = short(locks.lock("r")).auto_extend(true).acquire().await.unwrap().into_lease();
    drop(lease);
    let next = locks.lock("r").timeout(Duration::from_secs(20)).acquire().await;
    assert!(next.is_ok(), "it ran out");
}

#[tokio::test]
async fn a_lease_left_to_run_out_is_not_renewed_and_its_loss_is_told() {
    let locks = three_nodes();
    let lease = short(locks.lock("r")).auto_extend(true).acquire().await.unwrap();
    let watching = tokio::spawn({
        let lease = quorlock::Lease::clone(&lease);
        async move { lease.lost().await }
    });
    tokio::task::yield_now().await;
    lease.let_run_out();
    let told = tokio::time::timeout(Duration::from_secs(20), watching).await;
    assert_eq!(told.unwrap().unwrap().kind(), ErrorKind::LeaseLost);
}

#[tokio::test]
async fn a_lease_can_be_taken_over_by_its_token() {
    let locks = three_nodes();
    let first = locks.lock("r").acquire().await.unwrap().into_lease();
    let second = locks.lease(["r"], first.token()).unwrap();
    assert!(!second.is_valid(), "nothing is proved yet");
    second.check().await.unwrap();
    assert!(second.is_valid());
    assert_eq!(second.fencing_token(), first.fencing_token());
    assert!(second.extend(Some(Duration::from_secs(70))).await.unwrap() > Duration::from_secs(60));
    assert_eq!(second.release().await.unwrap(), ReleaseOutcome::Released);
    assert_eq!(kind(first.check().await), ErrorKind::LeaseLost);
}

#[tokio::test]
async fn a_lease_that_is_over_is_not_brought_back_by_its_token() {
    let locks = three_nodes();
    let first = locks.lock("r").acquire().await.unwrap().into_lease();
    first.release().await.unwrap();
    // Somebody else may have had the lock in between.
    let second = locks.lease(["r"], first.token()).unwrap();
    assert_eq!(kind(second.extend(None).await), ErrorKind::LeaseLost);
    assert!(!second.is_valid());
    let next = locks.lock("r").try_once().acquire().await.expect("no key is left");
    next.release().await.unwrap();
}

#[tokio::test]
async fn checking_tells_a_lost_lease() {
    let locks = three_nodes();
    let lease = locks.lock("r").acquire().await.unwrap().into_lease();
    lease.check().await.unwrap();
    locks.lease(["r"], lease.token()).unwrap().release().await.unwrap();
    assert_eq!(kind(lease.check().await), ErrorKind::LeaseLost);
}

#[tokio::test]
async fn several_resources_are_all_or_nothing() {
    let locks = three_nodes();
    let one = locks.lock("b").acquire().await.unwrap();
    let both = locks.lock_all(["a", "b"]).try_once();
    assert_eq!(kind(both.acquire().await), ErrorKind::NotAcquired);
    assert!(locks.engine().drain(Duration::from_secs(20)));
    assert!(!locks.is_locked(["a"]).await.unwrap());
    one.release().await.unwrap();
    let lease = both.acquire().await.unwrap();
    assert_eq!(lease.resources().collect::<Vec<_>>(), ["a", "b"]);
}

#[tokio::test]
async fn late_votes_are_seen_when_asked_for() {
    let locks = three_nodes();
    let lease = locks.lock("r").acquire().await.unwrap();
    assert!(lease.votes().iter().all(|vote| vote.vote == Vote::Granted));
}

#[tokio::test]
async fn on_lost_is_called_once_and_not_after_a_release() {
    let locks = three_nodes();
    let calls = Arc::new(AtomicUsize::new(0));
    let count = |lease: &quorlock::Lease| {
        let calls = Arc::clone(&calls);
        lease.on_lost(move |_| {
            calls.fetch_add(1, Ordering::SeqCst);
        });
    };
    let lease = short(locks.lock("a")).acquire().await.unwrap();
    count(&lease);
    lease.lost().await;
    let released = short_lived(locks.lock("b")).acquire().await.unwrap().into_lease();
    count(&released);
    assert_eq!(released.release().await.unwrap(), ReleaseOutcome::Released);
    // Time in which a loss could be told wrongly.
    tokio::time::sleep(released.ttl()).await;
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_closed_manager_says_so() {
    let locks = three_nodes();
    let lease = locks.lock("r").acquire().await.unwrap().into_lease();
    locks.close();
    assert_eq!(kind(locks.lock("r").acquire().await), ErrorKind::Closed);
    assert_eq!(kind(lease.extend(None).await), ErrorKind::Closed);
}

#[tokio::test]
async fn who_waits_for_a_lock_hears_that_the_manager_is_closed() {
    let locks = three_nodes();
    let _held = locks.lock("r").acquire().await.unwrap();
    let waiting = [(), ()].map(|()| {
        let lock = locks.lock("r").timeout(Duration::from_secs(60));
        tokio::spawn(async move { kind(lock.acquire().await) })
    });
    // Time for both to begin: one of them tries, the other waits behind it. Nothing tells that.
    tokio::time::sleep(Duration::from_millis(50)).await;
    locks.close();
    for waiting in waiting {
        let end = tokio::time::timeout(Duration::from_secs(5), waiting);
        assert_eq!(end.await.expect("it does not wait on").unwrap(), ErrorKind::Closed);
    }
}

#[tokio::test]
async fn a_timeout_counts_from_the_call() {
    let locks = three_nodes();
    let _held = locks.lock("r").acquire().await.unwrap();
    for is_second in [false, true] {
        // The first one tries, the second waits behind it.
        let lock = locks.lock("r").timeout(Duration::from_secs(60));
        let first = is_second.then(|| tokio::spawn(async move { lock.acquire().await }));
        let called = Instant::now();
        let acquiring = locks.lock("r").timeout(Duration::from_secs(1)).acquire();
        tokio::time::sleep(Duration::from_millis(900)).await;
        assert_eq!(kind(acquiring.await), ErrorKind::AcquireTimedOut);
        let (elapsed, second) = (called.elapsed(), Duration::from_secs(1));
        assert!(elapsed >= second && elapsed < second * 3 / 2, "{elapsed:?}");
        if let Some(first) = first {
            first.abort();
        }
    }
}

#[tokio::test]
async fn a_call_that_begins_after_its_time_still_tries_once() {
    let locks = three_nodes();
    let acquiring = locks.lock("r").timeout(Duration::from_millis(50)).acquire();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(acquiring.await.unwrap().is_valid());
}

#[test]
fn bad_settings_are_refused_with_a_sentence() {
    let text = |nodes: &[&str]| Redlock::builder().nodes(nodes).build().unwrap_err().to_string();
    assert!(text(&[]).contains("no nodes were given"));
    assert!(text(&["memory://a", "memory://a"]).contains("named twice"));
    let twice = text(&["redis://:hunter2@h:1", "redis://:hunter3@h:1"]);
    assert!(twice.contains("named twice") && !twice.contains("hunter"), "{twice}");
    assert!(text(&["http://a"]).contains("http"));
}

#[tokio::test]
async fn a_lock_can_be_used_from_any_runtime() {
    let locks = three_nodes();
    let outside = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async move {
            let lease = locks.lock("r").acquire().await.unwrap();
            lease.extend(None).await.unwrap();
            lease.release().await.unwrap()
        })
    });
    assert_eq!(outside.join().unwrap(), ReleaseOutcome::Released);
}

#[tokio::test]
async fn a_memory_node_without_a_name_is_each_managers_own() {
    let manager = || Redlock::builder().nodes(["memory://"; 3]).build().unwrap();
    let (one, two) = (manager(), manager());
    let held = one.lock("r").acquire().await.unwrap();
    assert!(one.is_locked(["r"]).await.unwrap());
    assert!(!two.is_locked(["r"]).await.unwrap());
    drop(two.lock("r").timeout(Duration::ZERO).acquire().await.unwrap());
    assert_eq!(
        one.nodes().iter().map(|(address, _)| &**address).collect::<Vec<_>>(),
        ["memory://"; 3]
    );
    drop(held);
}
