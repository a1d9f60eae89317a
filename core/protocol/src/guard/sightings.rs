//! Records what clients have seen of nodes and leave on the other nodes: how many beats each memory
//! had (how often its canary was written), and how far the clocks were apart. Owns how these are
//! joined; decides nothing about a node.

use std::collections::BTreeMap;

use super::clocks::{RATE_DIVISOR, micros};
use super::notes::{LeadNote, SightingNote};
use crate::time::Moment;

/// The highest number of beats known of each memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Counts {
    known: BTreeMap<u64, Count>,
    /// The memories that ended last, in that order.
    ended: Vec<u64>,
}

/// How many beats a memory had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Count {
    beats: u64,
    /// When this client learned that: a look that was sent earlier cannot contradict it.
    heard: Moment,
}

impl Counts {
    /// Records at `now` that the memory has had this many beats.
    pub(super) fn raise(&mut self, id: u64, beats: u64, now: Moment) {
        let known = self.known.entry(id).or_default();
        if beats <= known.beats {
            return;
        }
        *known = Count { beats, heard: now };
        if beats == SightingNote::ENDED {
            self.ended.push(id);
        }
        if self.ended.len() > MOST_ENDED {
            let oldest = self.ended.remove(0);
            self.known.remove(&oldest);
        }
    }

    /// The memory was replaced by a new one: if it came back, it would lack what happened since.
    pub(super) fn end(&mut self, id: u64, now: Moment) {
        self.raise(id, SightingNote::ENDED, now);
    }

    /// Whether this client learned of more beats of the memory after it sent a look at it.
    pub(super) fn are_newer(&self, id: u64, sent: Moment) -> bool {
        self.known.get(&id).is_some_and(|count| count.heard > sent)
    }

    /// The memory was looked at after all that is known of it: the time at which that was learned
    /// is not needed any more.
    pub(super) fn settle(&mut self, id: u64, sent: Moment) {
        if let Some(count) = self.known.get_mut(&id).filter(|count| count.heard <= sent) {
            count.heard = Moment::default();
        }
    }

    /// The highest known number of beats; zero if nothing is known.
    pub(super) fn of(&self, id: u64) -> u64 {
        self.known.get(&id).map_or(0, |count| count.beats)
    }

    /// The memories that must not be accepted again, the latest of them.
    pub(super) fn ended(&self) -> &[u64] {
        &self.ended
    }
}

/// What one node's notes say of other nodes' clocks, by their memories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Leads {
    known: BTreeMap<u64, Lead>,
}

/// How far another clock was ahead of this node's, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Lead {
    most_micros: i64,
    at: Moment,
}

impl Leads {
    /// Reads a node's notes at `now`.
    pub(super) fn read(notes: &[SightingNote], now: Moment) -> Self {
        let lead = |note: LeadNote| Lead { most_micros: note.aged(), at: now };
        let known = notes.iter().filter_map(|note| Some((note.id, lead(note.lead?))));
        Self { known: known.collect() }
    }

    /// How far the clock of the memory `id` may be ahead at `now`, at most, if it runs at a
    /// permitted rate.
    pub(super) fn most(&self, id: u64, now: Moment) -> Option<i64> {
        let lead = self.known.get(&id)?;
        Some(lead.most_micros.saturating_add(micros(now.since(lead.at)) / RATE_DIVISOR))
    }
}

impl LeadNote {
    /// The lead now: it may have grown, as clocks run apart.
    pub(super) fn aged(self) -> i64 {
        let age = i64::try_from(self.age_micros).unwrap_or(i64::MAX);
        self.most_micros.saturating_add(age / RATE_DIVISOR)
    }
}

/// How many memories that must not be accepted again are kept, and noted on each node.
const MOST_ENDED: usize = 32;
