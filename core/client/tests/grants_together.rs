//! Tests first grants that share a batch of the server's own commands: each lease is granted or
//! refused as if it were asked for alone.

mod support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use quorlock::{NodeState, Policy, Redlock};
use quorlock_protocol::{Action, Answer, Fault, FaultKind, Frees, Vote};
use support::proxy::Proxy;
use support::server::Server;
use support::*;

/// Acquisitions that begin at once over one node: each has its own replies, as it has its own tickets.
struct Clients(Vec<Client>);

impl Clients {
    async fn at(address: &str, count: usize) -> Self {
        let mut first = node_at(address);
        // Who proposes tokens must know the node's clock.
        let warm_up = claim(&["r warm-up"], "x");
        first.ask(&warm_up, fenced(10_000, 1)).await.expect("a grant");
        assert_eq!(first.ask(&warm_up, Action::REVOKE).await, OURS);
        Self((0..count).map(|_| Client::new(Arc::clone(&first.node))).collect())
    }

    /// The answers to one command of each, which are all handed over before one is looked at.
    async fn ask(&mut self, asked: &[(&str, &str, Action)]) -> Vec<Result<Answer, Fault>> {
        assert_eq!(self.0.len(), asked.len());
        for (client, (name, holder, action)) in self.0.iter().zip(asked) {
            client.send(&claim(&[name], holder), *action);
        }
        let mut answers = Vec::new();
        for client in &mut self.0 {
            answers.push(client.reply().await.answer);
        }
        answers
    }
}

/// How often the server was asked for `command`.
fn calls_of(command: &str, server: &Server) -> String {
    let statistics = server.ask().call(&["INFO", "commandstats"]);
    let is_its = |line: &&str| line.starts_with(&format!("cmdstat_{command}:"));
    let line = statistics.lines().find(is_its);
    let calls = line.and_then(|line| line.split([':', ',']).nth(1));
    calls.unwrap_or("none").to_owned()
}

#[test]
fn they_are_granted_with_their_own_tokens_and_terms() {
    run(async {
        let server = Server::start();
        let names: Vec<String> = (0..100).map(|n| format!("r{n}")).collect();
        let mut clients = Clients::at(&server.url(), names.len()).await;
        let mut ask = server.ask();
        assert_eq!(ask.call(&["CONFIG", "RESETSTAT"]), "OK");
        let wall = wall();
        let asked: Vec<_> = (100_000..)
            .zip(&names)
            .map(|(millis, name)| (name.as_str(), "a", proposing(millis, wall + millis)))
            .collect();
        let answers = clients.ask(&asked).await;
        assert_eq!(calls_of("evalsha", &server), "none");
        assert_eq!(calls_of("pexpire", &server), "none");
        assert_eq!(calls_of("time", &server), "calls=4", "for 32 at once, and for the rest");
        for ((millis, name), answer) in (100_000..).zip(&names).zip(answers) {
            assert_eq!(answer, ours_with(wall + millis));
            assert_eq!(ask.call(&["GET", name]), "a");
            assert_eq!(fence(&server, name), (wall + millis).to_string());
            let left = ask.number(&["PTTL", name]);
            let most = i64::try_from(millis).expect("a short time");
            assert!((most - 20_000..=most).contains(&left), "{name}: {left} of {millis}");
        }
    });
}

#[test]
fn a_refused_caller_gets_the_reason_and_no_other_is_affected() {
    run(async {
        let server = Server::start();
        let mut ask = server.ask();
        let far = wall() + 3_600_000_000;
        for words in [
            &["SET", "held", "b", "PX", "60000"][..],
            &["SET", "for ever", "b"],
            &["SET", "mine", "a", "PX", "60000"],
            &["RPUSH", "list", "x"],
            &["ZADD", FENCES, &far.to_string(), &bucket("far").to_string()],
        ] {
            ask.call(words);
        }
        let names = ["free", "held", "for ever", "mine", "list", "far", "twice", "twice", "last"];
        let holders = ["a", "a", "a", "a", "a", "a", "first", "second", "a"];
        let asked: Vec<_> = names
            .iter()
            .zip(holders)
            .map(|(name, holder)| (*name, holder, fenced(60_000, 7)))
            .collect();
        let answers = Clients::at(&server.url(), names.len()).await.ask(&asked).await;
        token(&answers[0]);
        assert!(
            matches!(answers[1], Ok(Answer::Theirs { frees: Frees::In(_), .. })),
            "{answers:?}"
        );
        assert!(
            matches!(answers[2], Ok(Answer::Theirs { frees: Frees::Never, .. })),
            "{answers:?}"
        );
        token(&answers[3]);
        assert_eq!(kind(&answers[4]), Some(FaultKind::WrongType));
        assert_eq!(answers[5], ours_with(far + 1), "above what was granted before");
        token(&answers[6]);
        assert!(is_theirs(&answers[7]), "{answers:?}");
        token(&answers[8]);
    });
}

