//! The list of worlds that show what the algorithm does not promise.

use super::{faulty, guarded, tokens};
use crate::clock::Rate;
use crate::property::Property;
use crate::scope::{Scope, Target};

/// What the algorithm does not promise: each must be shown, or the search sees nothing.
pub(crate) fn limits() -> Vec<Scope> {
    let limit = |property, scope| Scope { limit: Some(property), ..scope };
    let unguarded = |scope| limit(Property::Exclusion, guarded::without(scope));
    let mut limits = vec![
        limit(
            Property::StaleWrite,
            Scope {
                target: Target::Trusting,
                ..faulty("a client that acts after a pause, no token checked", 1, |it| {
                    it.pauses = 1;
                })
            },
        ),
        unguarded(guarded::forgetful("one node forgets, without guards", |it| it.forgets = 1)),
        unguarded(guarded::five(guarded::forgetful(
            "one node of five forgets, without guards",
            |it| it.forgets = 1,
        ))),
        unguarded(guarded::forgetful("one node is flushed, without guards", |it| it.flushes = 1)),
        unguarded(guarded::forgetful("one clock jumps, without guards", |it| it.clock_steps = 1)),
        limit(Property::Exclusion, guarded::still("a machine that stood still and has not looked")),
        unguarded(guarded::still("a machine that stands still, without guards")),
        limit(Property::Exclusion, faulty("a majority forgets", 2, |it| it.forgets = 2)),
        limit(
            Property::Fencing,
            faulty("one node of a bare quorum forgets its fence", 2, |it| {
                (it.forgets, it.downs) = (1, 1);
            }),
        ),
        limit(Property::Fencing, faulty("a majority forgets its fences", 2, |it| it.forgets = 2)),
        limit(
            Property::Exclusion,
            faulty("the clocks of a majority jump", 2, |it| it.clock_steps = 2),
        ),
        limit(
            Property::Exclusion,
            Scope { node_rate: Rate(20_000), ..faulty("clocks beyond the allowance", 0, |_| {}) },
        ),
    ];
    limits.extend(guarded::limits().into_iter().map(|scope| limit(Property::Exclusion, scope)));
    limits.extend(tokens::limits());
    limits
}
