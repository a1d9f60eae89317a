//! Tests connections that are lost with commands in flight: which commands are sent again, and in
//! which order.

use std::time::Duration;

use quorlock::{NodeState, boot_clock};
use quorlock_protocol::{Action, Answer, FaultKind};

use crate::support::ask::Ask;
use crate::support::proxy::Proxy;
use crate::support::server::Server;
use crate::support::*;

#[test]
fn a_lost_reply_does_not_refuse_the_grant() {
    for action in [grant(60_000), fenced(60_000, 5)] {
        run(async {
            let server = Server::start();
            let proxy = Proxy::to(server.port()).await;
            let mut client = node_at(&proxy.url());
            let warm = client.ask(&claim(&["warm"], "a"), action).await;
            assert!(matches!(warm, Ok(Answer::Ours { .. })), "{warm:?}");
            proxy.lose_replies();
            let ticket = client.send(&claim(&["r"], "a"), action);
            let mut ask = server.ask();
            eventually("the key", || ask.call(&["EXISTS", "r"]) == "1").await;
            proxy.cut();
            let reply = client.replies_to(&[ticket]).await.remove(0);
            assert!(matches!(reply.answer, Ok(Answer::Ours { .. })), "{:?}", reply.answer);
            assert!(reply.repeated);
            assert_eq!(client.node.state(), NodeState::Healthy);
            let reply = client.send(&claim(&["r"], "a"), Action::REVOKE);
            assert!(!client.replies_to(&[reply]).await[0].repeated);
        });
    }
}

#[test]
fn lost_commands_go_out_again_in_their_order() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let mut client = node_at(&proxy.url());
        client.node.settled().await;
        proxy.stall();
        let (mine, next) = (claim(&["r"], "a"), claim(&["r"], "b"));
        let tickets = [
            client.send(&mine, grant(60_000)),
            client.send(&mine, extend(60_000)),
            client.send(&mine, Action::REVOKE),
            client.send(&next, fenced(60_000, 5)),
            client.send(&mine, extend(60_000)),
            client.send(&next, Action::REVOKE),
        ];
        tokio::task::yield_now().await;
        proxy.cut();
        let replies = client.replies_to(&tickets).await;
        assert_eq!(replies[0].answer, OURS);
        assert_eq!(replies[1].answer, OURS);
        assert_eq!(replies[2].answer, OURS);
        token(&replies[3].answer);
        assert!(is_theirs(&replies[4].answer));
        assert_eq!(replies[5].answer, OURS);
        assert_eq!(server.ask().call(&["EXISTS", "r"]), "0");
    });
}

#[test]
fn a_lost_command_that_is_too_late_is_not_repeated() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let mut client = node_at(&proxy.url());
        client.node.settled().await;
        proxy.stall();
        let not_after = boot_clock() + Duration::from_millis(100);
        let mine = claim(&["r"], "a");
        let late = client.send_until(&mine, grant(60_000), not_after);
        let revoke = client.send(&mine, Action::REVOKE);
        eventually("the deadline", || boot_clock() > not_after).await;
        proxy.cut();
        let replies = client.replies_to(&[late, revoke]).await;
        assert_eq!(kind(&replies[0].answer), Some(FaultKind::Broken));
        assert_eq!(replies[1].answer, ABSENT);
        assert!(replies[1].repeated);
        assert_eq!(server.ask().call(&["EXISTS", "r"]), "0");
    });
}

#[test]
fn a_command_goes_out_twice_at_most() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let mut client = node_at(&proxy.url());
        let (mine, other) = (claim(&["r"], "a"), claim(&["s"], "a"));
        assert_eq!(client.grant(&mine, 30_000).await, OURS);
        let mut ask = server.ask();
        let script = "cmdstat_pexpire:calls=";
        proxy.lose_replies();
        let twice = client.send(&mine, extend(60_000));
        eventually("the first", || ask.call(&["INFO", "commandstats"]).contains(script)).await;
        // The second connection stalls as soon as it is used.
        proxy.stall_when_used();
        proxy.cut();
        eventually("the second connection", || proxy.has_stalled()).await;
        let once = client.send(&other, extend(60_000));
        tokio::task::yield_now().await;
        proxy.cut();
        let replies = client.replies_to(&[twice, once]).await;
        assert_eq!(kind(&replies[0].answer), Some(FaultKind::Broken));
        assert_eq!((&replies[1].answer, replies[1].repeated), (&ABSENT, true));
    });
}

