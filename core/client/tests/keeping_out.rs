//! Tests over real servers that locks stay closed after the end of their lease: lock-delay and
//! least hold.

mod support;

use std::time::{Duration, Instant};

use quorlock::embed::UndeliveredLease;
use quorlock::{Engine, ErrorKind, Lease, Lock, Redlock, ReleaseOutcome};
use support::server::Server;
use support::{eventually, run};

const LONG: Duration = Duration::from_secs(30);

fn servers() -> Vec<Server> {
    (0..3).map(|_| Server::start()).collect()
}

fn over(servers: &[Server]) -> Redlock {
    // An engine of its own: what other tests leave behind is not waited for.
    let builder = Redlock::builder().engine(Engine::start().expect("a thread"));
    builder.nodes(servers.iter().map(Server::url)).build().expect("valid addresses")
}

/// What every server has under the key, and for how many milliseconds.
fn kept(servers: &[Server]) -> Vec<(String, i64)> {
    let ask = |server: &Server, word| server.ask().call(&[word, "r"]);
    let left = |server: &Server| ask(server, "PTTL").parse().expect("a number");
    servers.iter().map(|server| (ask(server, "GET"), left(server))).collect()
}

fn is_kept(servers: &[Server], token: &str, range: std::ops::Range<i64>) -> bool {
    kept(servers).iter().all(|(holder, left)| holder == token && range.contains(left))
}

fn is_free(servers: &[Server]) -> bool {
    kept(servers).iter().all(|(_, left)| *left == -2)
}

async fn is_refused(locks: &Redlock) -> bool {
    let error = locks.lock("r").try_once().acquire().await.err();
    error.is_some_and(|error| error.kind() == ErrorKind::NotAcquired)
}

/// A lease that was lost: it ran out, and its holder was told.
async fn lost(lock: Lock) -> Lease {
    let lease = lock.ttl(Duration::from_millis(400)).acquire().await.unwrap().into_lease();
    let error = lease.lost().await;
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    lease
}

#[test]
fn keys_of_a_lost_lease_stay_until_the_holder_releases() {
    run(async {
        let servers = servers();
        let locks = over(&servers);
        let lease = lost(locks.lock("r").lock_delay(LONG)).await;
        assert!(!lease.is_valid());
        assert!(is_kept(&servers, lease.token(), 20_000..30_400));
        assert!(is_refused(&locks).await);
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Expired);
        eventually("the keys are gone", || is_free(&servers)).await;
    });
}

#[test]
fn so_do_those_of_a_lease_that_was_renewed_to_its_limit() {
    run(async {
        let servers = servers();
        let locks = over(&servers);
        let lock = locks.lock("r").lock_delay(LONG).auto_extend(true);
        let lease = lost(lock.max_hold(Duration::from_millis(200))).await;
        let told = lease.loss(ReleaseOutcome::Expired).unwrap().to_string();
        assert!(told.contains("for as long as max_hold allows"), "{told}");
        assert!(is_kept(&servers, lease.token(), 20_000..30_400));
        drop(lease);
        assert!(locks.engine().drain(LONG));
        assert!(!is_free(&servers), "a lease that is forgotten says nothing of the work under it");
    });
}

#[test]
fn a_guard_that_is_dropped_after_the_loss_ends_the_delay() {
    run(async {
        let servers = servers();
        let locks = over(&servers);
        let lock = locks.lock("r").lock_delay(LONG).ttl(Duration::from_millis(400));
        let guard = lock.acquire().await.unwrap();
        guard.lost().await;
        assert!(is_kept(&servers, guard.token(), 20_000..30_400));
        drop(guard);
        eventually("the keys are gone", || is_free(&servers)).await;
    });
}

#[test]
fn a_release_within_the_validity_frees_at_once() {
    run(async {
        let servers = servers();
        let locks = over(&servers);
        let lease = locks.lock("r").lock_delay(LONG).acquire().await.unwrap();
        let token = lease.token().to_owned();
        eventually("three grants", || is_kept(&servers, &token, 30_000..40_001)).await;
        assert!(lease.validity() < Duration::from_secs(10));
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
        eventually("the keys are gone", || is_free(&servers)).await;
    });
}

