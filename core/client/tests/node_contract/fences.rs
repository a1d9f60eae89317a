//! Tests fencing tokens on every kind of node: what a node grants and remembers.

use quorlock_protocol::{Action, Answer, FencingToken};

use crate::support::*;
use crate::{Kind, is_ours};

pub(crate) async fn fencing_tokens_grow(mut kind: Kind) {
    let (mut last, begun) = (0, wall() - 1_000_000);
    // Whatever is proposed: nothing, something that is long past, something ahead.
    for (round, ahead) in [0, 7, 400_000, 400_000, 0, 500_000, 2].into_iter().enumerate() {
        let mine = claim(&["r"], &format!("holder {round}"));
        let proposal = if ahead == 0 { round as u64 } else { wall() + ahead };
        let token = token(&kind.client.ask(&mine, proposing(10_000, proposal)).await);
        assert!(token > last && token >= begun, "{token} after {last}");
        // Up to a second beyond the node's clock, and not below it.
        assert!(token >= proposal && token <= last.max(wall() + 1_000_000) + 1, "{token}");
        let refused = kind.client.ask(&claim(&["r"], "other"), proposing(10_000, 1)).await;
        let Ok(Answer::Theirs { floor, .. }) = refused else { panic!("{refused:?}") };
        assert_eq!(floor, Some(FencingToken(token)));
        assert_eq!(kind.client.ask(&mine, Action::REVOKE).await, OURS);
        last = token;
    }
}

/// The fence may be another's, whose lease broke: what it was raised to is nobody else's token.
pub(crate) async fn a_grant_asked_for_again_has_a_token_of_its_own(mut kind: Kind) {
    let (mine, ahead) = (claim(&["r"], "a"), wall() + 900_000);
    let first = token(&kind.client.ask(&mine, proposing(10_000, ahead)).await);
    let second = token(&kind.client.ask(&mine, proposing(10_000, ahead)).await);
    assert!(second > first, "{second} after {first}");
    assert_eq!(kind.client.ask(&mine, extend(10_000)).await, OURS);
    assert!(token(&kind.client.ask(&mine, proposing(10_000, 5)).await) > second);
}

pub(crate) async fn a_proposal_far_ahead_or_behind_counts_as_near(mut kind: Kind) {
    // Exact to the last digit, also as it is remembered.
    let (near, ahead) = (claim(&["r"], "a"), wall() + 999_999);
    assert_eq!(kind.client.ask(&near, proposing(10_000, ahead)).await, ours_with(ahead));
    assert_eq!(token(&kind.client.ask(&near, Action::Inspect).await), ahead);
    assert_eq!(kind.client.ask(&near, Action::REVOKE).await, OURS);
    let far = claim(&["far"], "b");
    let clamped = token(&kind.client.ask(&far, proposing(10_000, (1 << 53) - 1)).await);
    assert!(clamped > ahead && clamped < wall() + 1_000_001, "{clamped}");
    let before = wall();
    for behind in [0, 1, before - 3_600_000_000, before - 1_500_000] {
        let late = claim(&[&format!("late {behind}")], "c");
        let floored = token(&kind.client.ask(&late, proposing(10_000, behind)).await);
        let near = before - 1_000_000..=wall() - 1_000_000;
        assert!(near.contains(&floored), "{floored}, and not {behind}");
    }
}

pub(crate) async fn one_token_covers_several_resources(mut kind: Kind) {
    let (before, ahead) = (claim(&["b"], "x"), wall() + 900_000);
    let first = token(&kind.client.ask(&before, proposing(10_000, ahead)).await);
    assert_eq!(kind.client.ask(&before, Action::REVOKE).await, OURS);
    let both = claim(&["a", "b"], "y");
    let second = token(&kind.client.ask(&both, proposing(10_000, 5)).await);
    assert!(second > first, "{second} after {first}");
    assert_eq!(kind.client.ask(&both, Action::REVOKE).await, OURS);
    let after = claim(&["a"], "z");
    assert!(token(&kind.client.ask(&after, proposing(10_000, 5)).await) > second);
}

/// Names that share a bucket share its fence, and no more: each has its own lock, and tokens that grow.
pub(crate) async fn names_may_share_a_bucket(mut kind: Kind) {
    let (one, two) = same_bucket(kind.prefix);
    let ahead = wall() + 900_000;
    let mut last = 0;
    for (name, holder) in [(&one, "a"), (&two, "b"), (&one, "c"), (&two, "d")] {
        let mine = claim(&[name], holder);
        let own = token(&kind.client.ask(&mine, proposing(10_000, ahead)).await);
        assert!(own > last, "{own} after {last}");
        last = own;
        if holder == "b" {
            for (name, holder) in [(&one, "a"), (&two, "b")] {
                assert_eq!(kind.client.ask(&claim(&[name], holder), Action::REVOKE).await, OURS);
            }
        }
    }
    let both = claim(&[&one, &two], "e");
    for (name, holder) in [(&one, "c"), (&two, "d")] {
        assert_eq!(kind.client.ask(&claim(&[name], holder), Action::REVOKE).await, OURS);
    }
    assert!(token(&kind.client.ask(&both, proposing(10_000, ahead)).await) > last);
}

fn same_bucket(prefix: &str) -> (String, String) {
    let of = |name: &str| bucket(&format!("{prefix}{name}"));
    let other = (0..1_000_000).map(|n| format!("r{n}")).find(|name| of(name) == of("r"));
    ("r".to_owned(), other.expect("there is one in some ten thousand"))
}

pub(crate) async fn raising_the_fence_needs_the_keys(mut kind: Kind) {
    let mine = claim(&["a", "b"], "x");
    assert_eq!(kind.client.ask(&mine, raise(90)).await, ABSENT);
    assert!(is_ours(&kind.client.grant(&claim(&["a"], "x"), 10_000).await));
    assert_eq!(kind.client.ask(&mine, raise(90)).await, ABSENT);
    assert!(is_ours(&kind.client.grant(&claim(&["b"], "y"), 10_000).await));
    assert!(is_theirs(&kind.client.ask(&mine, raise(90)).await));
    for name in ["a", "b"] {
        let looked = kind.client.ask(&claim(&[name], "z"), Action::Inspect).await;
        assert!(matches!(looked, Ok(Answer::Theirs { floor: None, .. })), "{looked:?}");
    }
}

pub(crate) async fn a_raised_fence_counts_for_the_next_grant(mut kind: Kind) {
    let mine = claim(&["a", "b"], "x");
    let granted = token(&kind.client.ask(&mine, fenced(10_000, 5)).await);
    let raised = granted + 60_000_000;
    assert_eq!(kind.client.ask(&mine, raise(raised)).await, ours_with(raised));
    // Never lowered.
    assert_eq!(kind.client.ask(&mine, raise(granted)).await, ours_with(raised));
    assert_eq!(kind.client.ask(&mine, Action::REVOKE).await, OURS);
    for name in ["a", "b"] {
        let next = kind.client.ask(&claim(&[name], "y"), fenced(10_000, 5)).await;
        assert_eq!(next, ours_with(raised + 1));
    }
}

pub(crate) async fn the_fence_outlives_the_lock(mut kind: Kind) {
    let (first, ahead) = (claim(&["r"], "a"), wall() + 999_000);
    let first = token(&kind.client.ask(&first, proposing(1, ahead)).await);
    let mut next = kind.client.ask(&claim(&["r"], "b"), proposing(10_000, 5)).await;
    while is_theirs(&next) {
        next = kind.client.ask(&claim(&["r"], "b"), proposing(10_000, 5)).await;
    }
    assert!(token(&next) > first);
}
