//! Worlds in which clients wait in the nodes' queues. Those of one node are searched in every order; those of three in
//! the order of `order.rs`, and whatever differs from it a few times.

use quorlock_protocol::{Policy, PolicyBuilder, WaitMode};

use super::millis;
use crate::scope::{Budget, Scope, policy};

/// The small ones.
pub(crate) fn small() -> Vec<Scope> {
    vec![
        Scope { clients: 2, ..one_node("queue: one node, one waits", |_| {}) },
        Scope { clients: 3, ..one_node("queue: one node, two wait", |_| {}) },
        ordered("queue: two wait", 3, 2, |_| {}),
    ]
}

fn one_node(name: &'static str, change: impl FnOnce(&mut Budget)) -> Scope {
    let mut budget = Budget::default();
    change(&mut budget);
    Scope { policy: waiting(|it| it), budget, prompt: true, ..Scope::base(name, 1) }
}

fn ordered(
    name: &'static str,
    clients: usize,
    deviations: u16,
    change: impl FnOnce(&mut Budget),
) -> Scope {
    let mut budget = Budget { deviations, ..Budget::default() };
    change(&mut budget);
    Scope { clients, is_ordered: true, policy: waiting(|it| it), budget, ..Scope::base(name, 3) }
}

/// The settings of who waits as long as it takes.
fn waiting(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Policy {
    policy(|it| {
        let it = it.wait(WaitMode::Push).fencing(false).retry_limit(None);
        change(it.unreachable_timeout(millis(60_000)))
    })
}
