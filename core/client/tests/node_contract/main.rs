//! Tests the contract of a node against each kind: one in memory, and a real server.

mod fences;
#[path = "../support/mod.rs"]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fences::*;
use quorlock::{NodeState, boot_clock};
use quorlock_protocol::{Action, Answer, Claim, FaultKind, FencingToken, Frees};
use support::server::Server;
use support::*;

/// A node under test. Its server lives as long.
struct Kind {
    client: Client,
    url: String,
    prefix: &'static str,
    _server: Option<Server>,
}

impl Kind {
    fn memory() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self::new(format!("memory://contract-{number}"), "", None)
    }

    fn redis() -> Self {
        let server = Server::start();
        Self::new(server.url(), "", Some(server))
    }

    /// With another key prefix and database, nothing may change.
    fn redis_elsewhere() -> Self {
        let server = Server::start();
        Self::new(format!("{}/3?key_prefix=app:", server.url()), "app:", Some(server))
    }

    fn new(url: String, prefix: &'static str, server: Option<Server>) -> Self {
        Self { client: node_at(&url), url, prefix, _server: server }
    }
}

/// One test for each kind of node.
macro_rules! contract {
    ($($name:ident)*) => {
        contract!(in memory: $($name)*);
        contract!(in redis: $($name)*);
        contract!(in redis_elsewhere: $($name)*);
    };
    (in $kind:ident: $($name:ident)*) => {
        mod $kind {
            $(#[test] fn $name() {
                super::support::run(async { super::$name(super::Kind::$kind()).await });
            })*
        }
    };
}

contract! {
    a_free_resource_is_granted_to_one
    a_grant_is_idempotent
    several_resources_are_all_or_nothing
    a_half_lost_set_is_made_whole
    a_grant_asked_again_never_shortens
    keys_expire
    a_refusal_tells_when_it_frees
    an_extension_keeps_the_key
    an_extension_never_makes_a_key
    many_extensions_get_their_own_replies
    a_revoke_deletes_only_what_is_ours
    a_revoke_of_what_has_ended_leaves_longer_keys
    a_release_of_what_has_ended_shortens_no_longer_keys
    a_revoke_of_several_deletes_those_that_are_ours
    fencing_tokens_grow
    a_grant_asked_for_again_has_a_token_of_its_own
    a_proposal_far_ahead_or_behind_counts_as_near
    names_may_share_a_bucket
    one_token_covers_several_resources
    raising_the_fence_needs_the_keys
    a_raised_fence_counts_for_the_next_grant
    the_fence_outlives_the_lock
    an_inspection_changes_nothing
    a_huge_ttl_is_taken
    odd_names_are_only_names
    commands_take_effect_in_order
    a_command_that_comes_too_late_is_not_sent
    two_nodes_of_one_address_share_their_keys
    a_closed_node_does_what_was_handed_over
}

async fn a_free_resource_is_granted_to_one(mut kind: Kind) {
    let (a, b) = (claim(&["r"], "a"), claim(&["r"], "b"));
    for action in [grant(10_000), fenced(10_000, 5)] {
        assert!(is_ours(&kind.client.ask(&a, action).await));
        assert!(is_theirs(&kind.client.ask(&b, action).await));
        assert_eq!(kind.client.ask(&a, Action::REVOKE).await, OURS);
        assert!(is_ours(&kind.client.ask(&b, action).await));
        assert_eq!(kind.client.ask(&b, Action::REVOKE).await, OURS);
    }
    assert_eq!(kind.client.node.state(), NodeState::Healthy);
}

async fn a_grant_is_idempotent(mut kind: Kind) {
    let two = claim(&["r", "s"], "a");
    assert_eq!(kind.client.grant(&two, 10_000).await, OURS);
    assert_eq!(kind.client.grant(&two, 10_000).await, OURS);
}

