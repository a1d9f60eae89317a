//! Tests servers that hang, send nothing, or are not Redis.

use std::time::{Duration, Instant};

use quorlock::{NodeSettings, NodeState, ServerConnection};
use quorlock_protocol::{Action, Answer, Fault, FaultKind};

use crate::is_healthy;
use crate::lost::assert_never;
use crate::support::proxy::{Proxy, babbler, greeter};
use crate::support::server::Server;
use crate::support::*;

#[test]
fn a_hung_server_gets_no_grants_but_its_revokes_in_order() {
    run(async {
        let server = Server::start();
        let mut client = node_at(&server.url());
        let held = claim(&["held"], "a");
        assert_eq!(client.grant(&held, 60_000).await, OURS);
        server.pause();
        // These lie in the socket of the hung server, and will be done when it goes on.
        let ghosts: Vec<_> = (0..50).map(|n| claim(&[&format!("ghost {n}")], "a")).collect();
        let mut tickets = Vec::new();
        for (number, ghost) in ghosts.iter().enumerate() {
            let action = if number % 2 == 0 { grant(60_000) } else { fenced(60_000, 5) };
            tickets.push(client.send(ghost, action));
        }
        client.until(|state| *state == NodeState::Unresponsive).await;
        for action in [grant(1_000), fenced(1_000, 1), extend(1_000), raise(5), Action::Inspect] {
            let fault = client.fault(&claim(&["more"], "a"), action).await;
            assert_eq!(fault.kind(), FaultKind::NotSent);
            assert_eq!(fault.detail(), "the node is connected, but does not answer");
        }
        tickets.extend(ghosts.iter().map(|ghost| client.send(ghost, Action::REVOKE)));
        // Long enough for several tries with a second connection, none of which may take over.
        assert!(client.reply_within(Duration::from_millis(700)).await.is_none());
        server.resume();
        let replies = client.replies_to(&tickets).await;
        for (number, reply) in replies.iter().enumerate() {
            assert!(matches!(reply.answer, Ok(Answer::Ours { .. })), "{number}: {reply:?}");
            assert!(!reply.repeated);
        }
        assert_eq!(client.node.state(), NodeState::Healthy);
        assert_eq!(client.ask(&held, extend(60_000)).await, OURS);
        let mut ask = server.ask();
        assert_eq!(ask.call(&["KEYS", "ghost*"]), "");
        assert_eq!(ask.call(&["KEYS", "more"]), "");
    });
}

#[test]
fn a_hung_server_is_noticed_in_time_and_not_too_early() {
    run(async {
        let server = Server::start();
        let mut client = node_at(&server.url());
        let mine = claim(&["r"], "a");
        assert_eq!(client.grant(&mine, 60_000).await, OURS);
        let mut noticed = Duration::MAX;
        // Several chances, for a machine that does other things meanwhile.
        for _ in 0..5 {
            server.pause();
            let since = Instant::now();
            let extended = client.send(&mine, extend(60_000));
            client.until(|state| *state == NodeState::Unresponsive).await;
            noticed = noticed.min(since.elapsed());
            server.resume();
            assert_eq!(client.replies_to(&[extended]).await[0].answer, OURS);
            client.until(is_healthy).await;
            assert!(noticed > Duration::from_millis(240), "after {noticed:?}");
            if noticed < Duration::from_secs(1) {
                return;
            }
        }
        panic!("after {noticed:?}");
    });
}

#[test]
fn a_dead_connection_is_replaced_if_the_server_answers_anew() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let mut client = node_at(&proxy.url());
        let held = claim(&["held"], "a");
        assert_eq!(client.grant(&held, 60_000).await, OURS);
        proxy.hold();
        let mine = claim(&["r"], "a");
        let lost = client.send(&mine, fenced(60_000, 5));
        client.until(|state| *state == NodeState::Unresponsive).await;
        let revoke = client.send(&held, Action::REVOKE);
        let replies = client.replies_to(&[lost, revoke]).await;
        token(&replies[0].answer);
        assert!(replies[0].repeated);
        assert_eq!((&replies[1].answer, replies[1].repeated), (&OURS, true));
        assert_eq!(client.node.state(), NodeState::Healthy);
        assert_eq!(client.ask(&mine, Action::REVOKE).await, OURS);
        // What still lies on the dead one is not done: it was ended on the server, too.
        proxy.release();
        assert_never(&mut server.ask(), "r").await;
    });
}