#[test]
fn late_copies_of_lost_commands_are_not_done() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let mut client = node_at(&proxy.url());
        client.node.settled().await;
        // The grant lies somewhere between here and the server when the connection breaks.
        proxy.hold();
        let mine = claim(&["r"], "a");
        let lost = client.send(&mine, fenced(60_000, 5));
        tokio::task::yield_now().await;
        proxy.cut();
        let reply = client.replies_to(&[lost]).await.remove(0);
        token(&reply.answer);
        assert!(reply.repeated);
        assert_eq!(client.ask(&mine, Action::REVOKE).await, OURS);
        // It arrives after all, when the second copy has been revoked.
        proxy.release();
        assert_never(&mut server.ask(), "r").await;
    });
}

#[test]
fn forgotten_scripts_are_loaded_again_unseen() {
    run(async {
        let server = Server::start();
        let mut client = node_at(&server.url());
        let mine = claim(&["r"], "a");
        token(&client.ask(&mine, fenced(60_000, 5)).await);
        for round in 0..3 {
            assert_eq!(server.ask().call(&["SCRIPT", "FLUSH"]), "OK");
            let (one, two) = (claim(&["one"], "x"), claim(&["two"], "y"));
            let tickets = [
                client.send(&mine, extend(60_000)),
                client.send(&one, fenced(60_000, 1)),
                client.send(&two, grant(60_000)),
                client.send(&one, Action::REVOKE),
                client.send(&two, Action::REVOKE),
                client.send(&mine, Action::Inspect),
            ];
            for (number, reply) in client.replies_in_any_order(&tickets).await.iter().enumerate() {
                assert!(matches!(reply.answer, Ok(Answer::Ours { .. })), "{round}, {number}");
                assert!(!reply.repeated, "a call that failed had no effect");
            }
            assert_eq!(server.ask().call(&["EXISTS", "one", "two", "r"]), "1");
        }
        let digests = server.ask().call(&["INFO", "memory"]);
        assert!(
            digests.contains("number_of_cached_scripts:7"),
            "by digest from now on:\n{digests}"
        );
    });
}

#[test]
fn a_revoke_that_was_done_is_not_followed_by_its_grant() {
    run(async {
        let server = Server::start();
        let mut client = node_at(&server.url());
        client.node.settled().await;
        let mut ask = server.ask();
        // Another process has loaded the one script, but not yet the other.
        assert_eq!(ask.call(&["SCRIPT", "FLUSH"]), "OK");
        ask.call(&["SCRIPT", "LOAD", include_str!("../../src/scripts/revoke.lua")]);
        let (mine, other) = (claim(&["r"], "a"), claim(&["s"], "b"));
        let tickets = [
            client.send(&mine, fenced(60_000, 5)),
            client.send(&other, fenced(60_000, 5)),
            client.send(&mine, Action::REVOKE),
        ];
        let replies = client.replies_in_any_order(&tickets).await;
        match &replies[0].answer {
            // Where the server deletes by itself, the revoke has found nothing and came again, behind.
            Ok(_) => assert_eq!(replies[2].answer, OURS),
            Err(fault) => {
                assert_eq!(fault.kind(), FaultKind::NotSent);
                assert_eq!(replies[2].answer, ABSENT);
            }
        }
        token(&replies[1].answer);
        assert_eq!(ask.call(&["EXISTS", "r", "s"]), "1");
    });
}

/// There is nothing to wait for that would show that a key will not come; it would come within this.
pub(crate) async fn assert_never(ask: &mut Ask, key: &str) {
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(ask.call(&["EXISTS", key]), "0", "a first copy was done late");
    }
}
