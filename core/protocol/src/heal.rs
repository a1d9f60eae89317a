//! Gives nodes that have lost the keys of a proven lease these keys again.

use std::sync::Arc;

use crate::command::{Action, Command, Ticket};
use crate::identity::NodeId;
use crate::lease::Lease;
use crate::time::Moment;

/// Gives a node that has lost them the keys of a proven lease again, and its fence; `by` then or never.
pub(crate) fn heal(
    node: NodeId,
    lease: &Lease,
    by: Moment,
) -> impl Iterator<Item = (NodeId, Command)> + use<> {
    let restore = Action::Restore { key_ttl: lease.key_ttl };
    let raise = lease
        .fencing_token
        .map(|token| Action::RaiseFence { token, retention: lease.fence_retention });
    let claim = Arc::clone(&lease.claim);
    std::iter::once(restore).chain(raise).map(move |action| {
        let claim = Arc::clone(&claim);
        (node, Command { ticket: HEAL_TICKET, claim, action, not_after: by })
    })
}

/// No round waits for the replies to a healing.
const HEAL_TICKET: Ticket = Ticket(u32::MAX);
