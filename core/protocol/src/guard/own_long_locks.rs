//! Keeps this client's own long locks: what it must leave on the nodes about them, and for how
//! long. Never changes the entries of other clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::FLOOR;
use super::holdings::{Holding, Holdings, long_class, shared_name};
use super::notes::GRAIN;
use crate::time::Moment;

/// How long this client asks nodes to keep keys, where that is longer than the floor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct OwnLongLocks {
    /// How many locks, leases or withdrawals there are of each length.
    in_use: BTreeMap<Duration, u32>,
    /// Locks that end at a known moment: keys that no operation will take back any more.
    ending: Vec<(Duration, Moment)>,
    /// The name of this client's own entry.
    name: Option<Arc<str>>,
}

impl OwnLongLocks {
    /// A lock of this length will be asked for. `random` gives the name of this client's entry, if
    /// it needs one.
    pub(super) fn begin(&mut self, key_ttl: Duration, random: impl FnOnce() -> u64) {
        if key_ttl <= FLOOR {
            return;
        }
        *self.in_use.entry(key_ttl).or_default() += 1;
        if class_of(key_ttl).is_none() {
            self.name.get_or_insert_with(|| format!("{:016x}", random()).into());
        }
    }

    /// Keys of this length are gone at `at`. Tells whether other clients should learn that at once,
    /// because the longest lock of this client's own entry has ended.
    pub(super) fn end(&mut self, key_ttl: Duration, at: Moment, now: Moment) -> bool {
        let Some(count) = self.in_use.get_mut(&key_ttl) else {
            return false;
        };
        *count -= 1;
        let is_last = *count == 0;
        if is_last {
            self.in_use.remove(&key_ttl);
        }
        if at > now {
            self.ending.push((key_ttl, at));
            return false;
        }
        let is_own = class_of(key_ttl).is_none();
        is_own && is_last && self.in_use.keys().all(|other| *other < key_ttl)
    }

    /// Brings this client's entries in `known` up to date.
    pub(super) fn note(&mut self, known: &mut Holdings, now: Moment) {
        self.ending.retain(|(_, at)| *at > now);
        let ending = self.ending.iter().map(|(key_ttl, _)| *key_ttl);
        let all: Vec<Duration> = self.in_use.keys().copied().chain(ending).collect();
        let (long, short) =
            all.into_iter().partition::<Vec<_>, _>(|key_ttl| class_of(*key_ttl).is_none());
        for class in short.into_iter().filter_map(class_of) {
            share(known, class, now);
        }
        let longest = long.into_iter().max().unwrap_or_default();
        let Some(name) = self.name.clone() else {
            return;
        };
        match known.get(&name) {
            None if longest.is_zero() => {}
            None if known.len() >= NAMED_ENTRIES => {
                share(known, long_class(longest), now);
            }
            None => known.put(
                &name,
                Holding { version: 1, key_ttl: longest, began: now, until: end(longest, now) },
            ),
            Some(own) if own.key_ttl == longest => {
                if !longest.is_zero() {
                    known.put(&name, Holding { until: end(longest, now), ..own });
                }
            }
            Some(own) => {
                // Locks of the old length may still be held where the new one is longer.
                let began = if own.key_ttl.is_zero() { now } else { own.began };
                let until = end(longest, now).max(own.until);
                known.put(
                    &name,
                    Holding { version: own.version + 1, key_ttl: longest, began, until },
                );
            }
        }
    }

    /// Whether a node that certainly knows `sure` takes into account locks of this length, of which
    /// this client knows `known`. A node that was told late counts them only from then on, and
    /// other clients would trust it although it forgot one of them shortly before.
    pub(super) fn are_covered(
        &self,
        key_ttl: Duration,
        (sure, known): (&Holdings, &Holdings),
        now: Moment,
    ) -> bool {
        let covers = |entry: Holding| entry.key_ttl >= key_ttl && entry.until >= now + key_ttl;
        let is_early = |entry: Holding, known: Holding| entry.began <= known.began + GRAIN;
        let has = |name: &str| {
            sure.get(name)
                .zip(known.get(name))
                .is_some_and(|(entry, known)| covers(entry) && is_early(entry, known))
        };
        // Also by a shared entry of longer ones: a lease that is extended by less than before is noted by its longest time.
        key_ttl <= FLOOR || self.name.as_deref().is_some_and(has) || sure.shared().any(has)
    }
}

fn share(known: &mut Holdings, class: Duration, now: Moment) {
    let entry = Holding { version: 0, key_ttl: class, began: now, until: end(class, now) };
    known.put(&shared_name(class), entry);
}

/// Until when an entry holds that is not renewed.
fn end(key_ttl: Duration, now: Moment) -> Moment {
    now + key_ttl.saturating_mul(2).saturating_add(RENEWED_WITHIN)
}

/// The length under which all clients share an entry, for locks of up to a minute.
fn class_of(key_ttl: Duration) -> Option<Duration> {
    CLASSES.into_iter().map(Duration::from_secs).find(|class| key_ttl <= *class)
}

/// Lengths, in seconds, for which there is one entry for all clients.
const CLASSES: [u64; 5] = [15, 20, 30, 45, 60];
/// With this many entries on a node no client adds an entry of its own.
const NAMED_ENTRIES: usize = 48;
/// A client looks at its nodes at least this often while it holds anything.
const RENEWED_WITHIN: Duration = Duration::from_secs(20);
