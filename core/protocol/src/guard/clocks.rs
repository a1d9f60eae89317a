//! The nodes' clocks against this client's. Owns the arithmetic of offsets and steps; trusts and
//! distrusts nobody.

use std::time::Duration;

use crate::identity::NodeId;
use crate::time::Moment;

/// What a node's clock showed, and between which moments of this client's clock it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClockReading {
    /// When the node was asked.
    pub sent: Moment,
    /// When its answer came.
    pub received: Moment,
    /// What it said, in microseconds since 1970.
    pub micros: u64,
}

/// How far a node's clock lies ahead of this client's clock: somewhere between two bounds, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Offset {
    pub(super) low: i64,
    pub(super) high: i64,
    pub(super) at: Moment,
}

/// What a reading says of a clock that was read before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// It went on as clocks do.
    Steady,
    /// It lies ahead of where it can be.
    Ahead(Lead),
    /// It lies behind where it can be, by at least so much.
    Behind(Duration),
}

/// How far a clock lies ahead of where it was: somewhere between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lead {
    pub(super) least: Duration,
    pub(super) most: Duration,
}

/// The offsets of all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Clocks {
    offsets: Vec<Option<Offset>>,
}

impl Clocks {
    pub(super) fn new(nodes: usize) -> Self {
        Self { offsets: vec![None; nodes] }
    }

    pub(super) fn offset(&self, node: NodeId) -> Option<Offset> {
        self.offsets[node.index()]
    }

    /// Compares a reading with what is known of the clock. What is steady is known from now on; a step
    /// is only told, until it is accepted.
    pub(super) fn compare(
        &self,
        node: NodeId,
        reading: ClockReading,
        allowance: Duration,
    ) -> (Step, Offset) {
        let read = Offset::of(reading);
        let Some(known) = self.offset(node) else {
            return (Step::Steady, read);
        };
        let known = known.aged(read.at);
        let allowance = micros(allowance);
        if read.low > known.high.saturating_add(allowance) {
            let least = duration(read.low.saturating_sub(known.high));
            return (
                Step::Ahead(Lead { least, most: duration(read.high.saturating_sub(known.low)) }),
                read,
            );
        }
        if read.high < known.low.saturating_sub(allowance) {
            return (Step::Behind(duration(known.low.saturating_sub(read.high))), read);
        }
        (Step::Steady, read.narrowed_by(known))
    }

    /// Takes an offset for what is known.
    pub(super) fn accept(&mut self, node: NodeId, offset: Offset) {
        self.offsets[node.index()] = Some(offset);
    }

    /// This client has lost a time `since` the node's clock was read: what is known of that clock lies further
    /// ahead by now.
    pub(super) fn shift(&mut self, node: NodeId, since: Lead) {
        if let Some(known) = &mut self.offsets[node.index()] {
            known.low = known.low.saturating_add(micros(since.least));
            known.high = known.high.saturating_add(micros(since.most));
        }
    }

    /// The middle offset of all that are known: the cluster's clock, if most of them are right.
    pub(super) fn median(&self, now: Moment) -> Option<Offset> {
        let known = || self.offsets.iter().flatten().map(|it| it.aged(now));
        let low = middle_one(known().map(|it| it.low).collect())?;
        let high = middle_one(known().map(|it| it.high).collect())?;
        Some(Offset { low, high, at: now })
    }
}

impl Offset {
    pub(super) fn of(reading: ClockReading) -> Self {
        let micros = i64::try_from(reading.micros).unwrap_or(i64::MAX);
        let lies = |moment: Moment| micros.saturating_sub(epoch_micros(moment));
        Self { low: lies(reading.received), high: lies(reading.sent), at: reading.received }
    }

    /// The bounds at a later moment: clocks run apart meanwhile.
    pub(super) fn aged(self, now: Moment) -> Self {
        Self { at: now.max(self.at), ..self.widened(now.since(self.at)) }
    }

