//! The fencing tokens of an acquisition: what nodes granted, and who still has to learn the highest.
//! Knows no time.

use crate::command::Answer;
use crate::identity::{FencingToken, NodeId};
use crate::round::Round;

/// The fence of a node that granted (zero without fencing); `None` if it did not grant.
pub(super) fn granted_token<F>(answer: &Result<Answer, F>) -> Option<FencingToken> {
    match answer {
        Ok(Answer::Ours { token, .. }) => Some(token.unwrap_or_default()),
        _ => None,
    }
}

/// A node whose fence is at the token already counts at once; one that granted less is asked.
pub(super) fn join_raise<F>(
    raise: &mut Round,
    node: NodeId,
    answer: &Result<Answer, F>,
    token: FencingToken,
) {
    match granted_token(answer) {
        Some(own) if own >= token => {
            let (token, remaining) = (Some(own), None);
            raise.settle(node, Answer::Ours { token, remaining });
        }
        Some(_) => raise.ask(node),
        None => {}
    }
}

pub(super) fn next(token: FencingToken) -> FencingToken {
    FencingToken(token.0.saturating_add(1).min(MAX_TOKEN))
}

/// The largest token that Lua and JavaScript keep exact.
pub(super) const MAX_TOKEN: u64 = (1 << 53) - 1;