#[test]
fn no_lock_is_left_without_its_fence() {
    run(async {
        let server = Server::start();
        let mut clients = Clients::at(&server.url(), 1).await;
        let mut ask = server.ask();
        assert_eq!(ask.call(&["DEL", FENCES]), "1");
        assert_eq!(ask.call(&["RPUSH", FENCES, "x"]), "1");
        let answers = clients.ask(&[("fenced off", "a", fenced(60_000, 7))]).await;
        assert_eq!(kind(&answers[0]), Some(FaultKind::WrongType));
        assert_eq!(ask.call(&["EXISTS", "fenced off"]), "0");
    });
}

#[test]
fn a_proposal_far_ahead_is_clamped_for_itself_alone() {
    run(async {
        let server = Server::start();
        let far = 1 << 52;
        let asked = [("near", "a", fenced(60_000, 7)), ("far", "a", proposing(60_000, far))];
        let answers = Clients::at(&server.url(), 2).await.ask(&asked).await;
        token(&answers[0]);
        assert!(
            matches!(&answers[1], Ok(Answer::Ours { token: Some(token), .. }) if token.0 < far),
            "{answers:?}"
        );
        let Ok(Answer::Ours { token: Some(token), .. }) = &answers[1] else { unreachable!() };
        assert_eq!(fence(&server, "far"), token.0.to_string());
    });
}

/// Clients of a node where 'before' holds 'r'.
async fn clients_after_another(server: &Server, count: usize) -> Vec<Client> {
    assert_eq!(server.ask().call(&["SET", "r", "before", "PX", "60000"]), "OK");
    Clients::at(&server.url(), count).await.0
}

/// A refused one is asked for again; its revoke, which is out already, must not be overtaken by that.
#[test]
fn a_grant_does_not_follow_its_revoke() {
    run(async {
        let server = Server::start();
        let mut clients = clients_after_another(&server, 4).await;
        let (mine, other) = (claim(&["r"], "mine"), claim(&["s"], "other"));
        clients[0].send(&mine, fenced(60_000, 5));
        clients[1].send(&other, fenced(60_000, 5));
        clients[2].send(&mine, Action::REVOKE);
        clients[3].send(&claim(&["r"], "before"), Action::REVOKE);
        let fault = clients[0].reply().await.answer.expect_err("it was revoked");
        assert_eq!(fault.kind(), FaultKind::NotSent);
        token(&clients[1].reply().await.answer);
        assert!(!matches!(clients[2].reply().await.answer, Ok(Answer::Ours { .. })));
        assert_eq!(clients[3].reply().await.answer, OURS);
        clients[1].ask(&other, Action::Inspect).await.expect("an answer behind all others");
        assert_eq!(server.ask().call(&["EXISTS", "r"]), "0", "nobody would delete it");
    });
}

/// Nor what prolongs a lease that others have won: its key would be made behind the answer, for too long.
#[test]
fn a_grant_does_not_follow_an_extension_either() {
    run(async {
        let server = Server::start();
        let mut clients = clients_after_another(&server, 3).await;
        let mine = claim(&["r"], "mine");
        clients[0].send(&mine, fenced(60_000, 5));
        clients[1].send(&mine, extend(1_000));
        clients[2].send(&claim(&["r"], "before"), Action::REVOKE);
        assert!(clients[0].reply().await.answer.is_err());
        assert!(is_theirs(&clients[1].reply().await.answer));
        assert_eq!(clients[2].reply().await.answer, OURS);
        clients[1].ask(&mine, Action::Inspect).await.expect("an answer behind all others");
        assert_eq!(server.ask().call(&["EXISTS", "r"]), "0", "nobody would delete it");
    });
}

