//! What a person should hear of.

use std::sync::Arc;
use std::time::Duration;

use super::independence::Dependence;
use super::quarantine::QuarantineReason;
use crate::identity::NodeId;

/// Something that a person should hear of.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A node's grants are held back, why, and for about how long.
    Quarantined(NodeId, QuarantineReason, Duration),
    /// A node's grants are held back for more than a minute, because somebody may hold a long lock.
    LongWait(NodeId, Duration),
    /// A lock asks nodes to keep its keys for longer than a node that forgot is held back.
    LongLock(Duration),
    /// A node's clock was set back by at least so much: its keys stay longer than they should.
    ClockSetBack(NodeId, Duration),
    /// The leases lost up to so much time against all nodes: this machine stood still.
    Paused(Duration),
    /// A node's server throws keys out by this policy when memory runs short, keys of locks among them.
    MayEvict(NodeId, Arc<str>),
    /// A node has no vote of its own, which is a mistake in the list of nodes.
    NotIndependent(Dependence),
    /// A node has stopped taking part, and why.
    NodeDown(NodeId, Arc<str>),
    /// It takes part again, after so long.
    NodeUp(NodeId, Duration),
}
