//! Says what to do about a server that refuses writes, by the words with which it refused one.

use quorlock::{Fault, FaultKind, NodeState};

use super::{Finding, Node};

/// That the server takes no writes now, in its own words if it has told them to this command.
pub(super) fn of(node: &Node) -> Option<Finding> {
    let seen = match &node.state {
        NodeState::Refusing(fault) | NodeState::Down(fault) => Some(fault),
        _ => None,
    };
    let seen = seen.filter(|fault| fault.kind() == FaultKind::Unwritable).map(Fault::detail);
    let problem = match node.refused_write() {
        Some(words) => format!("it takes no writes now: {words}"),
        None => seen?.to_owned(),
    };
    let remedy = if ["OOM ", "memory is full"].iter().any(|sign| problem.contains(sign)) {
        "raise its memory limit (maxmemory), or give locks a server of their own"
    } else if ["NOREPLICAS ", "too few replicas"].iter().any(|sign| problem.contains(sign)) {
        "bring its replicas back, or lower its min-replicas-to-write"
    } else {
        "see its disk and log: it cannot save its data (stop-writes-on-bgsave-error)"
    };
    Some(Finding::of(node, "unwritable", problem, remedy))
}
