//! The delays between tries to reach a node. Owns how they grow; waits for nothing.

use std::time::Duration;

use quorlock_protocol::Environment as _;

use super::settings::NodeSettings;
use crate::clock;

/// Delays that double from the shortest to the longest, each shortened by up to half at random, so
/// that many clients do not return to a node at the same time.
pub(super) struct Backoff {
    delay: Duration,
    longest: Duration,
}

impl Backoff {
    pub(super) fn new(settings: &NodeSettings) -> Self {
        Self { delay: settings.backoff_min, longest: settings.backoff_max }
    }

    pub(super) fn next(&mut self) -> Duration {
        let delay = self.delay.min(self.longest);
        self.delay = (self.delay * 2).min(self.longest);
        let random = clock::System.random()[0];
        delay.mul_f64(0.5 + f64::from(random) / 512.0)
    }
}