#[test]
fn a_revoke_in_the_same_turn_comes_behind_its_grant() {
    run(async {
        let server = Server::start();
        let mut clients = Clients::at(&server.url(), 3).await.0;
        let (mine, other) = (claim(&["r"], "mine"), claim(&["s"], "other"));
        clients[0].send(&mine, fenced(60_000, 5));
        clients[1].send(&other, fenced(60_000, 5));
        clients[2].send(&mine, Action::REVOKE);
        token(&clients[0].reply().await.answer);
        token(&clients[1].reply().await.answer);
        assert_eq!(clients[2].reply().await.answer, OURS);
        assert_eq!(server.ask().call(&["EXISTS", "r", "s"]), "1");
    });
}

#[test]
fn forgotten_scripts_and_lost_replies_change_nothing() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let mut clients = Clients::at(&proxy.url(), 3).await;
        // A refused grant is asked for again by script.
        assert_eq!(server.ask().call(&["SET", "b", "another", "PX", "60000"]), "OK");
        assert_eq!(server.ask().call(&["SCRIPT", "FLUSH"]), "OK");
        let asked = ["a", "b", "c"].map(|name| (name, "holder", fenced(60_000, 5)));
        let answers = clients.ask(&asked).await;
        token(&answers[0]);
        token(&answers[2]);
        assert!(matches!(answers[1], Ok(Answer::Theirs { frees: Frees::In(_), .. })));

        let mut clients = Clients::at(&proxy.url(), 3).await.0;
        proxy.lose_replies();
        let claims = ["d", "e", "f"].map(|name| claim(&[name], "holder"));
        for (client, claim) in clients.iter().zip(&claims) {
            client.send(claim, fenced(60_000, 5));
        }
        let mut ask = server.ask();
        eventually("the grants", || ask.call(&["EXISTS", "d", "e", "f"]) == "3").await;
        proxy.cut();
        for client in &mut clients {
            let reply = client.reply().await;
            token(&reply.answer);
            assert!(reply.repeated);
        }
    });
}

/// The server does what it has read of the commands; the rest never comes.
#[test]
fn a_connection_lost_during_a_grant_leaves_nothing_half_done() {
    run(async {
        let server = Server::start();
        let proxy = Proxy::to(server.port()).await;
        let mut ask = server.ask();
        let mut replies = BTreeSet::new();
        for bytes in (0..320).step_by(13) {
            let name = format!("r{bytes}");
            let mut client = Clients::at(&proxy.url(), 1).await.0.remove(0);
            proxy.cut_after(bytes);
            let proposal = wall() + 900_000;
            let answer = client.ask(&claim(&[&name], "a"), proposing(60_000, proposal)).await;
            assert_eq!(ask.call(&["GET", &name]), "a");
            assert_eq!(fence(&server, &name), token(&answer).to_string());
            assert!(ask.number(&["PTTL", FENCES]) > 50_000, "after {bytes} bytes");
            // As it was asked for, or one more than that: half of it had been done.
            replies.insert(token(&answer) - proposal);
            proxy.cut_after(usize::MAX);
        }
        assert!(replies.contains(&0) && replies.contains(&1), "{replies:?}");
    });
}

#[test]
fn a_user_who_may_not_lock_one_of_them_locks_the_others() {
    run(async {
        let server = Server::start();
        let rules = ["ACL", "SETUSER", "app", "reset", "on", ">pw", "+@all", "~r*", "~quorlock:*"];
        assert_eq!(server.ask().call(&rules), "OK");
        let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
        let asked = ["r1", "elsewhere", "r2"].map(|name| (name, "a", fenced(60_000, 5)));
        let answers = Clients::at(&url, 3).await.ask(&asked).await;
        token(&answers[0]);
        token(&answers[2]);
        let fault = answers[1].as_ref().expect_err("not permitted");
        assert_eq!(fault.kind(), FaultKind::NotPermitted);
        assert!(fault.detail().contains("the keys of 'elsewhere'"), "{fault}");
    });
}

