//! Writes the warnings for people: about nodes whose grants do not count, and about this machine's
//! clock. Owns the wording.

use super::seconds;
use crate::guard::{Dependence, Notice};
use crate::identity::NodeId;

impl Dependence {
    /// What is wrong with the list of nodes, and what to do; `addresses` in the order of the nodes.
    pub fn explain(&self, addresses: &[&str]) -> String {
        let name = |node: &NodeId| addresses.get(node.index()).copied().unwrap_or_default();
        match self {
            Self::SameServer(one, two) => format!(
                "{} and {} are one and the same server, but a quorum needs servers that fail \
                 independently: name each once",
                name(one),
                name(two)
            ),
            Self::ReplicaOf(replica, master) => format!(
                "{} is a replica of {}, but a quorum needs independent masters: leave the replica out",
                name(replica),
                name(master)
            ),
            Self::Replica(replica, master) => format!(
                "{} is a replica of {master} and takes no writes: give the address of its master",
                name(replica)
            ),
            Self::OneCluster(one, two) => format!(
                "{} and {} belong to one Redis Cluster, but a quorum needs independent masters: name \
                 servers that know nothing of each other",
                name(one),
                name(two)
            ),
        }
    }
}

impl Notice {
    /// One or two sentences: what was seen, on which node, what it means and what to do; `addresses` in
    /// the order of the nodes.
    pub fn explain(&self, addresses: &[&str]) -> String {
        let name = |node: &NodeId| addresses.get(node.index()).copied().unwrap_or_default();
        match self {
            Self::Quarantined(node, reason, left) => format!(
                "{}: {}; its votes do not count until those locks are over, for about {}",
                name(node),
                reason.describe(),
                seconds(*left)
            ),
            Self::LongWait(node, left) => format!(
                "{}: its votes do not count for about {}, because somebody may hold a lock for so long \
                 that it has forgotten: set max_ttl for all clients to bound such waits",
                name(node),
                seconds(*left)
            ),
            Self::LongLock(keep) => format!(
                "a lock asks the nodes to keep its keys for {}: should a majority of them forget it, others \
                 wait for an hour only; use a shorter ttl that is renewed, or set max_ttl for all clients",
                seconds(*keep)
            ),
            Self::ClockSetBack(node, by) => format!(
                "{}: its clock was set back by {}, so that locks there last that much longer: let \
                 clocks be slewed, not stepped",
                name(node),
                seconds(*by)
            ),
            Self::Paused(lost) => format!(
                "this machine stood still for up to {} without its clock noticing; every lease is \
                 taken for that much older",
                seconds(*lost)
            ),
            Self::MayEvict(node, policy) => format!(
                "{}: its maxmemory-policy {policy} may throw out the keys of locks while they are \
                 held: set it to noeviction, or use a server for locks alone",
                name(node)
            ),
            Self::NotIndependent(dependence) => dependence.explain(addresses),
            Self::NodeDown(node, why) => format!(
                "{}: it takes no part in locks, which go on as long as a majority of the nodes does: \
                 {why}",
                name(node)
            ),
            Self::NodeUp(node, after) => {
                format!("{}: it answers again, after {}", name(node), seconds(*after))
            }
            Self::NoPush(node, why) => format!(
                "{}: it cannot tell callers when a lock is free, so they try again after each delay where too \
                 few nodes can: {why}",
                name(node)
            ),
            Self::Degraded(told) => told.to_string(),
        }
    }

    /// The node that it is about; `None` if it is about this client or more than one of them.
    pub const fn node(&self) -> Option<NodeId> {
        match self {
            Self::Quarantined(node, ..)
            | Self::LongWait(node, _)
            | Self::ClockSetBack(node, _)
            | Self::MayEvict(node, _)
            | Self::NodeDown(node, _)
            | Self::NodeUp(node, _)
            | Self::NoPush(node, _) => Some(*node),
            Self::LongLock(_) | Self::Paused(_) | Self::NotIndependent(_) | Self::Degraded(_) => {
                None
            }
        }
    }

    /// A stable name for programs, for example `quarantined`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Quarantined(..) => "quarantined",
            Self::ClockSetBack(..) => "clock-set-back",
            Self::Paused(_) => "paused",
            Self::LongWait(..) => "long-wait",
            Self::LongLock(_) => "long-lock",
            Self::MayEvict(..) => "may-evict",
            Self::NotIndependent(_) => "not-independent",
            Self::NodeDown(..) => "node-down",
            Self::NodeUp(..) => "node-up",
            Self::NoPush(..) => "no-push",
            Self::Degraded(_) => "degraded",
        }
    }
}
