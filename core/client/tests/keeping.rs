//! Tests many leases that one scheduler renews and watches: they share commands, and a failure of
//! one does not affect the others.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quorlock::{Lease, Redlock};
use quorlock_protocol::ReleaseOutcome;
use support::hooked::hooked;
use support::server::Server;
use support::{run, until};

/// Three memory nodes that no other test shares.
fn three_nodes() -> Redlock {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let cluster = NEXT.fetch_add(1, Ordering::Relaxed);
    let names = (0..3).map(|node| format!("memory://keeping-{cluster}-{node}"));
    Redlock::builder().nodes(names).build().expect("three nodes")
}

async fn hold(locks: &Redlock, name: &str, ttl: Duration, renewed: bool) -> Lease {
    let lock = locks.lock(name).ttl(ttl).auto_extend(renewed);
    lock.acquire().await.expect("it is free").into_lease()
}

/// How many scripts the server has run for clients.
fn scripts(server: &Server) -> usize {
    let told = server.ask().call(&["INFO", "commandstats"]);
    let calls = |line: &str| -> Option<usize> {
        line.split_once("calls=")?.1.split_once(',')?.0.parse().ok()
    };
    told.lines().filter(|line| line.starts_with("cmdstat_eval")).filter_map(calls).sum()
}

/// How many rounds of renewal these leases have had from now on.
fn count_renewals(leases: &[Lease]) -> Vec<Arc<AtomicUsize>> {
    let counted = |lease: &Lease| {
        let count = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&count);
        lease.on_renewal(move |_| {
            counts.fetch_add(1, Ordering::Relaxed);
        });
        count
    };
    leases.iter().map(counted).collect()
}

#[test]
fn leases_that_are_due_together_share_a_command_a_node() {
    const LEASES: usize = 600;
    run(async {
        let server = Server::start();
        let locks = Redlock::builder().nodes([server.url()]).build().unwrap();
        let mut leases = Vec::new();
        for number in 0..LEASES {
            leases.push(hold(&locks, &format!("r{number}"), Duration::from_secs(6), true).await);
        }
        let before = scripts(&server);
        let counts = count_renewals(&leases);
        let renewals = || counts.iter().map(|count| count.load(Ordering::Relaxed));
        until("all were renewed twice", || renewals().all(|count| count >= 2)).await;
        assert!(leases.iter().all(Lease::is_valid), "none was lost");
        // Slower machines renew in more and smaller groups, but none renews them one by one.
        let (commands, renewals) = (scripts(&server) - before, renewals().sum::<usize>());
        assert!(8 * commands < renewals, "{commands} commands for {renewals} renewals");
    });
}

#[test]
fn a_panicking_callback_ends_no_lease_and_silences_no_other() {
    run(async {
        let locks = three_nodes();
        let renewed = [hold(&locks, "renewed", Duration::from_millis(600), true).await];
        renewed[0].on_renewal(|_| panic!("the test's own panic"));
        let counts = count_renewals(&renewed);
        until("it is still renewed", || counts[0].load(Ordering::Relaxed) >= 2).await;
        let was_called = Arc::new(AtomicBool::new(false));
        let called = Arc::clone(&was_called);
        renewed[0].on_lost(|_| panic!("the test's own panic"));
        renewed[0].on_lost(move |_| called.store(true, Ordering::Relaxed));
        renewed[0].let_run_out();
        until("the loss is told", || was_called.load(Ordering::Relaxed)).await;
    });
}

#[test]
fn a_callback_that_panics_ends_no_other_lease() {
    run(async {
        let locks = three_nodes();
        let renewed = [hold(&locks, "renewed", Duration::from_secs(6), true).await];
        let lost = hold(&locks, "lost", Duration::from_millis(300), false).await;
        let was_called = Arc::new(AtomicBool::new(false));
        let called = Arc::clone(&was_called);
        lost.on_lost(move |_| {
            called.store(true, Ordering::Relaxed);
            panic!("the test's own panic");
        });
        until("the loss is told", || was_called.load(Ordering::Relaxed)).await;
        let counts = count_renewals(&renewed);
        until("it is still renewed", || counts[0].load(Ordering::Relaxed) >= 2).await;
        assert!(renewed[0].is_valid());
    });
}

#[test]
fn a_node_that_panics_is_one_that_does_not_answer() {
    run(async {
        let is_broken = Arc::new(AtomicBool::new(false));
        let breaks = Arc::clone(&is_broken);
        let node = hooked("breaking", move |_| {
            assert!(!breaks.load(Ordering::Relaxed), "the test's own panic");
        });
        let others = ["memory://breaking-b", "memory://breaking-c"];
        let locks = Redlock::builder().node(node).nodes(others).build().unwrap();
        let lease = [hold(&locks, "r", Duration::from_millis(600), true).await];
        let counts = count_renewals(&lease);
        is_broken.store(true, Ordering::Relaxed);
        until("it is still renewed", || counts[0].load(Ordering::Relaxed) >= 2).await;
        assert_eq!(lease[0].release().await.expect("it is held"), ReleaseOutcome::Released);
        let next = hold(&locks, "r", Duration::from_secs(6), false).await;
        next.withdraw();
    });
}

#[test]
fn a_loss_is_told_on_time_while_others_are_due_much_later() {
    run(async {
        let locks = three_nodes();
        let _far = hold(&locks, "far", Duration::from_secs(60), true).await;
        // Many chances, for a machine that does other things meanwhile. A test that sleeps as long as the
        // other lease lets him is late by half a second every time.
        let mut smallest = Duration::MAX;
        for _ in 0..10 {
            let lease = hold(&locks, "near", Duration::from_millis(300), false).await;
            let end = Instant::now() + lease.validity();
            lease.lost().await;
            smallest = smallest.min(end.elapsed());
            if smallest < Duration::from_millis(100) {
                return;
            }
        }
        panic!("{smallest:?} late at best");
    });
}
