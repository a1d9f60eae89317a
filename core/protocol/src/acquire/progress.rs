//! What an acquisition is doing, for those that watch it. Changes nothing.

use std::time::Duration;

use super::loss::Loss;
use super::{Acquire, State};
use crate::error::ErrorKind;
use crate::queue::WakeCause;
use crate::quorum::Quorum;
use crate::round::RoundReport;

impl Acquire {
    /// Whether the machine waits before the next round.
    pub const fn is_between_rounds(&self) -> bool {
        matches!(self.state, State::BackingOff { .. } | State::Waiting(_))
    }

    /// Whether the acquisition has ended, apart from what the nodes still have to be told.
    pub const fn has_ended(&self) -> bool {
        matches!(self.state, State::Finished(_))
    }

    /// The last round that was lost.
    pub fn last_lost(&self) -> Option<&RoundReport> {
        self.reports.last()
    }

    /// How many callers are before this one in the nodes' queues, as far as it is known: the fewest of all nodes.
    pub fn rank(&self) -> Option<u32> {
        match &self.state {
            State::Waiting(waiting) => waiting.rank(),
            _ => None,
        }
    }

    /// What ended the last wait.
    pub const fn woken_by(&self) -> WakeCause {
        self.woken_by
    }
}

impl RoundReport {
    /// Whether the round was lost because another holds the resource, and not for broken nodes.
    pub fn is_contended(&self, quorum: Quorum) -> bool {
        Loss::of(self, quorum).kind == ErrorKind::NotAcquired
    }

    /// When a quorum may be free, if the holders neither release nor extend; `None` if the nodes
    /// did not tell.
    pub fn frees_in(&self, quorum: Quorum) -> Option<Duration> {
        Loss::of(self, quorum).frees_in
    }
}
