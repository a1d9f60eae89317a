//! Tests nodes that are left out of new locks for a while.

mod support;

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
        let lock = locks.lock("r").ttl(std::time::Duration::from_millis(600)).auto_extend(true);
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
