//! Finds nodes that are interchangeable, so that fewer states are searched. Owns the short record
//! of what happened to each node.

use std::hash::{Hash, Hasher};

use crate::print::fingerprint;
use crate::world::World;

/// What has happened to each node, in short: nodes with the same view are interchangeable.
///
/// A schedule and its mirror image, with two such nodes exchanged, come to the same; the search walks
/// one of them. What happened is no part of the state, so that states are merged whatever led to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Views(pub(crate) Vec<u64>);

impl PartialEq for Views {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Views {}

impl Hash for Views {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl World {
    /// Notes that something happened between a client and a node.
    pub(crate) fn note(&mut self, client: u8, node: u8, what: impl Hash) {
        let seen = self.clients[usize::from(client)].outline();
        let view = &mut self.views.0[usize::from(node)];
        *view = fingerprint(&(*view, client, self.now, seen, what));
    }

    /// Whether no node before this one is interchangeable with it.
    pub(crate) fn stands_for_its_like(&self, node: u8) -> bool {
        let (before, rest) = self.views.0.split_at(usize::from(node));
        !before.contains(&rest[0])
    }
}
