//! Clocks that run at their own rates over one true time in milliseconds. Owns the conversion both ways.

use std::time::Duration;

use quorlock_protocol::Moment;

/// How fast a clock runs, in parts per million above true time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rate(pub(crate) i64);

impl Rate {
    /// What the clock shows at true time `now`, in nanoseconds.
    const fn nanos(self, now: u64) -> u64 {
        now * 1_000_000u64.saturating_add_signed(self.0)
    }

    /// What the clock shows at true time `now`, in whole milliseconds.
    pub(crate) const fn millis(self, now: u64) -> u64 {
        self.nanos(now) / 1_000_000
    }

    /// What the clock shows at true time `now`.
    pub(crate) const fn moment(self, now: u64) -> Moment {
        Moment::from_epoch(Duration::from_nanos(self.nanos(now)))
    }

    /// The first true time at which the clock shows `moment` or more; `None` for the far future.
    pub(crate) fn reaches(self, moment: Moment) -> Option<u64> {
        let nanos = u64::try_from(moment.since_epoch().as_nanos()).ok()?;
        Some(nanos.div_ceil(self.nanos(1)))
    }

    /// The last true time at which the clock shows `moment` or less.
    pub(crate) fn passes(self, moment: Moment) -> u64 {
        u64::try_from(moment.since_epoch().as_nanos())
            .map_or(u64::MAX, |nanos| nanos / self.nanos(1))
    }

    /// The first true time at which the clock shows `millis` or more.
    pub(crate) fn reaches_millis(self, millis: u64) -> Option<u64> {
        Some(millis.checked_mul(1_000_000)?.div_ceil(self.nanos(1)))
    }
}
