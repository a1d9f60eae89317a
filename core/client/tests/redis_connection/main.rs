//! Tests a Redis node whose connection or server fails: order, repetition, hanging, recovery.

mod lost;
mod odd_servers;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use futures::FutureExt as _;
use quorlock::{NodeState, boot_clock};
use quorlock_protocol::{Action, Fault, FaultKind};
use support::proxy::Proxy;
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
        let fault = client.fault(&mine, Action::REVOKE).await;
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
fn commands_wait_for_the_first_connection_while_in_time() {
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
        // The tries within a fixed time are what is counted.
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
        let fault = client.fault(&claim(&["r"], "a"), Action::REVOKE).await;
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
