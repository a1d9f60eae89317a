//! Restores the keys of a confirmed lease on nodes that have lost them. Owns that one command;
//! decides nothing about when.

use std::sync::Arc;

use crate::command::{Action, Command, Ticket};
use crate::identity::NodeId;
use crate::lease::Lease;
use crate::time::Moment;

/// The command that restores the keys and the fence of a confirmed lease on one node; not carried
/// out after `by`.
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

/// The ticket of every healing: no round waits for its reply.
const HEAL_TICKET: Ticket = Ticket(u32::MAX);
