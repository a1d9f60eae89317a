//! Records which locks longer than the floor may still be held, as all clients together know them.
//! Owns how entries are joined; knows no node.
//!
//! An entry says: locks that ask nodes to keep keys for at most `key_ttl` were asked for since
//! `began`, and after `until` none of them is held. Entries are joined so that no client can
//! overwrite what another knows: the higher version wins, and an entry lasts as long as the
//! longest-lived of those that it replaces.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::clocks::ClockReading;
use super::notes::{GRAIN, HoldingNote, MOST, SHARED, is_shared};
use crate::time::Moment;

/// What is known of long locks, by the clock of the guards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Holdings {
    entries: BTreeMap<Arc<str>, Holding>,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Holding {
    pub(super) version: u64,
    pub(super) key_ttl: Duration,
    pub(super) began: Moment,
    pub(super) until: Moment,
}

impl Holding {
    /// The entry that says everything that either of the two says.
    fn joined(self, other: Self) -> Self {
        let until = self.until.max(other.until);
        let newer = if self.version >= other.version { self } else { other };
        if self.version != other.version {
            return Self { until, ..newer };
        }
        let (key_ttl, began) = (self.key_ttl.max(other.key_ttl), self.began.min(other.began));
        Self { version: self.version, key_ttl, began, until }
    }

    /// Whether `self` says nothing that `read` does not say. Small differences in time are ignored:
    /// clocks and networks cause them, and an entry would otherwise be passed on for ever.
    fn is_in(self, read: Self) -> bool {
        let is_older = read.version > self.version;
        let same = read.version == self.version
            && read.key_ttl >= self.key_ttl
            && read.began <= self.began + GRAIN;
        (is_older || same) && self.until <= read.until + GRAIN
    }
}

impl Holdings {
    /// Reads a node's notes with the longest times they allow: what this client must take into
    /// account.
    pub(super) fn read(notes: &[HoldingNote], clock: ClockReading) -> Self {
        Self::read_at(notes, clock.sent, clock.received)
    }

    /// Reads a node's notes with the shortest times they allow: what the node certainly knows.
    pub(super) fn read_sure(notes: &[HoldingNote], clock: ClockReading) -> Self {
        Self::read_at(notes, clock.received, clock.sent)
    }

    fn read_at(notes: &[HoldingNote], began: Moment, until: Moment) -> Self {
        let entry = |note: &HoldingNote| Holding {
            version: note.version,
            key_ttl: note.key_ttl,
            began: began.before(note.began),
            until: until + note.left,
        };
        Self { entries: notes.iter().map(|note| (Arc::clone(&note.name), entry(note))).collect() }
    }

    /// The same where the node's clock was set back since: it no longer tells since when the
    /// entries hold, except for those that are in `known`.
    pub(super) fn of_unknown_age(mut self, known: &Self) -> Self {
        for (name, entry) in &mut self.entries {
            let is_known = known.get(name).is_some_and(|known| known.version == entry.version);
            if !is_known {
                entry.began = Moment::default();
            }
        }
        self
    }

    /// Joins what another client has told.
    pub(super) fn join(&mut self, other: &Self) {
        for (name, entry) in &other.entries {
            self.put(name, *entry);
        }
    }

    /// Joins one entry.
    pub(super) fn put(&mut self, name: &Arc<str>, entry: Holding) {
        let known = self.entries.entry(Arc::clone(name)).or_insert(entry);
        *known = known.joined(entry);
    }

    /// Drops entries that have ended.
    pub(super) fn expire(&mut self, now: Moment) {
        self.entries.retain(|_, entry| entry.until > now);
    }

    pub(super) fn get(&self, name: &str) -> Option<Holding> {
        self.entries.get(name).copied()
    }

