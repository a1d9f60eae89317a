//! What a look at a node tells, and what is to be done about it. Owns the words between the guards and
//! the node; knows no wire format.

use std::sync::Arc;
use std::time::Duration;

use super::canary::Canary;
use super::clocks::ClockReading;
use crate::time::Moment;

/// What is read of a node at every connection, and now and then.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Checkup {
    /// The run of the server: a new one with each start of it.
    pub run: Arc<str>,
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
    Present(Canary),
    /// Something that this version cannot read.
    Unreadable(Arc<str>),
}

impl CanaryKey {
    /// Reads the text of the key.
    pub fn read(text: Option<&str>) -> Self {
        let Some(text) = text else {
            return Self::Absent;
        };
        text.parse().map_or_else(|_| Self::Unreadable(text.into()), Self::Present)
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

/// What clients leave on a node for those that come later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Notes {
    /// The longest time for which anyone asked the nodes to keep a key; zero if nobody has.
    pub longest: Duration,
    /// How the node's clock stands to the middle one of all nodes, as it was seen last.
    pub skew: Option<Skew>,
}

/// How a node's clock stood to those of the other nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Skew {
    /// Ahead of the middle one, in microseconds.
    pub ahead_micros: i64,
    /// By how much that may be wrong, either way: whoever noted it had read the clocks over a network.
    pub uncertainty_micros: u64,
    /// When that was, by the node's clock.
    pub node_micros: u64,
}

/// What to do after a [`Checkup`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ruling {
    /// Grants count, as long as this stands in the canary key (empty: whatever stands there).
    Trusted(Arc<str>),
    /// If `expected` still stands in the canary key, put `canary` there; then look again.
    Write {
        /// What was found there.
        expected: Option<Arc<str>>,
        /// What is to stand there.
        canary: Arc<str>,
    },
    /// Grants do not count before `until`; look again then, or sooner.
    Quarantined(Quarantine),
    /// It depends on the other nodes. Grants do not count; look again when more is known of them, at
    /// this moment at the latest.
    Undecided(Moment),
}

/// Until when a node's grants do not count, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quarantine {
    /// The end of it, by the clock that the guards go by.
    pub until: Moment,
    /// Why.
    pub reason: QuarantineReason,
}

/// Why a node may have forgotten locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuarantineReason {
    /// The server was started anew.
    Restarted,
    /// Its keys were deleted (`FLUSHALL`, `FLUSHDB`) or replaced.
    Forgot,
    /// It has no history, and other nodes of the cluster have one.
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
            Self::NoHistory => "it is new beside nodes that are not, and may have forgotten locks",
            Self::ClockStepped => "its clock was set forward, so that locks may have ended early",
        }
    }
}
