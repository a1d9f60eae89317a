//! Finds the managers of an engine whose callers wait in the same queues: those with equal nodes and equal settings.
//! Owns the list of such groups.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use quorlock_protocol::Policy;

use super::CallerQueues;
use crate::address::Address;
use crate::redis_node::NodeSettings;

/// The queues of an engine, for all its managers.
#[derive(Default)]
pub(crate) struct SharedQueues(Mutex<Vec<(Alike, Weak<CallerQueues>)>>);

/// What managers that share their queues have in common: a try of one tells what a try of another would.
#[derive(PartialEq)]
pub(crate) struct Alike {
    pub(crate) nodes: Vec<Address>,
    pub(crate) policy: Policy,
    pub(crate) settings: NodeSettings,
    /// Whether nodes may be left out of new locks: a try of one that has left some out tells nothing of others.
    pub(crate) may_leave_out: bool,
}

impl SharedQueues {
    /// The queues of a manager; those that no manager uses any more are removed.
    pub(crate) fn of(&self, alike: Alike) -> Arc<CallerQueues> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, caller_queues)| caller_queues.strong_count() > 0);
        let known = all.iter().find(|(other, _)| *other == alike);
        if let Some(caller_queues) = known.and_then(|(_, caller_queues)| caller_queues.upgrade()) {
            return caller_queues;
        }
        let caller_queues = Arc::default();
        all.push((alike, Arc::downgrade(&caller_queues)));
        caller_queues
    }
}
