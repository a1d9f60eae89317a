//! Finds the managers of an engine whose callers wait in the same lines: those with equal nodes and equal settings.
//! Owns the list of such groups.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use quorlock_protocol::Policy;

use super::CallerLines;
use crate::address::Address;
use crate::redis_node::NodeSettings;

/// The lines of an engine, for all its managers.
#[derive(Default)]
pub(crate) struct SharedLines(Mutex<Vec<(Alike, Weak<CallerLines>)>>);

/// What managers that share their lines have in common: a try of one tells what a try of another would.
#[derive(PartialEq)]
pub(crate) struct Alike {
    pub(crate) nodes: Vec<Address>,
    pub(crate) policy: Policy,
    pub(crate) settings: NodeSettings,
}

impl SharedLines {
    /// The lines of a manager; those that no manager uses any more are removed.
    pub(crate) fn of(&self, alike: Alike) -> Arc<CallerLines> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, caller_lines)| caller_lines.strong_count() > 0);
        let known = all.iter().find(|(other, _)| *other == alike);
        if let Some(caller_lines) = known.and_then(|(_, caller_lines)| caller_lines.upgrade()) {
            return caller_lines;
        }
        let caller_lines = Arc::default();
        all.push((alike, Arc::downgrade(&caller_lines)));
        caller_lines
    }
}
