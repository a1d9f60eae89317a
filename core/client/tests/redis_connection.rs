//! What a Redis node does when its connection or its server fails: order, repetition, hanging, recovery.

mod support;

use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use quorlock::{NodeSettings, NodeState, boot_clock};
use quorlock_protocol::{Action, Answer, Fault, FaultKind};
use support::ask::Ask;
use support::proxy::{Proxy, babbler, greeter};
use support::server::Server;
use support::*;

#[test]
fn a_restarted_server_takes_part_again_without_help() {
    run(async {
        let mut server = Server::start();
        let mut client = node_at(&server.url());
        let mine = claim(&["r"], "a");
        assert_eq!(client.grant(&mine, 60_000).await, OURS);
        server.kill();
        client.until(|state| matches!(state, NodeState::Down(_))).await;
        let fault = client.fault(&mine, Action::Revoke).await;
        assert_eq!(fault.kind(), FaultKind::NotSent);
        assert_eq!(fault.detail(), "cannot connect: connection refused: is the server running?");
        server.restart();
        client.until(is_healthy).await;
        token(&client.ask(&mine, fenced(60_000, 5)).await);
    });
}

#[test]
fn a_node_that_is_down_costs_nothing() {
    run(async {
        let mut server = Server::start();
        server.kill();
        let mut client = node_at(&server.url());
        client.node.settled().await;
        assert!(matches!(client.node.state(), NodeState::Down(_)));
        // Answered inside the call, not by the node's task.
        client.send(&claim(&["r"], "a"), grant(1_000));
        let reply = client.reply().now_or_never().expect("an answer at once");
        assert_eq!(kind(&reply.answer), Some(FaultKind::NotSent));
        server.restart();
        client.until(is_healthy).await;
        assert_eq!(client.grant(&claim(&["r"], "a"), 1_000).await, OURS);
    });
}

#[test]
fn commands_wait_for_the_first_connection_until_they_are_too_late() {
    run(async {
        let server = Server::start();
        server.pause();
        let mut client = node_with(&server.url(), patient());
        let (late, early) = (claim(&["late"], "a"), claim(&["early"], "a"));
        let not_after = boot_clock() + Duration::from_millis(50);
        let first = client.send_until(&late, grant(60_000), not_after);
        let second = client.send(&early, grant(60_000));
        assert_eq!(client.node.state(), NodeState::Connecting);
        eventually("the deadline", || boot_clock() > not_after).await;
        server.resume();
        let replies = client.replies_to(&[first, second]).await;
        assert_eq!(kind(&replies[0].answer), Some(FaultKind::NotSent));
        assert_eq!(replies[1].answer, OURS);
        assert_eq!(server.ask().call(&["EXISTS", "late"]), "0");
    });
}

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
            let reply = client.send(&claim(&["r"], "a"), Action::Revoke);
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
            client.send(&mine, Action::Revoke),
            client.send(&next, fenced(60_000, 5)),
            client.send(&mine, extend(60_000)),
            client.send(&next, Action::Revoke),
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
        let revoke = client.send(&mine, Action::Revoke);
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
        assert_eq!(client.grant(&mine, 60_000).await, OURS);
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
        assert_eq!(client.ask(&mine, Action::Revoke).await, OURS);
        // It arrives after all, when the second copy has been revoked.
        proxy.release();
        assert_never(&mut server.ask(), "r").await;
    });
}

#[test]
fn a_server_that_breaks_every_connection_counts_as_down() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let mut client = node_at(&proxy.url());
        client.node.settled().await;
        proxy.refuse(true);
        proxy.cut();
        client.until(|state| matches!(state, NodeState::Down(_))).await;
        let fault = client.fault(&claim(&["r"], "a"), grant(1_000)).await;
        assert_eq!(fault.kind(), FaultKind::NotSent);
        proxy.refuse(false);
        client.until(is_healthy).await;
        assert_eq!(client.grant(&claim(&["r"], "a"), 1_000).await, OURS);
    });
}

