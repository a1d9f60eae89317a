//! The fencing tokens of an acquisition: what nodes granted, and who still has to learn the highest.
//! Knows no time.

use crate::command::{Answer, Fence};
use crate::identity::{FencingToken, NodeId};
use crate::machine::Environment;
use crate::round::Round;

/// What a round proposes: the middle one of the nodes' clocks, or one more than the highest token known. The
/// wall clock stands in for theirs while none is known.
///
/// A known token that no node would take counts for nothing: it comes of a node whose clock is far ahead of
/// the others, and would have all of them asked by script until they have caught up.
pub(super) fn proposal(env: &dyn Environment, known: FencingToken) -> FencingToken {
    let next = next(known);
    let clock = |micros: u64| FencingToken(micros.min(MAX_TOKEN));
    match env.nodes_micros() {
        None => clock(env.wall_micros()).max(next),
        Some(middle) if next <= clock(middle.saturating_add(Fence::SLACK_MICROS)) => {
            clock(middle).max(next)
        }
        Some(middle) => clock(middle),
    }
}

/// The fence of a node that granted (zero without fencing); `None` if it did not grant.
pub(crate) fn granted_token<F>(answer: &Result<Answer, F>) -> Option<FencingToken> {
    match answer {
        Ok(Answer::Ours { token, .. }) => Some(token.unwrap_or_default()),
        _ => None,
    }
}

/// A node whose fence is at the token already counts at once; one that granted less is asked.
pub(crate) fn join_raise<F>(
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

fn next(token: FencingToken) -> FencingToken {
    FencingToken(token.0.saturating_add(1).min(MAX_TOKEN))
}

/// The largest token that Lua and JavaScript keep exact.
const MAX_TOKEN: u64 = (1 << 53) - 1;
