//! Finds the managers of an engine whose callers wait in the same lines: those with equal nodes and equal settings.
//! Owns the list of such groups.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use quorlock_protocol::Policy;

use super::Turnstile;
use crate::address::Address;
use crate::redis_node::NodeSettings;

/// The lines of an engine, for all its managers.
#[derive(Default)]
pub(crate) struct Turnstiles(Mutex<Vec<(Alike, Weak<Turnstile>)>>);

/// What managers that share their lines have in common: a try of one tells what a try of another would.
#[derive(PartialEq)]
pub(crate) struct Alike {
    pub(crate) nodes: Vec<Address>,
    pub(crate) policy: Policy,
    pub(crate) settings: NodeSettings,
}

impl Turnstiles {
    /// The lines of a manager; those that no manager uses any more are removed.
    pub(crate) fn of(&self, alike: Alike) -> Arc<Turnstile> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|(_, turnstile)| turnstile.strong_count() > 0);
        let known = all.iter().find(|(other, _)| *other == alike);
        if let Some(turnstile) = known.and_then(|(_, turnstile)| turnstile.upgrade()) {
            return turnstile;
        }
        let turnstile = Arc::default();
        all.push((alike, Arc::downgrade(&turnstile)));
        turnstile
    }
}