    /// The names of the entries that all clients share.
    pub(super) fn shared(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(|name| &**name).filter(|name| is_shared(name))
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Every entry that has not ended.
    pub(super) fn all(&self) -> impl Iterator<Item = Holding> {
        self.entries.values().copied()
    }

    /// The entries to leave on a node whose notes say `read`.
    pub(super) fn missing_in(&self, read: &Self, now: Moment) -> Vec<HoldingNote> {
        let fitting = self.fitting(read);
        let is_missing = |(name, entry): &(&Arc<str>, &Holding)| {
            entry.until > now && !read.get(name).is_some_and(|read| entry.is_in(read))
        };
        let note = |(name, entry): (&Arc<str>, &Holding)| HoldingNote {
            name: Arc::clone(name),
            version: entry.version,
            key_ttl: entry.key_ttl,
            began: now.since(entry.began),
            left: entry.until.since(now),
        };
        fitting.entries.iter().filter(is_missing).map(note).collect()
    }

    /// The same in as many entries as the node has room for, given its notes `read`: an entry
    /// without room of its own is merged into one that clients share.
    fn fitting(&self, read: &Self) -> Self {
        let mut room = MOST.saturating_sub(read.len());
        let mut fitting = Self::default();
        for (name, entry) in &self.entries {
            if read.entries.contains_key(name) || is_shared(name) {
                fitting.put(name, *entry);
            } else if room > 0 {
                room -= 1;
                fitting.put(name, *entry);
            } else if !entry.key_ttl.is_zero() {
                let key_ttl = long_class(entry.key_ttl);
                fitting.put(&shared_name(key_ttl), Holding { version: 0, key_ttl, ..*entry });
            }
        }
        fitting
    }
}

/// The name of the entry that all clients share for locks of this length.
pub(super) fn shared_name(class: Duration) -> Arc<str> {
    format!("{SHARED}{}", class.as_millis()).into()
}

/// The length under which clients share an entry for locks of more than a minute.
pub(super) fn long_class(key_ttl: Duration) -> Duration {
    let class = LONG_CLASSES.into_iter().map(Duration::from_secs).find(|class| key_ttl <= *class);
    class.unwrap_or_else(|| {
        let seconds = key_ttl.saturating_add(Duration::from_nanos(999_999_999)).as_secs();
        Duration::from_secs(HOUR.saturating_mul(seconds.div_ceil(HOUR).next_power_of_two()))
    })
}

const HOUR: u64 = 3600;
/// In seconds.
const LONG_CLASSES: [u64; 5] = [120, 300, 600, 1800, HOUR];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = Holding> {
        (0_u64..4, 0_u64..4, 0_u64..9, 0_u64..9).prop_map(|(version, key_ttl, began, until)| {
            Holding {
                version,
                key_ttl: Duration::from_secs(key_ttl),
                began: Moment::from_millis(began * 1000),
                until: Moment::from_millis(until * 1000),
            }
        })
    }

    proptest! {
        #[test]
        fn it_does_not_matter_who_tells_whom(a in entry(), b in entry(), c in entry()) {
            prop_assert_eq!(a.joined(b), b.joined(a));
            prop_assert_eq!(a.joined(b).joined(c), a.joined(b.joined(c)));
            prop_assert_eq!(a.joined(a), a);
        }

        #[test]
        fn what_was_joined_is_in_it(a in entry(), b in entry()) {
            let both = a.joined(b);
            prop_assert!(a.is_in(both) && b.is_in(both));
        }
    }

    #[test]
    fn an_entry_that_is_passed_round_ends() {
        let name: Arc<str> = "a".into();
        let now = Moment::from_millis(50_000);
        let entry = Holding {
            version: 1,
            key_ttl: Duration::from_secs(60),
            began: now,
            until: now + Duration::from_secs(9),
        };
        let mut known = Holdings::default();
        known.put(&name, entry);
        let told = known.missing_in(&Holdings::default(), now);
        // It comes back by a slow way.
        let later = now + Duration::from_millis(300);
        let read =
            Holdings::read_sure(&told, ClockReading { sent: now, received: later, micros: 0 });
        assert_eq!(known.missing_in(&read, later), []);
    }

    #[test]
    fn what_has_ended_outlives_the_news_of_it() {
        let name: Arc<str> = "a".into();
        let at = |seconds: u64| Moment::from_millis(seconds * 1000);
        let long = Holding {
            version: 1,
            key_ttl: Duration::from_secs(600),
            began: at(1),
            until: at(1300),
        };
        let over = Holding { version: 2, key_ttl: Duration::ZERO, began: at(9), until: at(30) };
        let mut known = Holdings::default();
        known.put(&name, over);
        known.put(&name, long);
        assert_eq!(known.get("a"), Some(Holding { until: at(1300), ..over }));
    }
}