async fn several_resources_are_all_or_nothing(mut kind: Kind) {
    let other = claim(&["b"], "other");
    assert!(is_ours(&kind.client.grant(&other, 10_000).await));
    for action in [grant(10_000), fenced(10_000, 5)] {
        let all = claim(&["a", "b", "c"], "x");
        assert!(is_theirs(&kind.client.ask(&all, action).await));
        for name in ["a", "c"] {
            assert_eq!(kind.client.ask(&claim(&[name], "x"), Action::Inspect).await, ABSENT);
        }
    }
    assert!(holds(&mut kind.client, &other).await);
}

async fn a_half_lost_set_is_made_whole(mut kind: Kind) {
    let all = claim(&["a", "b"], "x");
    assert!(is_ours(&kind.client.grant(&all, 10_000).await));
    assert_eq!(kind.client.ask(&claim(&["a"], "x"), Action::REVOKE).await, OURS);
    assert_eq!(kind.client.ask(&all, Action::Inspect).await, ABSENT);
    assert!(is_ours(&kind.client.grant(&all, 10_000).await));
    assert!(holds(&mut kind.client, &all).await);
}

async fn a_grant_asked_again_never_shortens(mut kind: Kind) {
    let all = claim(&["a", "b"], "x");
    assert!(is_ours(&kind.client.grant(&all, 60_000).await));
    assert!(is_ours(&kind.client.grant(&all, 10_000).await));
    assert!(remaining(&mut kind.client, &all).await > Duration::from_secs(50));
    assert!(is_ours(&kind.client.grant(&all, 90_000).await));
    assert!(remaining(&mut kind.client, &all).await > Duration::from_secs(80));
}

async fn keys_expire(mut kind: Kind) {
    let (a, b) = (claim(&["r"], "a"), claim(&["r"], "b"));
    let asked = boot_clock();
    assert!(is_ours(&kind.client.grant(&a, 30).await));
    while is_theirs(&kind.client.grant(&b, 10_000).await) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let lasted = boot_clock().since(asked);
    assert!(lasted >= Duration::from_millis(29), "expired after {lasted:?}");
    assert!(holds(&mut kind.client, &b).await);
}

async fn a_refusal_tells_when_it_frees(mut kind: Kind) {
    // Of several the last one counts.
    assert!(is_ours(&kind.client.grant(&claim(&["a"], "x"), 5_000).await));
    assert!(is_ours(&kind.client.grant(&claim(&["b"], "y"), 20_000).await));
    let refused = kind.client.grant(&claim(&["a", "b"], "z"), 1_000).await;
    let Ok(Answer::Theirs { frees: Frees::In(left), floor: None }) = refused else {
        panic!("{refused:?}")
    };
    assert!(left > Duration::from_secs(15) && left <= Duration::from_secs(20), "{left:?}");
}

async fn an_extension_keeps_the_key(mut kind: Kind) {
    let all = claim(&["a", "b"], "x");
    assert!(is_ours(&kind.client.grant(&all, 5_000).await));
    assert_eq!(kind.client.ask(&all, extend(50_000)).await, OURS);
    assert!(remaining(&mut kind.client, &all).await > Duration::from_secs(45));
    // Others may go by what is left; only a release may shorten it.
    assert_eq!(kind.client.ask(&all, extend(20_000)).await, OURS);
    assert!(remaining(&mut kind.client, &all).await > Duration::from_secs(45));
    assert_eq!(kind.client.ask(&all, shorten(20_000)).await, OURS);
    assert!(remaining(&mut kind.client, &all).await <= Duration::from_secs(20));
}

async fn an_extension_never_makes_a_key(mut kind: Kind) {
    let mine = claim(&["a", "b"], "x");
    assert_eq!(kind.client.ask(&mine, extend(10_000)).await, ABSENT);
    assert!(is_ours(&kind.client.grant(&claim(&["a"], "x"), 5_000).await));
    // One of two gone: neither is made nor extended.
    assert_eq!(kind.client.ask(&mine, extend(60_000)).await, ABSENT);
    assert_eq!(kind.client.ask(&claim(&["b"], "x"), Action::Inspect).await, ABSENT);
    assert!(remaining(&mut kind.client, &claim(&["a"], "x")).await <= Duration::from_secs(5));
    assert!(is_ours(&kind.client.grant(&claim(&["b"], "y"), 10_000).await));
    assert!(is_theirs(&kind.client.ask(&mine, extend(60_000)).await));
    assert!(remaining(&mut kind.client, &claim(&["a"], "x")).await <= Duration::from_secs(5));
}

