//! Many leases renewed and watched by one keeper: they share commands and never each other's troubles.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quorlock::{Lease, Redlock};
use support::run;
use support::server::Server;
use tokio::time::sleep;

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

#[test]
fn leases_that_are_due_together_share_a_command_a_node() {
    const LEASES: usize = 600;
    run(async {
        let server = Server::start();
        let locks = Redlock::builder().nodes([server.url()]).build().unwrap();
        let ttl = Duration::from_secs(3);
        let mut leases = Vec::new();
        for number in 0..LEASES {
            leases.push(hold(&locks, &format!("r{number}"), ttl, true).await);
        }
        let before = scripts(&server);
        sleep(2 * ttl).await;
        assert!(leases.iter().all(Lease::is_valid), "all were renewed");
        // At least five renewals each; by themselves that would be thousands of commands.
        let commands = scripts(&server) - before;
        assert!(commands < LEASES, "{commands} commands for {LEASES} leases");
    });
}

#[test]
fn a_callback_that_panics_ends_no_other_lease() {
    run(async {
        let locks = three_nodes();
        let ttl = Duration::from_millis(300);
        let renewed = hold(&locks, "renewed", ttl, true).await;
        let lost = hold(&locks, "lost", ttl, false).await;
        let was_called = Arc::new(AtomicBool::new(false));
        let called = Arc::clone(&was_called);
        lost.on_lost(move |_| {
            called.store(true, Ordering::Relaxed);
            panic!("the test's own panic");
        });
        sleep(4 * ttl).await;
        assert!(was_called.load(Ordering::Relaxed));
        assert!(renewed.is_valid(), "it is still renewed");
    });
}

#[test]
fn a_loss_is_told_on_time_while_others_are_due_much_later() {
    run(async {
        let locks = three_nodes();
        let _far = hold(&locks, "far", Duration::from_secs(60), true).await;
        let mut smallest = Duration::MAX;
        // Three chances, for a machine that does other things meanwhile. Whoever sleeps as long as the
        // other lease lets him is late by half a second.
        for _ in 0..3 {
            let lease = hold(&locks, "near", Duration::from_millis(300), false).await;
            let end = Instant::now() + lease.validity();
            lease.lost().await;
            smallest = smallest.min(end.elapsed());
        }
        assert!(smallest < Duration::from_millis(100), "{smallest:?}");
    });
}
