//! How long JavaScript's thread looks on for the replies to its only operation instead of falling asleep
//! (decision 0017). Owns when that is worth it; reads no clock.

use std::time::Duration;

use quorlock::Luck;

/// What is known of the loop and of the nodes.
pub(crate) struct Stay {
    luck: Luck,
    /// When the loop was looked at last.
    before: Times,
    /// It has time to spare.
    is_idle: bool,
}

/// What an event loop has spent so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct Times {
    /// Time that has passed.
    pub(crate) all: Duration,
    /// Of it, asleep.
    pub(crate) asleep: Duration,
    /// Of it, in visits.
    pub(crate) visiting: Duration,
}

impl Stay {
    /// Knows nothing yet of a loop that has spent so much.
    pub(crate) fn new(before: Times) -> Self {
        Self { luck: Luck::default(), before, is_idle: false }
    }

    /// Takes in what the loop has spent; looks at it every now and then.
    pub(crate) fn note(&mut self, now: Times) {
        let past = now.since(self.before);
        if past.all >= WINDOW {
            self.is_idle = past.with_others() <= past.all / 2;
            self.before = now;
        }
    }

    /// Takes the next try: how long a visit may look on, with so many operations under way.
    pub(crate) fn next_limit(&self, under_way: usize) -> Duration {
        if under_way == 1 && self.is_idle && self.luck.take_try() {
            LONGEST
        } else {
            Duration::ZERO
        }
    }

    /// A visit that could look on has ended.
    pub(crate) fn judge(&self, was_of_use: bool) {
        if was_of_use {
            self.luck.succeed();
        } else {
            self.luck.fail();
        }
    }
}

impl Times {
    fn since(self, before: Self) -> Self {
        Self {
            all: self.all.saturating_sub(before.all),
            asleep: self.asleep.saturating_sub(before.asleep),
            visiting: self.visiting.saturating_sub(before.visiting),
        }
    }

    /// What went to everybody else on the loop.
    fn with_others(self) -> Duration {
        self.all.saturating_sub(self.asleep + self.visiting)
    }
}

/// The nodes of one place have answered by then.
const LONGEST: Duration = Duration::from_micros(250);
/// Over so long it is told whether a loop has time to spare.
const WINDOW: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn times(all: u64, asleep: u64, visiting: u64) -> Times {
        let millis = Duration::from_millis;
        Times { all: millis(all), asleep: millis(asleep), visiting: millis(visiting) }
    }

    #[test]
    fn only_a_loop_with_time_to_spare_looks_on() {
        // It had slept for an hour before.
        let mut stay = Stay::new(times(0, 3_600_000, 0));
        stay.note(times(15, 3_600_001, 2));
        assert_eq!(stay.next_limit(1), Duration::ZERO, "others have work to do");
        let mut stay = Stay::new(Times::default());
        assert_eq!(stay.next_limit(1), Duration::ZERO, "nothing is known yet");
        stay.note(times(100, 30, 25));
        assert_eq!(stay.next_limit(1), LONGEST);
        assert_eq!(stay.next_limit(2), Duration::ZERO, "another operation ends by itself");
        stay.note(times(109, 30, 25));
        assert_eq!(stay.next_limit(1), LONGEST, "too short to tell");
        stay.note(times(110, 32, 26));
        assert_eq!(stay.next_limit(1), Duration::ZERO, "others have work to do");
        stay.note(times(120, 32, 35));
        assert_eq!(stay.next_limit(1), LONGEST, "only locks have");
    }

    #[test]
    fn it_looks_on_less_and_less_where_that_is_in_vain() {
        let mut stay = Stay::new(Times::default());
        stay.note(times(100, 90, 0));
        let mut tries = 0;
        for _ in 0..1000 {
            if stay.next_limit(1) > Duration::ZERO {
                tries += 1;
                stay.judge(false);
            }
        }
        assert!(tries < 15, "{tries}");
        stay.judge(true);
        assert_eq!(stay.next_limit(1), LONGEST);
    }
}
