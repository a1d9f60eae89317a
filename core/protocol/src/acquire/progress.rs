//! What an acquisition is doing, for those that watch it. Changes nothing.

use std::time::Duration;

use super::loss::Loss;
use super::{Acquire, State};
use crate::error::ErrorKind;
use crate::quorum::Quorum;
use crate::round::RoundReport;

impl Acquire {
    /// The round that was lost, while the machine waits before the next one.
    pub fn waits_after(&self) -> Option<&RoundReport> {
        match self.state {
            State::BackingOff { .. } => self.reports.last(),
            State::Idle | State::Voting(_) | State::Raising { .. } | State::Finished(_) => None,
        }
    }

    /// How many rounds were begun before their time, because the resource was said to be free or
    /// this process had stood still.
    pub const fn uncounted_rounds(&self) -> u32 {
        self.uncounted
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
