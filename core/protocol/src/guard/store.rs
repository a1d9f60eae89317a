//! What a node stores for the guards, and how a client's look reads and changes it, for nodes that
//! are not servers. The script for real nodes does the same, and a test compares the two.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::checkup::{CanaryKey, Writing};
use super::clocks::RATE_DIVISOR;
use super::notes::{HoldingNote, LeadNote, MOST, Notes, SightingNote, is_shared};

/// The keys for the guards on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct GuardStore {
    /// What stands in the canary key.
    pub canary: Option<Arc<str>>,
    holdings: BTreeMap<Arc<str>, StoredHolding>,
    sightings: BTreeMap<u64, StoredSighting>,
}

/// Times by the node's clock, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StoredHolding {
    version: u64,
    key_ttl: u64,
    began: i64,
    until: i64,
}

/// Times by the node's clock, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct StoredSighting {
    count: u64,
    most: Option<i64>,
    at: i64,
}

impl GuardStore {
    /// One look while the node's clock shows `micros`: replaces the expected canary by the new one,
    /// joins the client's notes, and returns what is stored then.
    pub fn look(
        &mut self,
        writing: Option<&Writing>,
        left: &Notes,
        micros: u64,
    ) -> (CanaryKey, Notes) {
        if let Some(Writing { expected, canary }) = writing
            && self.canary == *expected
        {
            self.canary = Some(format!("{canary} {micros}").into());
        }
        let now = i64::try_from(micros).unwrap_or(i64::MAX);
        if self.canary.is_some() {
            self.join(left, now);
        }
        (CanaryKey::read(self.canary.as_deref()), self.notes(now))
    }

    fn join(&mut self, left: &Notes, now: i64) {
        let millis = now / 1000;
        self.holdings.retain(|_, entry| entry.until > millis);
        for note in &left.holdings {
            let fresh = StoredHolding {
                version: note.version,
                key_ttl: in_millis(note.key_ttl).unsigned_abs(),
                began: millis.saturating_sub(in_millis(note.began)),
                until: millis.saturating_add(in_millis(note.left)),
            };
            let is_full = self.holdings.len() >= MOST;
            match self.holdings.get_mut(&note.name) {
                Some(known) => *known = known.joined(fresh),
                None if is_full && !is_shared(&note.name) => {}
                None => drop(self.holdings.insert(Arc::clone(&note.name), fresh)),
            }
        }
        for note in &left.sightings {
            let known = self.sightings.entry(note.id).or_insert(StoredSighting {
                count: note.count,
                most: None,
                at: now,
            });
            known.count = known.count.max(note.count);
            if let Some(lead) = note.lead
                && (lead.anew || known.aged(now).is_none_or(|most| lead.most_micros < most))
            {
                (known.most, known.at) = (Some(lead.most_micros), now);
            }
        }
        while self.sightings.len() > MOST {
            let oldest = self
                .sightings
                .iter()
                .min_by_key(|(id, it)| (it.at, id.to_string()))
                .map(|(id, _)| *id);
            oldest.map(|id| self.sightings.remove(&id));
        }
    }

    fn notes(&self, now: i64) -> Notes {
        let millis = now / 1000;
        let ago = |then: i64| Duration::from_millis(u64::try_from(millis - then).unwrap_or(0));
        let holdings = self.holdings.iter().filter(|(_, entry)| entry.until > millis);
        let holding = |(name, entry): (&Arc<str>, &StoredHolding)| HoldingNote {
            name: Arc::clone(name),
            version: entry.version,
            key_ttl: Duration::from_millis(entry.key_ttl),
            began: ago(entry.began),
            left: Duration::from_millis(u64::try_from(entry.until - millis).unwrap_or(0)),
        };
        let sighting = |(id, seen): (&u64, &StoredSighting)| SightingNote {
            id: *id,
            count: seen.count,
            lead: seen.most.filter(|_| seen.at <= now).map(|most_micros| LeadNote {
                most_micros,
                age_micros: (now - seen.at).unsigned_abs(),
                anew: false,
            }),
        };
        Notes {
            holdings: holdings.map(holding).collect(),
            sightings: self.sightings.iter().map(sighting).collect(),
        }
    }
}

impl StoredHolding {
    fn joined(self, fresh: Self) -> Self {
        let until = self.until.max(fresh.until);
        if fresh.version != self.version {
            let newer = if fresh.version > self.version { fresh } else { self };
            return Self { until, ..newer };
        }
        let (key_ttl, began) = (self.key_ttl.max(fresh.key_ttl), self.began.min(fresh.began));
        Self { version: self.version, key_ttl, began, until }
    }
}

impl StoredSighting {
    /// How far the other clock may be ahead by now; `None` if nothing is known, or this node's
    /// clock was set back since.
    fn aged(self, now: i64) -> Option<i64> {
        let most = self.most.filter(|_| self.at <= now)?;
        Some(most.saturating_add((now - self.at) / RATE_DIVISOR))
    }
}

fn in_millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
