//! Remembers which resources other clients held when this session last asked. A guess: a wrong one costs one round trip.

use std::hash::{BuildHasher as _, RandomState};

use quorlock_protocol::Resource;

/// Remembers some resources by their hashes, one for each slot of a small table.
pub(super) struct ContentionCache {
    hasher: RandomState,
    /// `None` before the first.
    places: Option<Box<[Option<u64>; PLACES]>>,
    /// How many places are taken. Mostly none, and then nothing is hashed.
    taken: usize,
}

#[cfg(test)]
impl std::fmt::Debug for ContentionCache {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.taken.fmt(out)
    }
}

impl Default for ContentionCache {
    fn default() -> Self {
        Self { hasher: RandomState::new(), places: None, taken: 0 }
    }
}

impl ContentionCache {
    /// Another client holds `resource`.
    pub(super) fn insert(&mut self, resource: &Resource) {
        let (place, hash) = self.place(resource);
        let places = self.places.get_or_insert_with(|| Box::new([None; PLACES]));
        self.taken += usize::from(places[place].replace(hash).is_none());
    }

    /// Whether another client held `resource` when it was asked for last. Forgets it: the next refusal says so again.
    pub(super) fn take(&mut self, resource: &Resource) -> bool {
        if self.taken == 0 {
            return false;
        }
        let (place, hash) = self.place(resource);
        let Some(places) = &mut self.places else {
            return false;
        };
        let was_held = places[place].take_if(|seen| *seen == hash).is_some();
        self.taken -= usize::from(was_held);
        was_held
    }

    fn place(&self, resource: &Resource) -> (usize, u64) {
        let hash = self.hasher.hash_one(resource.as_str());
        let [place, ..] = hash.to_be_bytes();
        (usize::from(place), hash)
    }
}

const PLACES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_remembered_once() {
        let name = |number: u32| Resource::new(&format!("invoice:{number}")).unwrap();
        let mut contention = ContentionCache::default();
        assert!(!contention.take(&name(1)));
        contention.insert(&name(1));
        contention.insert(&name(1));
        assert!(contention.take(&name(1)));
        assert!(!contention.take(&name(1)));
        // There are more than slots: later ones replace earlier ones.
        (0..1000).for_each(|number| contention.insert(&name(number)));
        let remembered = (0..1000).filter(|number| contention.take(&name(*number))).count();
        assert!((128..=256).contains(&remembered), "{remembered}");
        assert_eq!(contention.taken, 0);
    }
}
