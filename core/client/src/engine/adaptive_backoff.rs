//! Decides whether to busy-poll again, from how often polling paid off lately. Knows nothing of what is polled.

use std::sync::atomic::{AtomicU32, Ordering};

/// After each failure in a row about twice as many polls are skipped as before, 255 at the most; one success
/// ends that.
///
/// ```
/// use quorlock::embed::AdaptiveBackoff;
///
/// let backoff = AdaptiveBackoff::default();
/// assert!(backoff.should_try());
/// backoff.record_failure();
/// backoff.record_failure();
/// assert!(!backoff.should_try());
/// assert!(backoff.should_try());
/// ```
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct AdaptiveBackoff {
    failures_in_a_row: AtomicU32,
    /// How many of the next polls are skipped.
    to_skip: AtomicU32,
}

impl AdaptiveBackoff {
    /// Whether to make the next poll; one that is skipped is counted.
    pub fn should_try(&self) -> bool {
        let to_skip = self.to_skip.load(Ordering::Relaxed);
        self.to_skip.store(to_skip.saturating_sub(1), Ordering::Relaxed);
        to_skip == 0
    }

    /// A poll found nothing.
    pub fn record_failure(&self) {
        let failures = self.failures_in_a_row.load(Ordering::Relaxed);
        self.to_skip.store((1 << failures) - 1, Ordering::Relaxed);
        self.failures_in_a_row.store((failures + 1).min(MAX_DOUBLINGS), Ordering::Relaxed);
    }

    /// A poll paid off.
    pub fn record_success(&self) {
        self.failures_in_a_row.store(0, Ordering::Relaxed);
        self.to_skip.store(0, Ordering::Relaxed);
    }
}

const MAX_DOUBLINGS: u32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_that_fail_become_rare() {
        let backoff = AdaptiveBackoff::default();
        for pause in [0, 1, 3, 7, 15, 31, 63, 127, 255, 255] {
            assert!(backoff.should_try());
            backoff.record_failure();
            assert!((0..pause).all(|_| !backoff.should_try()));
        }
        assert!(backoff.should_try());
        backoff.record_success();
        assert!(backoff.should_try());
        backoff.record_failure();
        assert!(backoff.should_try());
    }
}
