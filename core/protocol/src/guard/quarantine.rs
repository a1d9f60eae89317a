//! The end and the reason of a quarantine: the time in which a node's grants do not count. Owns the
//! words for it.

use crate::time::Moment;

/// Until when a node's grants do not count, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quarantine {
    /// When it ends, by the clock of the guards.
    pub until: Moment,
    /// Why.
    pub reason: QuarantineReason,
}

/// Why a node may have forgotten locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuarantineReason {
    /// The server was restarted.
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
            Self::NoHistory => "it is new, or has forgotten all its keys, locks among them",
            Self::ClockStepped => "its clock was set forward, so that locks may have ended early",
        }
    }
}
