//! Compares the nodes' clocks with the lease clock. Owns the arithmetic of offsets and steps;
//! decides nothing about nodes.

use std::time::Duration;

use crate::identity::NodeId;
use crate::time::Moment;

/// What a node's clock showed, and between which moments of the lease clock it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClockReading {
    /// When the node was asked.
    pub sent: Moment,
    /// When its answer came.
    pub received: Moment,
    /// What it said, in microseconds since 1970.
    pub micros: u64,
}

/// How far a node's clock is ahead of the lease clock: a value between two bounds, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Offset {
    pub(super) low: i64,
    pub(super) high: i64,
    pub(super) at: Moment,
}

/// How a reading compares with earlier readings of the same clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Step {
    /// The clock ran at a normal rate.
    Steady,
    /// The clock is ahead of where it can be.
    Ahead(Lead),
    /// The clock is behind where it can be, by at least this much.
    Behind(Duration),
}

/// How far a clock is ahead of where it was: a value between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Lead {
    pub(super) least: Duration,
    pub(super) most: Duration,
}

/// The clocks of all nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Clocks {
    known: Vec<Option<Known>>,
}

/// What is known of one clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Known {
    offset: Offset,
    /// The smallest upper bounds of this span of time and of the one before. Readings within the
    /// allowance do not move them. So a clock that gains a little with each reading is detected,
    /// however often it is read.
    ceilings: [Offset; 2],
    /// When this span began.
    since: Moment,
}

impl Known {
    const fn new(offset: Offset) -> Self {
        Self { offset, ceilings: [offset; 2], since: offset.at }
    }

    /// The highest offset that the clock can have at `now`.
    fn ceiling(&self, now: Moment) -> i64 {
        let [this, before] = self.ceilings.map(|it| it.aged(now).high);
        this.min(before)
    }

    fn accept(&mut self, offset: Offset) {
        let now = offset.at;
        self.offset = offset;
        let [this, before] = self.ceilings;
        self.ceilings = if now.since(self.since) >= SPAN {
            self.since = now;
            [offset, this]
        } else if offset.high < this.aged(now).high {
            [offset, before]
        } else {
            [this, before]
        };
    }
}

impl Clocks {
    pub(super) fn new(nodes: usize) -> Self {
        Self { known: vec![None; nodes] }
    }

    pub(super) fn offset(&self, node: NodeId) -> Option<Offset> {
        self.known[node.index()].map(|known| known.offset)
    }

    /// Compares a reading with what is known of the clock. A steady reading is recorded at once; a
    /// step is only reported, until the caller accepts it.
    pub(super) fn compare(
        &self,
        node: NodeId,
        reading: ClockReading,
        allowance: Duration,
    ) -> (Step, Offset) {
        let read = Offset::of(reading);
        let Some(known) = &self.known[node.index()] else {
            return (Step::Steady, read);
        };
        let ceiling = known.ceiling(read.at);
        let known = known.offset.aged(read.at);
        let allowance = micros(allowance);
        if read.low > ceiling.saturating_add(allowance) {
            let least = duration(read.low.saturating_sub(ceiling));
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

    /// Records a steady reading.
    pub(super) fn accept(&mut self, node: NodeId, offset: Offset) {
        match &mut self.known[node.index()] {
            Some(known) => known.accept(offset),
            unknown => *unknown = Some(Known::new(offset)),
        }
    }

    /// Records a reading and drops all earlier ones: the node's clock or the client's own was set.
    pub(super) fn begin_anew(&mut self, node: NodeId, offset: Offset) {
        self.known[node.index()] = Some(Known::new(offset));
    }

    /// This client was paused since the node's clock was read: the recorded offset grows by
    /// `by`.
    pub(super) fn shift(&mut self, node: NodeId, by: Lead) {
        if let Some(known) = &mut self.known[node.index()] {
            let low = known.offset.low.saturating_add(micros(by.least));
            let high = known.offset.high.saturating_add(micros(by.most));
            *known = Known::new(Offset { low, high, ..known.offset });
        }
    }
}

impl Offset {
    pub(super) fn of(reading: ClockReading) -> Self {
        let micros = i64::try_from(reading.micros).unwrap_or(i64::MAX);
        let lies = |moment: Moment| micros.saturating_sub(epoch_micros(moment));
        Self { low: lies(reading.received), high: lies(reading.sent), at: reading.received }
    }

    /// The bounds at a later moment; they widen because clocks run at different rates.
    pub(super) fn aged(self, now: Moment) -> Self {
        Self { at: now.max(self.at), ..self.widened(now.since(self.at)) }
    }

    /// The bounds after `age`, in which the clocks may have run apart.
    pub(super) fn widened(self, age: Duration) -> Self {
        let slack = micros(age) / RATE_DIVISOR;
        let (low, high) = (self.low.saturating_sub(slack), self.high.saturating_add(slack));
        Self { low, high, ..self }
    }

    /// How far this offset is above `other`.
    pub(super) fn over(self, other: Self) -> Self {
        let low = self.low.saturating_sub(other.high);
        Self { low, high: self.high.saturating_sub(other.low), at: self.at }
    }

    /// The range that both allow; after a step within the allowance, the newer range.
    pub(super) fn narrowed_by(self, other: Self) -> Self {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        if low <= high { Self { low, high, at: self.at } } else { self }
    }
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

/// A clock that gains more than the allowance within one to two such spans is detected.
const SPAN: Duration = Duration::from_secs(5);
/// Clocks that are kept by NTP run apart by at most one part in this many (500 ppm).
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
    fn a_clock_that_gains_a_little_each_time_is_found_out() {
        // 5 % fast, and read every ten milliseconds.
        let mut clocks = Clocks::new(1);
        let found = (0..1000_u64).map(|step| step * 10).find(|now| {
            let reading = ClockReading {
                sent: Moment::from_millis(*now),
                received: Moment::from_millis(now + 1),
                micros: now * 1050 + 1_000_000,
            };
            let (step, offset) = clocks.compare(NODE, reading, Duration::from_millis(102));
            clocks.accept(NODE, offset);
            matches!(step, Step::Ahead(_))
        });
        assert!(found.is_some_and(|millis| millis < 3_000), "{found:?}");
    }

    #[test]
    fn a_clock_within_the_rate_of_clocks_is_never_found_out() {
        let mut clocks = Clocks::new(1);
        for now in (0..200_000_u64).step_by(100) {
            let reading = ClockReading {
                sent: Moment::from_millis(now),
                received: Moment::from_millis(now),
                micros: now * 1000 + now / 2 + 1_000_000,
            };
            let (step, offset) = clocks.compare(NODE, reading, Duration::from_millis(10));
            assert_eq!(step, Step::Steady, "at {now} ms");
            clocks.accept(NODE, offset);
        }
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
