//! The resources that others hold, as far as a connection has seen lately. Owns a guess, which costs one trip if
//! it is wrong.

use std::hash::{BuildHasher as _, RandomState};

use quorlock_protocol::Resource;

/// Remembers some resources by their hashes, the latest of each place.
pub(super) struct Contested {
    hasher: RandomState,
    places: Box<[Option<u64>; 256]>,
}

impl Default for Contested {
    fn default() -> Self {
        Self { hasher: RandomState::new(), places: Box::new([None; 256]) }
    }
}

impl Contested {
    /// Somebody else holds `resource`.
    pub(super) fn insert(&mut self, resource: &Resource) {
        let (place, hash) = self.place(resource);
        self.places[place] = Some(hash);
    }

    /// Tells whether somebody else held `resource` when it was last heard of, and forgets it: the next one
    /// to be refused says so again.
    pub(super) fn take(&mut self, resource: &Resource) -> bool {
        let (place, hash) = self.place(resource);
        self.places[place].take_if(|seen| *seen == hash).is_some()
    }

    fn place(&self, resource: &Resource) -> (usize, u64) {
        let hash = self.hasher.hash_one(resource.as_str());
        let [place, ..] = hash.to_be_bytes();
        (usize::from(place), hash)
    }
}