async fn many_extensions_get_their_own_replies(mut kind: Kind) {
    let claims: Vec<Arc<Claim>> = (0..700)
        .map(|number| {
            let (one, two) = (format!("a{number}"), format!("b{number}"));
            let names =
                if number % 2 == 0 { vec![one.as_str()] } else { vec![one.as_str(), two.as_str()] };
            claim(&names, &format!("holder {number}"))
        })
        .collect();
    for (number, claim) in claims.iter().enumerate() {
        match number % 3 {
            0 => assert!(is_ours(&kind.client.grant(claim, 60_000).await)),
            1 => {
                let other = Claim {
                    resources: claim.resources.clone(),
                    holder: support::claim(&["x"], "other").holder.clone(),
                };
                assert!(is_ours(&kind.client.grant(&Arc::new(other), 60_000).await));
            }
            _ => {}
        }
    }
    let tickets: Vec<_> = claims.iter().map(|it| kind.client.send(it, extend(90_000))).collect();
    let replies = kind.client.replies_to(&tickets).await;
    for (number, reply) in replies.iter().enumerate() {
        match number % 3 {
            0 => assert_eq!(reply.answer, OURS, "{number}"),
            1 => assert!(is_theirs(&reply.answer), "{number}"),
            _ => assert_eq!(reply.answer, ABSENT, "{number}"),
        }
    }
}

async fn a_revoke_deletes_only_what_is_ours(mut kind: Kind) {
    let (a, b) = (claim(&["r"], "a"), claim(&["r"], "b"));
    assert_eq!(kind.client.ask(&a, Action::REVOKE).await, ABSENT);
    assert!(is_ours(&kind.client.grant(&a, 10_000).await));
    assert!(is_theirs(&kind.client.ask(&b, Action::REVOKE).await));
    assert!(holds(&mut kind.client, &a).await);
    assert_eq!(kind.client.ask(&a, Action::REVOKE).await, OURS);
    assert_eq!(kind.client.ask(&a, Action::REVOKE).await, ABSENT);
}

async fn a_revoke_of_several_deletes_those_that_are_ours(mut kind: Kind) {
    assert!(is_ours(&kind.client.grant(&claim(&["a", "c"], "x"), 10_000).await));
    assert_eq!(kind.client.ask(&claim(&["a", "b"], "x"), Action::REVOKE).await, ABSENT);
    assert_eq!(kind.client.ask(&claim(&["a"], "x"), Action::Inspect).await, ABSENT);
    assert!(is_ours(&kind.client.grant(&claim(&["b"], "y"), 10_000).await));
    assert!(is_theirs(&kind.client.ask(&claim(&["b", "c"], "x"), Action::REVOKE).await));
    assert_eq!(kind.client.ask(&claim(&["c"], "x"), Action::Inspect).await, ABSENT);
    assert!(holds(&mut kind.client, &claim(&["b"], "y")).await);
}

async fn a_revoke_of_what_has_ended_leaves_longer_keys(mut kind: Kind) {
    for calls in [false, true] {
        let most =
            |seconds| Action::Revoke { calls, max_remaining: Some(Duration::from_secs(seconds)) };
        let (all, long) = (claim(&["a", "b"], "x"), claim(&["b"], "x"));
        assert!(is_ours(&kind.client.grant(&all, 5_000).await));
        assert_eq!(kind.client.ask(&long, extend(50_000)).await, OURS);
        for seconds in [0, 40] {
            assert_eq!(kind.client.ask(&long, most(seconds)).await, OURS);
            assert!(holds(&mut kind.client, &long).await);
        }
        assert_eq!(kind.client.ask(&all, most(40)).await, OURS, "both were its own");
        assert_eq!(kind.client.ask(&claim(&["a"], "x"), Action::Inspect).await, ABSENT);
        assert!(holds(&mut kind.client, &long).await);
        assert!(is_theirs(&kind.client.ask(&claim(&["b"], "y"), most(60)).await));
        assert_eq!(kind.client.ask(&long, most(60)).await, OURS);
        assert_eq!(kind.client.ask(&long, Action::Inspect).await, ABSENT);
    }
}