#[test]
fn a_lease_that_is_taken_over_is_not_trusted_for_its_delay() {
    run(async {
        let servers = servers();
        let locks = over(&servers);
        let lock = locks.lock("r").lock_delay(LONG);
        let lease = lock.clone().acquire().await.unwrap();
        let taken = lock.lease(lease.token()).unwrap();
        let validity = taken.check().await.unwrap();
        assert!(validity > Duration::from_secs(5) && validity < Duration::from_secs(10));
    });
}

#[test]
fn an_early_release_keeps_others_out_for_the_least_hold() {
    run(async {
        let servers = servers();
        let locks = over(&servers);
        let wanted = Duration::from_millis(1500);
        let begun = Instant::now();
        let lease = locks.lock("r").min_hold(wanted).acquire().await.unwrap();
        let token = lease.token().to_owned();
        let lease = lease.into_lease();
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
        assert!(lease.is_released() && !lease.is_valid());
        eventually("all are told", || is_kept(&servers, &token, 0..1600) || is_free(&servers))
            .await;
        // Asked first: the time may pass while the answer is on its way.
        assert!(is_refused(&locks).await || begun.elapsed() >= wanted);
        eventually("the keys have ended", || is_free(&servers)).await;
        assert!(begun.elapsed() >= wanted);
    });
}

#[test]
fn a_lease_that_is_over_is_released_as_expired() {
    run(async {
        let servers = servers();
        let locks = over(&servers);
        let lock = locks.lock("r").ttl(Duration::from_millis(200)).lock_delay(LONG);
        let lease = lock.acquire().await.unwrap().into_lease();
        let token = lease.token().to_owned();
        eventually("its validity is over", || !lease.is_valid()).await;
        assert!(is_kept(&servers, &token, 10_001..31_000), "the keys stand");
        assert!(lease.is_lost() && !lease.is_released());
        let outcome = lease.release().await.unwrap();
        assert_eq!(outcome, ReleaseOutcome::Expired);
        assert!(lease.is_lost() && lease.is_released());
        assert_eq!(lease.loss(outcome).expect("it is an error").kind(), ErrorKind::LeaseLost);
        eventually("the keys are gone", || is_free(&servers)).await;
    });
}

#[test]
fn a_release_after_the_least_hold_deletes() {
    run(async {
        let servers = servers();
        let locks = over(&servers);
        let lock = locks.lock("r").min_hold(Duration::from_millis(1)).ttl(LONG);
        let lease = lock.acquire().await.unwrap();
        let begun = Instant::now();
        eventually("it has passed", || begun.elapsed() > Duration::from_millis(2)).await;
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
        eventually("the keys are gone", || is_free(&servers)).await;
    });
}

#[test]
fn a_dropped_guard_keeps_the_least_hold() {
    run(async {
        let servers = servers();
        let locks = over(&servers);
        let lock = locks.lock("r").min_hold(LONG);
        // Won, and dropped before the caller had it.
        drop(UndeliveredLease::from(lock.acquire().await.unwrap()));
        eventually("the keys are gone", || is_free(&servers)).await;
        let guard = lock.acquire().await.unwrap();
        let token = guard.token().to_owned();
        drop(guard);
        eventually("all are told", || is_kept(&servers, &token, 20_000..31_000)).await;
        assert!(is_refused(&locks).await);
    });
}

#[test]
fn a_node_that_hung_during_the_release_is_told_when_it_wakes() {
    run(async {
        let servers = servers();
        let locks = over(&servers);
        let lock = locks.lock("r").min_hold(LONG).ttl(Duration::from_secs(10));
        let lease = lock.acquire().await.unwrap();
        let token = lease.token().to_owned();
        eventually("three grants", || is_kept(&servers, &token, 0..10_001)).await;
        servers[2].pause();
        assert_eq!(lease.release().await.unwrap(), ReleaseOutcome::Released);
        servers[2].resume();
        eventually("all are told", || is_kept(&servers, &token, 10_001..31_000)).await;
    });
}
