//! Tests that others see who holds a lock, where its manager tells it.

mod support;

use std::time::Duration;

use quorlock::{ErrorKind, Redlock};
use support::server::Server;
use support::{run, urls, warm_up};

fn owned(servers: &[Server]) -> Redlock {
    let builder = Redlock::builder().nodes(urls(servers)).owner([("service", "billing")]);
    builder.build().expect("three nodes")
}

/// How many servers have the record.
fn records(servers: &[Server]) -> usize {
    let has = |server: &&Server| server.ask().call(&["EXISTS", "quorlock:owner:{r}"]) == "1";
    servers.iter().filter(has).count()
}

#[test]
fn the_holder_is_named_until_its_release() {
    run(async {
        let servers = [Server::start(), Server::start(), Server::start()];
        let locks = owned(&servers);
        warm_up(&locks).await;
        assert_eq!(locks.holder("r").await.expect("all answer"), None);
        let lease = locks.lock("r").acquire().await.expect("free");
        let holder = locks.holder("r").await.expect("all answer").expect("it is held");
        assert_eq!(holder.owner["service"], "billing");
        assert_eq!(holder.owner["pid"], std::process::id().to_string());
        assert!(holder.to_string().starts_with("billing on "), "{holder}");
        let ttl = servers[0].ask().call(&["PTTL", "quorlock:owner:{r}"]);
        assert!((1..=10_000).contains(&ttl.parse::<u32>().expect("a number")), "{ttl}");
        let refused = locks.lock("r").try_once().acquire().await.expect_err("it is held");
        assert_eq!(refused.kind(), ErrorKind::NotAcquired);
        let words = format!(", pid {}, for 0 s", std::process::id());
        assert!(refused.to_string().contains("; held by billing on "), "{refused}");
        assert!(refused.to_string().ends_with(&words), "{refused}");
        lease.release().await.expect("held");
        support::until("it is deleted", || records(&servers) == 0).await;
    });
}

#[test]
fn a_renewal_keeps_the_record_and_a_lock_without_an_owner_has_none() {
    run(async {
        let servers = [Server::start(), Server::start(), Server::start()];
        let locks = owned(&servers);
        warm_up(&locks).await;
        let lock = locks.lock("r").ttl(Duration::from_millis(400)).auto_extend(true);
        let lease = lock.acquire().await.expect("free");
        tokio::time::sleep(Duration::from_millis(900)).await; // longer than the first ttl
        assert!(lease.is_valid());
        assert_eq!(records(&servers), 3);
        lease.release().await.expect("held");
        let plain = Redlock::builder().nodes(urls(&servers)).build().expect("three nodes");
        let lease = plain.lock("r").acquire().await.expect("free");
        assert_eq!(records(&servers), 0);
        let holder = plain.holder("r").await.expect("all answer").expect("it is held");
        assert_eq!((holder.owner.len(), holder.since), (0, None));
        assert_eq!(holder.to_string(), "another");
        drop(lease);
    });
}

#[test]
fn an_owner_that_is_too_large_is_refused_when_the_manager_is_built() {
    let builder = Redlock::builder().nodes(["memory://"]).owner([("a", "x".repeat(5_000))]);
    let error = builder.build().expect_err("it is too large");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("4096 bytes at most"), "{error}");
}
