//! Tests users with limited rights: what the client does instead, and what it reports.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use quorlock::{ErrorKind, NodeState, Redlock};
use quorlock_protocol::{Action, Answer, FaultKind, Place, Waiter};
use tokio::time::timeout;

use crate::support::server::Server;
use crate::support::*;

/// What a user needs who may do nothing else, as the messages recommend it.
const NEEDED: [&str; 14] = [
    "+eval",
    "+evalsha",
    "+script|load",
    "+get",
    "+set",
    "+del",
    "+pexpire",
    "+pttl",
    "+time",
    "+zadd",
    "+zscore",
    "+hgetall",
    "+hset",
    "+hdel",
];

/// What such a user needs besides to wait in queues.
const NEEDED_TO_WAIT: [&str; 13] = [
    "&quorlock:wake:*",
    "+exists",
    "+hello",
    "+publish",
    "+subscribe",
    "+client|tracking",
    "+client|caching",
    "+zcard",
    "+zcount",
    "+zrange",
    "+zrangebyscore",
    "+zrank",
    "+zrem",
];

#[test]
fn the_recommended_access_list_is_enough() {
    run(async {
        let server = Server::start();
        let mut client = user(&server, &[&NEEDED[..], &["~r*", "~quorlock:*"]].concat());
        whole_life(&mut client, "r").await;
    });
}

