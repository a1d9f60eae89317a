//! What a look at a node tells, and what is to be done about it. Owns the words between the guards and
//! the node; knows no wire format.

use std::sync::Arc;
use std::time::Duration;

use super::canary::{Canary, Relied};
use super::clocks::ClockReading;
use super::holdings::GRAIN;
use crate::time::Moment;

/// What is read of a node at every connection, and now and then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkup {
    /// The run of the server: a new one with each start of it. `None` if this user may not ask.
    pub run: Option<Arc<str>>,
    /// What changes when the server takes its keys from elsewhere. `None` if this user may not ask.
    pub line: Option<Arc<str>>,
    /// Whether it writes every change to disk before it answers.
    pub durable: bool,
    /// What stands in its canary key.
    pub canary: CanaryKey,
    /// Its clock.
    pub clock: ClockReading,
    /// What other clients have left there.
    pub notes: Notes,
}

/// What stands in a canary key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum CanaryKey {
    /// Nothing.
    Absent,
    /// A canary.
    Present(Box<Canary>),
    /// Something that this version cannot read.
    Unreadable(Arc<str>),
}

impl CanaryKey {
    /// Reads the text of the key.
    pub fn read(text: Option<&str>) -> Self {
        let Some(text) = text else {
            return Self::Absent;
        };
        let canary = text.parse().map(Box::new);
        canary.map_or_else(|_| Self::Unreadable(text.into()), Self::Present)
    }

    /// Whether it was written by a later time than the node's clock shows: that was set back since.
    pub(super) fn is_ahead_of(&self, micros: u64) -> bool {
        let margin = u64::try_from(GRAIN.as_micros()).unwrap_or(u64::MAX);
        matches!(self, Self::Present(it) if it.node_micros > micros.saturating_add(margin))
    }

    /// The text of the key.
    pub fn text(&self) -> Option<Arc<str>> {
        match self {
            Self::Absent => None,
            Self::Present(canary) => Some(canary.to_string().into()),
            Self::Unreadable(text) => Some(Arc::clone(text)),
        }
    }
}

/// What clients leave on a node for each other. All times are told from the moment of the look, so that
/// nobody needs another's clock to read them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notes {
    /// For how long locks may be held that last longer than the floor.
    pub holdings: Vec<HoldingNote>,
    /// What was seen of the memories and the clocks of other nodes.
    pub sightings: Vec<SightingNote>,
}

/// One entry about locks that last longer than the floor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldingNote {
    /// Whose entry: a manager's, or a length that many managers share.
    pub name: Arc<str>,
    /// A higher one replaces a lower one.
    pub version: u64,
    /// The longest time for which nodes are asked to keep a key; zero if such locks have ended.
    pub keep: Duration,
    /// No lock of the entry was asked for longer ago than this.
    pub began: Duration,
    /// After so long the entry says nothing any more.
    pub left: Duration,
}

/// What was seen of another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SightingNote {
    /// Its memory.
    pub id: u64,
    /// The highest number of beats that was seen of it; [`SightingNote::ENDED`] if it must not come back.
    pub count: u64,
    /// How its clock stood to that of the node that the note is left on.
    pub lead: Option<LeadNote>,
}

impl SightingNote {
    /// The count of a memory that was replaced by a new one. The largest number that Lua keeps exactly.
    pub const ENDED: u64 = (1 << 53) - 1;
}

/// How far the clock of one node was ahead of another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeadNote {
    /// At most so many microseconds ahead (below zero: at least so many behind)
    pub most_micros: i64,
    /// so many microseconds ago.
    pub age_micros: u64,
    /// Whether it replaces what was noted before, however much it is: the node that it is left on was seen to have
    /// its clock set back.
    pub anew: bool,
}

/// What to do after a [`Checkup`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ruling {
    /// Grants count.
    Open(Pass),
    /// Leave the notes there, and put the canary there if what was found still stands; then look again.
    Write(Writing),
    /// Grants do not count before `until`; look again then, and every second before.
    Quarantined(Quarantine),
    /// It depends on the other nodes. Grants do not count; look again when more is known of them, at
    /// this moment at the latest.
    Undecided(Moment),
}

/// Under which conditions a node's grants count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pass {
    /// What must stand in the canary key.
    pub relied: Relied,
    /// The longest time for which a grant may ask the node to keep a key.
    pub longest: Duration,
}

/// A canary to be put in the place of what was found.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Writing {
    /// What was found in the canary key.
    pub expected: Option<Arc<str>>,
    /// What is to stand there, without the node's clock, which the node puts behind it.
    pub canary: Arc<str>,
}

/// Until when a node's grants do not count, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quarantine {
    /// The end of it, by the clock of the guards.
    pub until: Moment,
    /// Why.
    pub reason: QuarantineReason,
}

/// Why a node may have forgotten locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuarantineReason {
    /// The server was started anew.
    Restarted,
    /// Its keys were deleted (`FLUSHALL`, `FLUSHDB`) or replaced by older ones.
    Forgot,
    /// It has no history, and it is not certain that the whole cluster is new.
    NoHistory,
    /// Its clock was stepped forward, so that keys may have ended early.
    ClockStepped,
}

impl QuarantineReason {
    /// Every reason, in a fixed order.
    pub const ALL: [Self; 4] = [Self::Restarted, Self::Forgot, Self::NoHistory, Self::ClockStepped];

    /// A stable name for programs, for example `restarted`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Restarted => "restarted",
            Self::Forgot => "forgot",
            Self::NoHistory => "no-history",
            Self::ClockStepped => "clock-stepped",
        }
    }

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }

    /// What happened, for the middle of a sentence about the node.
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Restarted => "it was restarted and may have forgotten locks",
            Self::Forgot => "its keys were deleted or replaced, locks among them",
            Self::NoHistory => "it is new, or has forgotten all that it knew",
            Self::ClockStepped => "its clock was set forward, so that locks may have ended early",
        }
    }
}