async fn a_release_of_what_has_ended_shortens_no_longer_keys(mut kind: Kind) {
    let may_shorten = Some(Duration::from_secs(40));
    let keep = |millis| Action::Extend { key_ttl: ttl(millis), may_shorten };
    let (all, long) = (claim(&["a", "b"], "x"), claim(&["b"], "x"));
    assert!(is_ours(&kind.client.grant(&all, 30_000).await));
    assert_eq!(kind.client.ask(&long, extend(50_000)).await, OURS);
    assert_eq!(kind.client.ask(&all, keep(300)).await, OURS);
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert_eq!(kind.client.ask(&claim(&["a"], "x"), Action::Inspect).await, ABSENT);
    assert!(holds(&mut kind.client, &long).await);
}

async fn an_inspection_changes_nothing(mut kind: Kind) {
    let mine = claim(&["a", "b"], "x");
    assert_eq!(kind.client.ask(&mine, Action::Inspect).await, ABSENT);
    let granted = FencingToken(token(&kind.client.ask(&mine, fenced(10_000, 5)).await));
    assert_eq!(kind.client.ask(&claim(&["a"], "x"), shorten(4_000)).await, OURS);
    for _ in 0..2 {
        let looked = kind.client.ask(&mine, Action::Inspect).await;
        let Ok(Answer::Ours { token, remaining: Some(left) }) = looked else {
            panic!("{looked:?}")
        };
        assert_eq!(token, Some(granted));
        assert!(left > Duration::from_secs(2) && left <= Duration::from_secs(4), "{left:?}");
    }
    let looked = kind.client.ask(&claim(&["a", "b"], "y"), Action::Inspect).await;
    let Ok(Answer::Theirs { floor, frees: Frees::In(left) }) = looked else { panic!("{looked:?}") };
    assert_eq!(floor, Some(granted));
    assert!(left > Duration::from_secs(8) && left <= Duration::from_secs(10), "{left:?}");
}

async fn a_huge_ttl_is_taken(mut kind: Kind) {
    for (name, action) in [("a", grant((1 << 53) - 1)), ("b", fenced((1 << 53) - 1, 5))] {
        let mine = claim(&[name], "x");
        assert!(is_ours(&kind.client.ask(&mine, action).await));
        assert_eq!(kind.client.ask(&mine, extend((1 << 53) - 1)).await, OURS);
        assert!(remaining(&mut kind.client, &mine).await > Duration::from_secs(1 << 40));
    }
}

async fn odd_names_are_only_names(mut kind: Kind) {
    let long = "x".repeat(4096);
    for name in ["a b", "a\r\nDEL b\r\n", "{", "}", "{}", "{tag}rest", "a\0b", "ключ", "%s", &long]
    {
        let mine = claim(&[name], "a\r\nb");
        token(&kind.client.ask(&mine, fenced(10_000, 5)).await);
        assert!(holds(&mut kind.client, &mine).await);
        assert_eq!(kind.client.ask(&mine, Action::REVOKE).await, OURS);
    }
}

