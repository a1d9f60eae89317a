//! Decides how long JavaScript's thread polls for the replies to its only operation instead of
//! sleeping (decision 0017). Reads no clock.

use std::time::Duration;

use quorlock::embed::AdaptiveBackoff;

/// Whether polling has succeeded so far, and whether the loop has time for it.
pub(crate) struct PollBudget {
    backoff: AdaptiveBackoff,
    /// At the last measurement of the loop.
    before: LoopTimes,
    /// The loop was idle for half of the time before it.
    is_idle: bool,
}

/// How an event loop has spent its time so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct LoopTimes {
    /// The time that has passed.
    pub(crate) all: Duration,
    /// The part of it in which the loop waited, with nothing to do.
    pub(crate) idle_time: Duration,
    /// The part of it in which the loop drove the engine.
    pub(crate) driving: Duration,
}

impl PollBudget {
    /// A budget for a loop with these times so far.
    pub(crate) fn new(before: LoopTimes) -> Self {
        Self { backoff: AdaptiveBackoff::default(), before, is_idle: false }
    }

    /// Measures the loop, at most once in [`WINDOW`].
    pub(crate) fn measure(&mut self, now: LoopTimes) {
        let past = now.since(self.before);
        if past.all >= WINDOW {
            self.is_idle = past.other_work() <= past.all / 2;
            self.before = now;
        }
    }

    /// How long the loop's thread may poll now, with this many operations under way.
    pub(crate) fn next_limit(&self, under_way: usize) -> Duration {
        if under_way == 1 && self.is_idle && self.backoff.should_try() {
            LONGEST_POLL
        } else {
            Duration::ZERO
        }
    }

    /// The thread has polled: `has_ended` tells whether the operation ended meanwhile.
    pub(crate) fn record(&self, has_ended: bool) {
        if has_ended {
            self.backoff.record_success();
        } else {
            self.backoff.record_failure();
        }
    }
}

impl LoopTimes {
    fn since(self, before: Self) -> Self {
        Self {
            all: self.all.saturating_sub(before.all),
            idle_time: self.idle_time.saturating_sub(before.idle_time),
            driving: self.driving.saturating_sub(before.driving),
        }
    }

    /// Time of all other work on the loop.
    fn other_work(self) -> Duration {
        self.all.saturating_sub(self.idle_time + self.driving)
    }
}

/// Nodes in the same data centre have answered within this time.
const LONGEST_POLL: Duration = Duration::from_micros(250);
/// The time over which a loop is measured.
const WINDOW: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn times(all: u64, idle_time: u64, driving: u64) -> LoopTimes {
        let millis = Duration::from_millis;
        LoopTimes { all: millis(all), idle_time: millis(idle_time), driving: millis(driving) }
    }

    #[test]
    fn only_a_loop_with_time_to_spare_polls() {
        // The loop had slept for an hour before.
        let mut budget = PollBudget::new(times(0, 3_600_000, 0));
        budget.measure(times(15, 3_600_001, 2));
        assert_eq!(budget.next_limit(1), Duration::ZERO, "others have work to do");
        let mut budget = PollBudget::new(LoopTimes::default());
        assert_eq!(budget.next_limit(1), Duration::ZERO, "nothing is known yet");
        budget.measure(times(100, 30, 25));
        assert_eq!(budget.next_limit(1), LONGEST_POLL);
        assert_eq!(budget.next_limit(2), Duration::ZERO, "another operation ends by itself");
        budget.measure(times(109, 30, 25));
        assert_eq!(budget.next_limit(1), LONGEST_POLL, "too short to tell");
        budget.measure(times(110, 32, 26));
        assert_eq!(budget.next_limit(1), Duration::ZERO, "others have work to do");
        budget.measure(times(120, 32, 35));
        assert_eq!(budget.next_limit(1), LONGEST_POLL, "only locks have");
    }

    #[test]
    fn polls_rarely_where_that_finds_nothing() {
        let mut budget = PollBudget::new(LoopTimes::default());
        budget.measure(times(100, 90, 0));
        let mut tries = 0;
        for _ in 0..1000 {
            if budget.next_limit(1) > Duration::ZERO {
                tries += 1;
                budget.record(false);
            }
        }
        assert!(tries < 15, "{tries}");
        budget.record(true);
        assert_eq!(budget.next_limit(1), LONGEST_POLL);
    }
}
