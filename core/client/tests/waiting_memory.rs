//! Tests how much memory a caller takes that waits for a lock.

#![cfg(target_os = "linux")]

mod support;

use std::fs;
use std::time::Duration;

use quorlock::{Lock, Redlock};
use support::{run, until};

const WAITERS: u64 = 50_000;

/// How many bytes of memory this process has.
fn resident() -> u64 {
    let told = fs::read_to_string("/proc/self/status").expect("Linux tells it");
    let line = told.lines().find(|line| line.starts_with("VmRSS:")).expect("it is told");
    let kibibytes = line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok());
    kibibytes.expect("it is a number") * 1024
}

/// How many callers have begun to wait.
fn waits(locks: &Redlock) -> u64 {
    locks.stats().waits
}

#[test]
fn a_caller_that_waits_takes_less_than_a_kibibyte() {
    run(async {
        let nodes = ["memory://a", "memory://b", "memory://c"];
        let locks = Redlock::builder().nodes(nodes).build().expect("three nodes");
        let _held = locks.lock("r").acquire().await.expect("it is free");
        let lock: Lock = locks.lock("r").timeout(Duration::from_secs(600));
        let mut waiting = Vec::new();
        let mut begin = |number: u64| {
            let lock = lock.clone();
            waiting.extend((0..number).map(|_| locks.engine().spawn(lock.acquire())));
        };
        begin(1000);
        until("they wait", || waits(&locks) >= 1000).await;
        let before = resident();
        begin(WAITERS);
        until("all wait", || waits(&locks) >= 1000 + WAITERS).await;
        let each = (resident() - before) / WAITERS;
        assert!(each < 1024, "{each} bytes");
    });
}