#[test]
fn the_recommended_access_list_is_enough_to_wait() {
    run(async {
        let server = Server::start();
        drop(user(&server, &[&NEEDED[..], &NEEDED_TO_WAIT, &["~r*", "~quorlock:*"]].concat()));
        let notices = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&notices);
        let locks = Redlock::builder()
            .nodes([format!("redis://app:pw@127.0.0.1:{}", server.port())])
            .on_notice(move |notice| {
                count.fetch_add(usize::from(notice.name() == "no-push"), Ordering::Relaxed);
            })
            .build()
            .unwrap();
        for fair in [false, true] {
            assert_eq!(server.ask().call(&["SET", "r", "another", "PX", "60000"]), "OK");
            let long = Duration::from_secs(30);
            let lock = locks.lock("r").set(|it| it.retry_delay(long)).timeout(long).fair(fair);
            let waiter = tokio::spawn(async move { lock.acquire().await });
            let place = || server.ask().number(&["ZCARD", "quorlock:queue:{r}"]) == 1;
            eventually("the place", place).await;
            let none = "tracking_total_keys:0\r\n";
            eventually("the watch", || !server.ask().call(&["INFO", "stats"]).contains(none)).await;
            assert_eq!(locks.waiters(["r"]).await.unwrap(), 1);
            assert_eq!(server.ask().call(&["DEL", "r"]), "1");
            let woken = timeout(Duration::from_secs(2), waiter).await.expect("it is called");
            woken.unwrap().unwrap().release().await.unwrap();
        }
        assert_eq!(notices.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_user_who_may_take_no_place_gets_no_fair_lock() {
    run(async {
        for lacking in ["+exists", "+zcard", "+zrange", "+zrangebyscore", "+zrem"] {
            let server = Server::start();
            let waiting: Vec<_> = NEEDED_TO_WAIT.into_iter().filter(|it| *it != lacking).collect();
            drop(user(&server, &[&NEEDED[..], &waiting, &["~r*", "~quorlock:*"]].concat()));
            let nodes = [format!("redis://app:pw@127.0.0.1:{}", server.port())];
            let locks = Redlock::builder().nodes(nodes).build().unwrap();
            let lock = locks.lock("r").try_once();
            lock.acquire().await.expect(lacking).release().await.unwrap();
            let error = lock.fair(true).acquire().await.expect_err(lacking);
            assert_eq!(error.kind(), ErrorKind::QuorumUnreachable, "{lacking}: {error}");
            assert!(error.to_string().contains(lacking), "{lacking}: {error}");
        }
    });
}

#[test]
fn what_a_user_needs_to_wait_is_told() {
    run(async {
        let server = Server::start();
        let mut client = user(&server, &[&NEEDED[..], &["~r*", "~quorlock:*"]].concat());
        let place = Place { arrived: 1, waiter: Waiter { process: 1, number: 1 } };
        let fault = client.fault(&claim(&["r"], "a"), Action::Enqueue { place }).await;
        assert_eq!(fault.kind(), FaultKind::NotPermitted);
        for rule in NEEDED_TO_WAIT {
            assert!(fault.detail().contains(rule), "{rule}: {fault}");
        }
    });
}

#[test]
fn a_user_who_may_not_load_scripts_sends_them_whole() {
    run(async {
        let server = Server::start();
        let rules: Vec<_> = NEEDED.into_iter().filter(|it| *it != "+script|load").collect();
        let mut client = user(&server, &[&rules[..], &["~r*", "~quorlock:*"]].concat());
        whole_life(&mut client, "r").await;
        assert_eq!(server.ask().call(&["SCRIPT", "FLUSH"]), "OK");
        whole_life(&mut client, "r").await;
    });
}

#[test]
fn a_user_without_the_fence_can_lock_without_fencing() {
    run(async {
        let server = Server::start();
        let mut client = user(&server, &[&NEEDED[..], &["~r*"]].concat());
        let mine = claim(&["r", "r2"], "a");
        assert_eq!(client.grant(&mine, 60_000).await, OURS);
        let looked = client.ask(&mine, Action::Inspect).await;
        assert!(
            matches!(looked, Ok(Answer::Ours { token: None, remaining: Some(_) })),
            "{looked:?}"
        );
        let fault = client.fault(&mine, fenced(1_000, 5)).await;
        assert_eq!(fault.kind(), FaultKind::NotPermitted);
        assert!(fault.detail().contains("~quorlock:*"), "{fault}");
        // What is not granted leaves no key.
        assert_eq!(client.ask(&mine, Action::REVOKE).await, ABSENT);
        assert_eq!(client.grant(&mine, 60_000).await, OURS);
        assert_eq!(client.ask(&mine, Action::REVOKE).await, OURS);
    });
}

/// Some servers have a command of their own for what the script does.
#[test]
fn a_revoke_needs_no_more_than_the_script() {
    run(async {
        let server = Server::start();
        let rules = ["~*", "+@all", "-delifeq", "-delex"];
        // A server that does not know the commands does not know the rules.
        let known: Vec<_> =
            rules.into_iter().filter(|it| knows(&server, it.trim_start_matches('-'))).collect();
        let mut client = user(&server, &known);
        for _ in 0..2 {
            whole_life(&mut client, "r").await;
            let (mine, other) = (claim(&["r"], "a"), claim(&["r"], "b"));
            assert_eq!(client.grant(&mine, 60_000).await, OURS);
            let refused = client.ask(&other, Action::REVOKE).await;
            assert!(matches!(refused, Ok(Answer::Theirs { .. })), "{refused:?}");
            assert_eq!(client.ask(&mine, Action::REVOKE).await, OURS);
            assert_eq!(client.ask(&mine, Action::REVOKE).await, ABSENT);
        }
    });
}

fn knows(server: &Server, rule: &str) -> bool {
    !rule.starts_with("del") || server.ask().call(&["COMMAND", "INFO", rule]).contains(rule)
}

#[test]
fn missing_permissions_are_told_with_the_rule_to_add() {
    run(async {
        let server = Server::start();
        let keys = ["~r*", "~quorlock:*"];
        // A lock that is free is taken without looking at it.
        assert_eq!(server.ask().call(&["SET", "r_held", "another"]), "OK");
        for (missing, name) in [
            ("+evalsha", "r"),
            ("+set", "r"),
            ("+get", "r_held"),
            ("+time", "r"),
            ("+zadd", "r"),
            ("+zscore", "r"),
            // The table of fences would have no end.
            ("+pexpire", "r"),
            ("+pttl", "r"),
        ] {
            let rules: Vec<_> = NEEDED.into_iter().filter(|it| *it != missing).collect();
            let mut client = user(&server, &[&rules[..], &keys[..]].concat());
            // It would be left alone if it had just been told to be kept.
            server.ask().call(&["DEL", FENCES]);
            let fault = client.fault(&claim(&[name], "a"), fenced(1_000, 5)).await;
            assert_eq!(fault.kind(), FaultKind::NotPermitted, "{missing}: {fault}");
            assert!(fault.detail().contains("ACL SETUSER"), "{missing}: {fault}");
            assert!(fault.detail().contains(missing), "{missing}: {fault}");
            assert!(!fault.detail().contains("script:"), "{missing}: {fault}");
        }
        let mut client = user(&server, &[&NEEDED[..], &keys[..]].concat());
        for action in [grant(1_000), fenced(1_000, 5), extend(1_000)] {
            let fault = client.fault(&claim(&["elsewhere"], "a"), action).await;
            assert_eq!(fault.kind(), FaultKind::NotPermitted);
            assert!(fault.detail().contains("the keys of 'elsewhere'"), "{fault}");
        }
        assert_eq!(client.node.state(), NodeState::Healthy);
    });
}

#[test]
fn a_right_that_is_withdrawn_costs_no_other_lease_its_extension() {
    run(async {
        let server = Server::start();
        let mut client = user(&server, &["+@all", "~r*", "~s*"]);
        let claims = ["r", "s", "r2"].map(|name| claim(&[name], "a"));
        for claim in &claims {
            assert_eq!(client.grant(claim, 60_000).await, OURS);
        }
        assert_eq!(server.ask().call(&["ACL", "SETUSER", "app", "resetkeys", "~r*"]), "OK");
        let tickets: Vec<_> = claims.iter().map(|it| client.send(it, extend(60_000))).collect();
        let replies = client.replies_to(&tickets).await;
        assert_eq!([&replies[0].answer, &replies[2].answer], [&OURS, &OURS]);
        assert_eq!(kind(&replies[1].answer), Some(FaultKind::NotPermitted));
    });
}

/// A node that logs in as a new user with these rules.
pub(crate) fn user(server: &Server, rules: &[&str]) -> Client {
    let mut words = vec!["ACL", "SETUSER", "app", "reset", "on", ">pw"];
    words.extend(rules);
    assert_eq!(server.ask().call(&words), "OK");
    node_at(&format!("redis://app:pw@127.0.0.1:{}", server.port()))
}

/// Every action once, as it should be.
pub(crate) async fn whole_life(client: &mut Client, name: &str) {
    let mine = claim(&[name], "a");
    let plain = claim(&[name], "b");
    assert_eq!(client.grant(&plain, 60_000).await, OURS);
    assert_eq!(client.ask(&plain, Action::REVOKE).await, OURS);
    let granted = client.ask(&mine, fenced(60_000, 5)).await;
    assert!(matches!(granted, Ok(Answer::Ours { token: Some(_), .. })), "{granted:?}");
    assert_eq!(client.ask(&mine, extend(60_000)).await, OURS);
    let raised = client.ask(&mine, raise(9)).await;
    assert!(matches!(raised, Ok(Answer::Ours { token: Some(_), .. })), "{raised:?}");
    let looked = client.ask(&mine, Action::Inspect).await;
    assert!(matches!(looked, Ok(Answer::Ours { token: Some(_), .. })), "{looked:?}");
    assert_eq!(client.ask(&mine, Action::REVOKE).await, OURS);
    // So that the next one begins anew.
    assert_eq!(client.ask(&mine, Action::Inspect).await, ABSENT);
}
