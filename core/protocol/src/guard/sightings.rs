//! What clients have seen of nodes and leave on the others: how often each memory was beaten, and how the clocks
//! stood to each other. Owns the joining of it; judges nobody.

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

/// How often a memory was beaten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Count {
    beats: u64,
    /// When this client heard so: what a node answered to a look that was sent before proves nothing against it.
    heard: Moment,
}

impl Counts {
    /// Learns at `now` that the memory was beaten so often.
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

    /// The memory was replaced by a new one: should it come back, it lacks what happened since.
    pub(super) fn end(&mut self, id: u64, now: Moment) {
        self.raise(id, SightingNote::ENDED, now);
    }

    /// Whether more beats of the memory were heard of after a look at it was sent.
    pub(super) fn are_newer(&self, id: u64, sent: Moment) -> bool {
        self.known.get(&id).is_some_and(|count| count.heard > sent)
    }

    /// The memory was looked at after all that is known of it: when that was heard is of no use any more.
    pub(super) fn settle(&mut self, id: u64, sent: Moment) {
        if let Some(count) = self.known.get_mut(&id).filter(|count| count.heard <= sent) {
            count.heard = Moment::default();
        }
    }

    /// Zero if nothing is known of it.
    pub(super) fn of(&self, id: u64) -> u64 {
        self.known.get(&id).map_or(0, |count| count.beats)
    }

    /// The memories that must not come back, the latest of them.
    pub(super) fn ended(&self) -> &[u64] {
        &self.ended
    }
}

/// What one node tells of the clocks of others, by their memories.
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
    /// Reads what a node told at `now`.
    pub(super) fn read(notes: &[SightingNote], now: Moment) -> Self {
        let lead = |note: LeadNote| Lead { most_micros: note.aged(), at: now };
        let known = notes.iter().filter_map(|note| Some((note.id, lead(note.lead?))));
        Self { known: known.collect() }
    }

    /// How far at most the clock of the memory `id` may be ahead at `now`, if it runs as clocks do.
    pub(super) fn most(&self, id: u64, now: Moment) -> Option<i64> {
        let lead = self.known.get(&id)?;
        Some(lead.most_micros.saturating_add(micros(now.since(lead.at)) / RATE_DIVISOR))
    }
}

impl LeadNote {
    /// What may have become of the lead since: clocks run apart.
    pub(super) fn aged(self) -> i64 {
        let age = i64::try_from(self.age_micros).unwrap_or(i64::MAX);
        self.most_micros.saturating_add(age / RATE_DIVISOR)
    }
}

/// How many memories that must not come back are kept, and told to each node.
const MOST_ENDED: usize = 32;
