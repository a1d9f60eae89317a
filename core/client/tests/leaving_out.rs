//! Tests nodes that are left out of new locks for a while.

mod support;

use std::time::Duration;

use quorlock::{ErrorKind, Redlock};
use support::server::Server;
use support::*;

fn servers() -> Vec<Server> {
    (0..3).map(|_| Server::start()).collect()
}

fn manager(servers: &[Server]) -> Redlock {
    Redlock::builder().nodes(urls(servers)).node_settings(patient()).build().unwrap()
}

/// How many of the servers have the key, in order.
fn keys(servers: &[Server], name: &str) -> Vec<i64> {
    servers.iter().map(|server| server.ask().number(&["EXISTS", name])).collect()
}

#[test]
fn a_node_that_is_left_out_gets_no_key_and_has_no_vote() {
    run(async {
        let servers = servers();
        let locks = manager(&servers);
        locks.leave_out(0, true);
        let lease = locks.lock("r").acquire().await.expect("two nodes are a quorum");
        eventually("both keys", || keys(&servers, "r") == [0, 1, 1]).await;
        locks.leave_out(1, true);
        let error = locks.lock("s").try_once().acquire().await.expect_err("one node is none");
        assert_eq!(error.kind(), ErrorKind::QuorumUnreachable);
        assert!(error.to_string().contains("2 failed"), "{error}");
        assert!(error.to_string().contains("left out of new locks"), "{error}");
        eventually("no key", || keys(&servers, "s") == [0, 0, 0]).await;
        assert!(lease.extend(None).await.is_ok(), "what has its keys goes on");
        lease.release().await.expect("it is held");
        eventually("no key", || keys(&servers, "r") == [0, 0, 0]).await;
        locks.leave_out(0, false);
        let lease = locks.lock("r").acquire().await.expect("two nodes are a quorum");
        eventually("the keys", || keys(&servers, "r") == [1, 0, 1]).await;
        lease.release().await.expect("it is held");
        locks.leave_out(3, true);
    });
}

#[test]
fn a_renewal_makes_no_key_where_a_node_is_left_out() {
    run(async {
        let servers = servers();
        let locks = manager(&servers);
        let lock = locks.lock("r").ttl(Duration::from_millis(600)).auto_extend(true);
        let lease = lock.acquire().await.expect("it is free");
        eventually("all keys", || keys(&servers, "r") == [1, 1, 1]).await;
        locks.leave_out(0, true);
        assert_eq!(servers[0].ask().call(&["DEL", "r"]), "1");
        let renewals = || servers[1].ask().number(&["PTTL", "r"]);
        for _ in 0..3 {
            let before = renewals();
            eventually("time passes", || renewals() < before).await;
            let before = renewals();
            eventually("it is renewed", || renewals() > before).await;
        }
        assert_eq!(keys(&servers, "r"), [0, 1, 1]);
        locks.leave_out(0, false);
        eventually("it is healed", || keys(&servers, "r") == [1, 1, 1]).await;
        lease.release().await.expect("it is held");
    });
}

#[test]
fn callers_whose_nodes_are_left_out_hold_up_no_other_manager() {
    run(async {
        let servers = servers();
        let held = manager(&servers).lock("r").acquire().await.expect("it is free");
        let locks = || Redlock::builder().nodes(urls(&servers)).node_settings(patient());
        let leaving_out = locks().may_leave_out(true).build().unwrap();
        let first = tokio::spawn({
            let lock = leaving_out.lock("r").timeout(Duration::from_secs(60));
            async move { lock.acquire().await }
        });
        let is_waiting = || servers[0].ask().number(&["EXISTS", "quorlock:queue:{r}"]) == 1;
        eventually("it waits", is_waiting).await;
        (0..2).for_each(|node| leaving_out.leave_out(node, true));
        let second = tokio::spawn({
            let lock = locks().build().unwrap().lock("r").timeout(Duration::from_secs(60));
            async move { lock.acquire().await }
        });
        held.release().await.expect("it is held");
        let lease = tokio::time::timeout(Duration::from_secs(30), second).await;
        let lease = lease.expect("it does not wait for the first").unwrap();
        lease.expect("it is free").release().await.expect("it is held");
        assert!(!first.is_finished(), "one node is no quorum");
        (0..2).for_each(|node| leaving_out.leave_out(node, false));
        first.await.unwrap().expect("it is free").release().await.expect("it is held");
    });
}
