//! The states that a node can be in, and their names. Owns no node.

use std::time::Duration;

use quorlock_protocol::{Fault, Quarantine};

use crate::clock;

/// The state of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// Not tried yet, or the first connection is being made, or a lost one is being replaced, or it
    /// is not known yet whether the node remembers its locks.
    Connecting,
    /// The last command was answered.
    Healthy,
    /// Connected, but it has been silent for too long; new grants are not sent.
    Unresponsive,
    /// Connected, but it may have forgotten locks: its grants do not count.
    Quarantined(Quarantine),
    /// Connected, but it cannot be found out whether it remembers its locks, and why: grants are
    /// not sent.
    Refusing(Fault),
    /// It cannot be reached, and why.
    Down(Fault),
}

impl NodeState {
    /// A stable name for programs, for example `quarantined`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Connecting => "connecting",
            Self::Healthy => "healthy",
            Self::Unresponsive => "unresponsive",
            Self::Quarantined(_) => "quarantined",
            Self::Refusing(_) => "refusing",
            Self::Down(_) => "down",
        }
    }

    /// Why the node cannot be used now; `None` where the name says everything.
    pub fn detail(&self) -> Option<&str> {
        match self {
            Self::Connecting | Self::Healthy | Self::Unresponsive => None,
            Self::Quarantined(quarantine) => Some(quarantine.reason.describe()),
            Self::Refusing(fault) | Self::Down(fault) => Some(fault.detail()),
        }
    }

    /// After what time the node's grants count again, if they do not count until then.
    pub fn quarantine_left(&self) -> Option<Duration> {
        match self {
            Self::Quarantined(quarantine) => Some(quarantine.until.since(clock::now())),
            _ => None,
        }
    }
}