#[test]
fn a_server_that_ends_every_connection_is_not_stormed() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        proxy.close_idle(true);
        let mut client = node_at(&proxy.url());
        client.node.settled().await;
        client.until(|state| matches!(state, NodeState::Down(_))).await;
        let before = proxy.accepted();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let tries = proxy.accepted() - before;
        assert!(tries < 25, "{tries} connections in half a second");
        // The last of those connections may still be ending.
        proxy.close_idle(false);
        while client.grant(&claim(&["r"], "a"), 60_000).await != OURS {
            client.until(is_healthy).await;
        }
    });
}

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
        tickets.extend(ghosts.iter().map(|ghost| client.send(ghost, Action::Revoke)));
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
fn a_dead_connection_is_replaced_while_the_server_answers_on_a_new_one() {
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
        let revoke = client.send(&held, Action::Revoke);
        let replies = client.replies_to(&[lost, revoke]).await;
        token(&replies[0].answer);
        assert!(replies[0].repeated);
        assert_eq!((&replies[1].answer, replies[1].repeated), (&OURS, true));
        assert_eq!(client.node.state(), NodeState::Healthy);
        assert_eq!(client.ask(&mine, Action::Revoke).await, OURS);
        // What still lies on the dead one is not done: it was ended on the server, too.
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
                client.send(&one, Action::Revoke),
                client.send(&two, Action::Revoke),
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
            digests.contains("number_of_cached_scripts:5"),
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
        ask.call(&["SCRIPT", "LOAD", include_str!("../src/scripts/revoke.lua")]);
        let (mine, other) = (claim(&["r"], "a"), claim(&["s"], "b"));
        let tickets = [
            client.send(&mine, fenced(60_000, 5)),
            client.send(&other, fenced(60_000, 5)),
            client.send(&mine, Action::Revoke),
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

#[test]
fn extensions_that_wait_go_out_as_one_call() {
    run(async {
        let server = Server::start();
        let mut client = node_at(&server.url());
        let claims: Vec<_> = (0..300).map(|n| claim(&[&format!("r{n}")], "a")).collect();
        let mut ask = server.ask();
        client.node.settled().await;
        assert_eq!(ask.call(&["CONFIG", "RESETSTAT"]), "OK");
        let tickets: Vec<_> = claims.iter().map(|it| client.send(it, extend(1_000))).collect();
        client.replies_to(&tickets).await;
        let statistics = ask.call(&["INFO", "commandstats"]);
        assert!(statistics.contains("cmdstat_evalsha:calls=2,"), "{statistics}");
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
            assert_eq!(client.ask(&mine, Action::Revoke).await, OURS);
        });
    }
}

#[test]
fn whoever_is_no_redis_is_told() {
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
        // Promises that would fill the memory of whoever waits for their end.
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
fn whoever_speaks_first_is_heard() {
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
fn a_server_that_says_nothing_is_down_after_the_time_for_connecting() {
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

#[test]
fn an_unknown_host_is_told() {
    run(async {
        let client = node_at("redis://no-such-host.invalid");
        client.node.settled().await;
        let NodeState::Down(fault) = client.node.state() else { panic!("up") };
        assert!(fault.detail().starts_with("cannot connect: "), "{fault}");
    });
}

#[test]
fn a_closed_node_refuses_and_lets_go_of_its_connection() {
    run(async {
        let server = Server::start();
        let mut client = node_at(&server.url());
        assert_eq!(client.grant(&claim(&["r"], "a"), 60_000).await, OURS);
        client.node.close();
        client.until(|state| matches!(state, NodeState::Down(_))).await;
        let fault = client.fault(&claim(&["r"], "a"), Action::Revoke).await;
        assert_eq!(fault, Fault::new(FaultKind::NotSent, "the lock manager was closed"));
        let mut ask = server.ask();
        eventually("no connection", || !ask.call(&["CLIENT", "LIST"]).contains("addr=127.0.0.1:"))
            .await;
    });
}

#[test]
fn a_node_that_is_dropped_lets_go_of_its_connection() {
    run(async {
        let server = Server::start();
        let mut client = node_at(&server.url());
        assert_eq!(client.grant(&claim(&["r"], "a"), 60_000).await, OURS);
        drop(client);
        let mut ask = server.ask();
        eventually("no connection", || !ask.call(&["CLIENT", "LIST"]).contains("addr=127.0.0.1:"))
            .await;
    });
}

fn is_healthy(state: &NodeState) -> bool {
    *state == NodeState::Healthy
}

/// There is nothing to wait for that would show that a key will not come; it would come within this.
async fn assert_never(ask: &mut Ask, key: &str) {
    for _ in 0..50 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(ask.call(&["EXISTS", key]), "0", "a first copy was done late");
    }
}