async fn commands_take_effect_in_order(mut kind: Kind) {
    let mut expected = Vec::new();
    for round in 0..300 {
        let (mine, other) =
            (claim(&["r"], &format!("a{round}")), claim(&["r"], &format!("b{round}")));
        let asked = if round % 2 == 0 { grant(10_000) } else { fenced(10_000, 1) };
        expected.push((kind.client.send(&mine, asked), 'o'));
        expected.push((kind.client.send(&other, asked), 't'));
        expected.push((kind.client.send(&mine, extend(10_000)), 'o'));
        expected.push((kind.client.send(&mine, Action::REVOKE), 'o'));
        expected.push((kind.client.send(&other, Action::REVOKE), 'a'));
        expected.push((kind.client.send(&mine, extend(10_000)), 'a'));
    }
    // A revoke that found nothing may be asked about, so that its reply comes later.
    let tickets: Vec<_> = expected.iter().map(|(ticket, _)| *ticket).collect();
    let replies = kind.client.replies_in_any_order(&tickets).await;
    for (reply, (ticket, wanted)) in replies.into_iter().zip(expected) {
        let got = match reply.answer {
            Ok(Answer::Ours { .. }) => 'o',
            Ok(Answer::Theirs { .. }) => 't',
            Ok(Answer::Absent) => 'a',
            Ok(other) => panic!("{ticket:?}: {other:?}"),
            Err(fault) => panic!("{ticket:?}: {fault}"),
        };
        assert_eq!(got, wanted, "{ticket:?}");
    }
}

async fn a_command_that_comes_too_late_is_not_sent(mut kind: Kind) {
    let mine = claim(&["r"], "a");
    // What came too late before the node was connected to is the node's affair.
    assert!(!holds(&mut kind.client, &mine).await);
    let past = boot_clock();
    eventually("it is past", || boot_clock() > past).await;
    let late = kind.client.send_until(&mine, grant(10_000), past);
    let in_time = kind.client.send(&mine, Action::Inspect);
    let replies = kind.client.replies_to(&[late, in_time]).await;
    assert_eq!(support::kind(&replies[0].answer), Some(FaultKind::Late));
    assert_eq!(replies[1].answer, ABSENT);
    let soon = boot_clock() + Duration::from_secs(5);
    kind.client.send_until(&mine, grant(10_000), soon);
    assert_eq!(kind.client.reply().await.answer, OURS);
    kind.client.send_until(&mine, Action::REVOKE, past);
    assert_eq!(support::kind(&kind.client.reply().await.answer), Some(FaultKind::Late));
    assert!(holds(&mut kind.client, &mine).await);
}

async fn two_nodes_of_one_address_share_their_keys(mut kind: Kind) {
    let mut second = node_at(&kind.url);
    let (a, b) = (claim(&["r"], "a"), claim(&["r"], "b"));
    assert!(is_ours(&kind.client.grant(&a, 10_000).await));
    assert!(is_theirs(&second.grant(&b, 10_000).await));
    assert_eq!(second.ask(&a, Action::REVOKE).await, OURS);
    assert!(is_ours(&second.grant(&b, 10_000).await));
    assert!(is_theirs(&kind.client.grant(&a, 10_000).await));
}

async fn a_closed_node_does_what_was_handed_over(mut kind: Kind) {
    let mine: Vec<_> = (0..100).map(|number| claim(&[&format!("r{number}")], "a")).collect();
    let tickets: Vec<_> = mine.iter().map(|it| kind.client.send(it, fenced(10_000, 5))).collect();
    kind.client.node.close();
    for reply in kind.client.replies_to(&tickets).await {
        token(&reply.answer);
    }
    let mut second = node_at(&kind.url);
    for claim in &mine {
        assert!(holds(&mut second, claim).await);
    }
}

fn is_ours(answer: &Result<Answer, quorlock_protocol::Fault>) -> bool {
    matches!(answer, Ok(Answer::Ours { .. }))
}

async fn remaining(client: &mut Client, claim: &Arc<Claim>) -> Duration {
    match client.ask(claim, Action::Inspect).await {
        Ok(Answer::Ours { remaining: Some(left), .. }) => left,
        other => panic!("not held: {other:?}"),
    }
}

async fn holds(client: &mut Client, claim: &Arc<Claim>) -> bool {
    is_ours(&client.ask(claim, Action::Inspect).await)
}