    /// The bounds when so much time has passed that clocks ran apart.
    pub(super) fn widened(self, age: Duration) -> Self {
        let slack = micros(age) / RATE_DIVISOR;
        let (low, high) = (self.low.saturating_sub(slack), self.high.saturating_add(slack));
        Self { low, high, ..self }
    }

    /// How far this lies ahead of `other`.
    pub(super) fn over(self, other: Self) -> Self {
        let low = self.low.saturating_sub(other.high);
        Self { low, high: self.high.saturating_sub(other.low), at: self.at }
    }

    /// What both say; a step within the allowance leaves the newer.
    pub(super) fn narrowed_by(self, other: Self) -> Self {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        if low <= high { Self { low, high, at: self.at } } else { self }
    }

    /// What the clock shows at `now`, in microseconds.
    pub(super) fn shows_at(self, now: Moment) -> i64 {
        self.middle().saturating_add(epoch_micros(now))
    }

    pub(super) const fn middle(self) -> i64 {
        self.low.midpoint(self.high)
    }

    /// How far the truth may lie from the middle, in microseconds.
    pub(super) const fn uncertainty(self) -> u64 {
        self.low.abs_diff(self.high).div_ceil(2)
    }
}

fn middle_one(mut bounds: Vec<i64>) -> Option<i64> {
    bounds.sort_unstable();
    bounds.get(bounds.len().checked_sub(1)? / 2).copied()
}

fn epoch_micros(moment: Moment) -> i64 {
    micros(moment.since_epoch())
}

pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

pub(super) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Clocks that are kept by NTP run apart by one part in so many at the most (500 ppm).
pub(super) const RATE_DIVISOR: i64 = 2000;

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: NodeId = NodeId(0);

    fn reading(sent: u64, received: u64, shows: u64) -> ClockReading {
        let (sent, received) = (Moment::from_millis(sent), Moment::from_millis(received));
        ClockReading { sent, received, micros: shows * 1000 }
    }

    fn clocks() -> Clocks {
        let mut clocks = Clocks::new(1);
        let (step, offset) = clocks.compare(NODE, reading(100, 102, 1_101), Duration::ZERO);
        assert_eq!(step, Step::Steady);
        clocks.accept(NODE, offset);
        clocks
    }

    fn step_at(sent: u64, received: u64, shows: u64) -> Step {
        clocks().compare(NODE, reading(sent, received, shows), Duration::from_millis(10)).0
    }

    #[test]
    fn a_clock_that_goes_on_is_steady() {
        assert_eq!(step_at(200, 202, 1_201), Step::Steady);
    }

    #[test]
    fn a_slow_answer_is_no_step() {
        assert_eq!(step_at(200, 900, 1_202), Step::Steady);
        assert_eq!(step_at(200, 900, 1_899), Step::Steady);
    }

    #[test]
    fn a_step_within_the_allowance_passes() {
        assert_eq!(step_at(200, 202, 1_210), Step::Steady);
    }

    #[test]
    fn a_step_is_told_either_way() {
        assert!(matches!(step_at(200, 202, 1_251), Step::Ahead(by) if by.most.as_millis() >= 50));
        assert!(matches!(step_at(200, 202, 1_151), Step::Behind(by) if by.as_millis() >= 45));
    }

    #[test]
    fn a_long_silence_widens_the_bounds() {
        // 500 ppm of 100 s are 50 ms.
        assert_eq!(step_at(100_200, 100_202, 101_251), Step::Steady);
        assert!(matches!(step_at(100_200, 100_202, 101_301), Step::Ahead(_)));
    }

    #[test]
    fn readings_narrow_the_bounds() {
        let mut clocks = clocks();
        let (_, wide) = clocks.compare(NODE, reading(200, 300, 1_250), Duration::ZERO);
        clocks.accept(NODE, wide);
        let known = clocks.offset(NODE).map(|it| it.high - it.low);
        assert!(known < Some(2_200), "{known:?}");
    }
}