#[test]
fn garbage_is_told_and_the_connection_replaced() {
    for garbage in [
        &b"+HELLO\r\n"[..],
        b":1\r\n",
        b"*1\r\n:9\r\n",
        b"*2\r\n:1\r\n:1\r\n",
        b"*4\r\n:9\r\n:0\r\n:0\r\n:0\r\n",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"*4\r\n:1\r\n:-1\r\n:0\r\n:0\r\n",
        b"\0\xff\xfe",
    ] {
        run(async {
            let server = Server::start();
            let proxy = Proxy::to(server.port()).await;
            let mut client = node_at(&proxy.url());
            let mine = claim(&["r"], "a");
            token(&client.ask(&mine, fenced(60_000, 5)).await);
            proxy.replace_next_reply(garbage);
            let answer = client.ask(&mine, extend(60_000)).await;
            // Bytes that are no reply at all may belong to any: the command goes out again.
            assert!(answer == OURS || kind(&answer) == Some(FaultKind::Garbled), "{answer:?}");
            eventually("a new connection", || proxy.accepted() == 2).await;
            assert_eq!(client.ask(&mine, Action::REVOKE).await, OURS);
        });
    }
}

#[test]
fn a_server_that_is_no_redis_is_reported() {
    for (words, part) in [
        (&b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"[..], "not Redis's protocol"),
        (b"+OK\r\n", "not Redis's protocol"),
        (b"*-1\r\n", "not Redis's protocol"),
        (b"$-1\r\n", "not Redis's protocol"),
        (b"*1\r\n$-1\r\n", "not Redis's protocol"),
        (b"-ERR max number of clients reached\r\n", "max number of clients"),
        (b"-DENIED Redis is running in protected mode\r\n", "protected mode"),
        (b"*1\r\n$8\r\nsentinel\r\n", "Sentinel"),
        (b"-\x1b[31mred\r\n", "[31mred"),
        // Announced lengths that would fill the memory of a client which waits for the end.
        (
            b"$1000000000\r\nxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
            "not Redis's",
        ),
        (b"*1000000000\r\n*1000000000\r\n", "not Redis's"),
        (b"*9223372036854775807\r\n", "not Redis's"),
        (b"$9223372036854775807\r\n", "not Redis's"),
    ] {
        run(async {
            let mut client = node_with(&babbler(words).await, patient());
            client.node.settled().await;
            let shown = String::from_utf8_lossy(words);
            let NodeState::Down(fault) = client.node.state() else { panic!("up with {shown:?}") };
            assert!(fault.detail().contains(part), "{shown:?}: {fault}");
            assert!(!fault.detail().contains('\x1b'), "{fault}");
            let fault = client.fault(&claim(&["r"], "a"), grant(1_000)).await;
            assert!(!fault.kind().may_have_acted(), "{shown:?}: {fault:?}");
        });
    }
}

#[test]
fn a_server_that_speaks_first_is_heard() {
    for (words, part) in [
        (&b"220 mail.example ESMTP\r\n"[..], "not Redis's protocol"),
        (b"+OK POP3 ready\r\n", "not Redis's protocol"),
        (b"-ERR max number of clients reached\r\n", "max number of clients reached"),
    ] {
        for hangs_up in [false, true] {
            run(async {
                let client = node_with(&greeter(words, hangs_up).await, patient());
                client.node.settled().await;
                let NodeState::Down(fault) = client.node.state() else { panic!("up") };
                assert!(fault.detail().contains(part), "{hangs_up}: {fault}");
            });
        }
    }
}

#[test]
fn a_server_that_refuses_the_connection_says_why_to_tools() {
    for (words, kind) in [
        (&b"-ERR max number of clients reached\r\n"[..], FaultKind::TooManyClients),
        (b"-DENIED Redis is running in protected mode\r\n", FaultKind::NotPermitted),
    ] {
        run(async {
            let address = greeter(words, true).await.parse().unwrap();
            let mut connection = ServerConnection::open(&address).await.unwrap();
            let fault = connection.ask_all(&[&["INFO"], &["TIME"]]).await.unwrap_err();
            assert_eq!(fault.kind(), kind, "{fault}");
        });
    }
}

#[test]
fn words_that_nobody_asked_for_end_the_connection() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let mut client = node_at(&proxy.url());
        let mine = claim(&["r"], "a");
        assert_eq!(client.grant(&mine, 60_000).await, OURS);
        // It would be taken for the reply to the next command.
        proxy.interject(b"*4\r\n:1\r\n:0\r\n:0\r\n:0\r\n");
        eventually("a new connection", || proxy.accepted() == 2).await;
        assert!(is_theirs(&client.ask(&claim(&["r"], "b"), fenced(1_000, 5)).await));
    });
}

#[test]
fn a_silent_server_is_down_after_the_connect_timeout() {
    run(async {
        let connect_timeout = Duration::from_millis(100);
        let settings = NodeSettings { connect_timeout, ..NodeSettings::default() };
        let mut client = node_with(&babbler(b"").await, settings);
        let since = Instant::now();
        client.node.settled().await;
        assert!(since.elapsed() >= connect_timeout);
        let fault = client.fault(&claim(&["r"], "a"), grant(1_000)).await;
        assert_eq!(
            fault,
            Fault::new(FaultKind::NotSent, "cannot connect: no answer within 100 ms")
        );
    });
}
