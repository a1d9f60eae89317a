//! A server that takes no writes now. Owns what to do about that, by the server's words.

use quorlock::{FaultKind, NodeState};

use super::{Finding, Node};

/// That the server takes no writes now, where the guards have not seen that: they write seldom.
pub(super) fn of(node: &Node) -> Option<Finding> {
    let is_seen =
        matches!(&node.state, NodeState::Refusing(it) if it.kind() == FaultKind::Unwritable);
    let words = node.refused_write().filter(|_| !is_seen)?;
    let remedy = match words.split(' ').next() {
        Some("OOM") => "raise its memory limit (maxmemory), or give locks a server of their own",
        Some("NOREPLICAS") => "bring its replicas back, or lower its min-replicas-to-write",
        _ => "see its disk and log: it cannot save its data (stop-writes-on-bgsave-error)",
    };
    Some(Finding::of(node, "unwritable", format!("it takes no writes now: {words}"), remedy))
}