/// A lock key without its fence is nobody's lock, and the script tells what is missing.
#[test]
fn a_right_that_is_withdrawn_is_told_of() {
    run(async {
        let server = Server::start();
        let mut ask = server.ask();
        assert_eq!(ask.call(&["ACL", "SETUSER", "app", "on", ">pw", "+@all", "~*"]), "OK");
        let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
        let mut client = Clients::at(&url, 1).await.0.remove(0);
        assert_eq!(ask.call(&["ACL", "SETUSER", "app", "-zadd"]), "OK");
        let mine = claim(&["r"], "a");
        let fault = client.ask(&mine, fenced(60_000, 5)).await.expect_err("not permitted");
        assert_eq!(fault.kind(), FaultKind::NotPermitted);
        assert!(fault.detail().contains("+zadd"), "{fault}");
        assert_eq!(ask.call(&["ACL", "SETUSER", "app", "+zadd"]), "OK");
        client.ask(&mine, Action::REVOKE).await.expect("an answer");
        token(&client.ask(&mine, fenced(60_000, 6)).await);
    });
}

/// The node forgets when they are on their way: what the client learns of it comes behind their answers. If it learned
/// that the node is held back before it had the answers, it would not ask again, and leave keys for the releases.
#[test]
fn a_node_that_forgot_grants_to_none_of_them() {
    run(async {
        for fencing in [true, false] {
            let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
            let proxy = Proxy::to(servers[0].port()).await;
            let urls = [proxy.url(), servers[1].url(), servers[2].url()];
            // Nor does it ask again when an answer is late.
            let policy = Policy::builder().fencing(fencing).node_timeout(Duration::from_secs(5));
            let policy = policy.build().expect("a valid policy");
            let locks = Redlock::builder().nodes(urls).policy(policy);
            let locks = locks.build().expect("valid addresses");
            warm_up(&locks).await;
            let names: Vec<String> = (0..20).map(|n| format!("r{n} {fencing}")).collect();
            let mut forgetful = servers[0].ask();
            let mut flushing = servers[0].ask();
            proxy.ahead_of(&names[0], move || assert_eq!(flushing.call(&["FLUSHALL"]), "OK"));
            let asked: Vec<_> = names.iter().map(|name| locks.lock(name)).collect();
            let all = asked.iter().map(quorlock::Lock::acquire);
            let held: Vec<_> =
                join_all(all).await.into_iter().map(|it| it.expect("a quorum")).collect();
            for (name, lease) in names.iter().zip(&held) {
                assert!(lease.is_valid());
                eventually("an answer", || lease.votes()[0].vote != Vote::Missing).await;
                assert_eq!(lease.votes()[0].vote, Vote::Failed, "{name}");
                assert_eq!(servers[1].ask().call(&["EXISTS", name]), "1", "{name}");
            }
            // The votes are told before the state is shown.
            let is_healthy = || matches!(locks.nodes()[0].1, NodeState::Healthy);
            eventually("a node held back", || !is_healthy()).await;
            // Later ones may find the node held back when they ask again, and keep their key until they are released.
            assert_eq!(
                forgetful.call(&["EXISTS", &names[0]]),
                "0",
                "the node took it back by itself"
            );
            for lease in held {
                lease.release().await.expect("it was held");
            }
            for name in &names {
                eventually("no key", || forgetful.call(&["EXISTS", name]) == "0").await;
            }
        }
    });
}

#[test]
fn a_cluster_of_one_grants_them_too() {
    run(async {
        let server = Server::with(&["--cluster-enabled", "yes"]);
        give_all_slots_to(&server).await;
        let mut ask = server.ask();
        let mut clients = Clients::at(&server.url(), 5).await.0;
        assert_eq!(ask.call(&["SET", "r", "before", "PX", "60000"]), "OK");
        let claims = ["r", "s", "t"].map(|name| claim(&[name], name));
        for (client, claim) in clients.iter().zip(&claims) {
            client.send(claim, fenced(60_000, 5));
        }
        clients[3].send(&claims[1], Action::REVOKE);
        assert!(is_theirs(&clients[0].reply().await.answer));
        token(&clients[1].reply().await.answer);
        token(&clients[2].reply().await.answer);
        assert_eq!(clients[3].reply().await.answer, OURS);
        clients[4].ask(&claims[1], Action::Inspect).await.expect("an answer behind all others");
        assert_eq!(ask.call(&["EXISTS", "s"]), "0");
        assert_eq!(ask.call(&["EXISTS", "t"]), "1");
    });
}
