//! The list of events that a person should be told about: nodes whose grants do not count, clocks,
//! long locks. Owns no words.

use std::sync::Arc;
use std::time::Duration;

use super::independence::Dependence;
use super::quarantine::QuarantineReason;
use crate::identity::NodeId;

/// An event that a person should be told about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Notice {
    /// A node's grants do not count: why, and for about how long.
    Quarantined(NodeId, QuarantineReason, Duration),
    /// A node's grants are held back for more than a minute, because somebody may hold a long lock.
    LongWait(NodeId, Duration),
    /// A lock asks nodes to keep its keys for longer than a node that forgot is held back.
    LongLock(Duration),
    /// A node's clock was set back by at least this much: its keys stay longer than they should.
    ClockSetBack(NodeId, Duration),
    /// The leases lost up to this much time compared with all nodes: this machine was paused.
    Paused(Duration),
    /// A node's server evicts keys by this policy when memory runs short, the keys of locks among
    /// them.
    MayEvict(NodeId, Arc<str>),
    /// A node has no vote because of a mistake in the list of nodes.
    NotIndependent(Dependence),
    /// A node has stopped taking part, and why.
    NodeDown(NodeId, Arc<str>),
    /// It takes part again, after this time.
    NodeUp(NodeId, Duration),
    /// A node cannot tell callers that wait, and why: they try again after each delay instead.
    NoPush(NodeId, Arc<str>),
    /// Too few nodes could be reached, and work goes on without its lock: the sentence that says so.
    Degraded(Arc<str>),
}
