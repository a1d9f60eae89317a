//! The list of properties that must hold in every state, with their words. Owns the list; `check`
//! and `event_checks` find violations.

use std::fmt;

/// One promise of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Property {
    /// Never two valid leases of one resource at once.
    Exclusion,
    /// A valid lease stands on a quorum of nodes, from the moment it is won to its end.
    Standing,
    /// Fencing tokens of successive acquisitions strictly grow.
    Fencing,
    /// What the lock protects never takes a write of an earlier holder after one of a later.
    StaleWrite,
    /// Nobody begins while the lock-delay of a lost lease lasts, or the least hold of a released one.
    Delay,
    /// No key lasts longer on a node than the ttl that was asked for.
    Expiry,
    /// A node has all keys of a claim or none.
    Whole,
    /// No key is left on a node that nobody will take back.
    Orphan,
    /// A release tells what was the case.
    Outcome,
    /// The end of a lease is told by the clock, and a lease that was over stays over.
    LossTold,
    /// Every operation ends in the time it has, whatever the nodes do.
    Timely,
    /// No node is held back for a clock that nobody set.
    Blame,
    /// No node is held back for longer than the longest lock that may be held there.
    Wait,
    /// A node whose grants count tells all that its opener knows of long locks, and its memory has not ended.
    Memory,
    /// A lock that is free is soon taken if somebody waits for it.
    Woken,
    /// In fair mode nobody gets the lock before one who came earlier and whose turn it is.
    Fifo,
    /// A caller that has ended has no place and no watch.
    Tidy,
    /// A hand-off takes few messages, and a renewal next to none.
    Few,
    /// A single client gets the lock, from every state.
    Liveness,
}

impl Property {
    /// Its name in a table.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Exclusion => "exclusion",
            Self::Standing => "standing",
            Self::Fencing => "fencing",
            Self::StaleWrite => "stale write",
            Self::Delay => "delay",
            Self::Expiry => "expiry",
            Self::Whole => "whole",
            Self::Orphan => "orphan",
            Self::Outcome => "outcome",
            Self::LossTold => "loss told",
            Self::Timely => "timely",
            Self::Blame => "blame",
            Self::Wait => "wait",
            Self::Memory => "memory",
            Self::Woken => "woken",
            Self::Fifo => "fifo",
            Self::Tidy => "tidy",
            Self::Few => "few",
            Self::Liveness => "liveness",
        }
    }
}

/// A breach of a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) property: Property,
    pub(crate) text: String,
}

impl Violation {
    pub(crate) fn new(property: Property, text: impl Into<String>) -> Self {
        Self { property, text: text.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.property.name(), self.text)
    }
}
