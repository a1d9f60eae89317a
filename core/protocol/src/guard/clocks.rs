//! The nodes' clocks against the lease clock. Owns the arithmetic of offsets and steps; trusts and
//! distrusts nobody.

use std::time::Duration;

use crate::identity::NodeId;
use crate::time::Moment;
use crate::validity::Drift;

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

/// How far a node's clock lies ahead of the lease clock: somewhere between two bounds, in microseconds.
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

    /// The lease clock has lost a time `since` the node's clock was read: what is known of that clock lies
    /// further ahead by now.
    pub(super) fn shift(&mut self, node: NodeId, since: Lead) {
        if let Some(known) = &mut self.offsets[node.index()] {
            known.low = known.low.saturating_add(micros(since.least));
            known.high = known.high.saturating_add(micros(since.most));
        }
    }

    /// The lease clock is set forward.
    pub(super) fn set_forward(&mut self, by: Duration) {
        for known in self.offsets.iter_mut().flatten() {
            known.low = known.low.saturating_sub(micros(by));
            known.high = known.high.saturating_sub(micros(by));
        }
    }

    /// The middle offset of all that are known: the cluster's clock, if most of them are right.
    pub(super) fn median(&self) -> Option<i64> {
        let mut middles: Vec<i64> = self.offsets.iter().flatten().map(|it| it.middle()).collect();
        middles.sort_unstable();
        middles.get(middles.len().checked_sub(1)? / 2).copied()
    }
}

/// Which clocks run at another rate than the lease clock, for long enough to be sure.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rates {
    tracks: Vec<Track>,
}

/// The rate of one clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Track {
    /// Where the clock stood when the span began that is being measured.
    from: Option<Offset>,
    /// How many spans in a row were too fast, or (below zero) too slow.
    spans: i8,
    is_told: bool,
}

impl Rates {
    pub(super) fn new(nodes: usize) -> Self {
        Self { tracks: vec![Track::default(); nodes] }
    }

    /// Forgets what was measured: the lease clock itself was not right.
    pub(super) fn begin_anew(&mut self) {
        for track in &mut self.tracks {
            (track.from, track.spans) = (None, 0);
        }
    }

    /// Measures the clock of `node`: its rate in parts per million, the first time that it has been
    /// beyond `drift` for three spans in a row. A span is as long as it takes to be sure, whatever steps
    /// within `allowance` there were; a clock that is stepped runs apart faster than any rate.
    pub(super) fn compare(
        &mut self,
        node: NodeId,
        reading: ClockReading,
        allowance: Duration,
        drift: Drift,
    ) -> Option<i64> {
        let read = Offset::of(reading);
        let track = &mut self.tracks[node.index()];
        let from = *track.from.get_or_insert(read);
        let span = micros(read.at.since(from.at));
        let most = i64::from(drift.parts_per_million()).max(MILLION / RATE_DIVISOR);
        let allowance = micros(allowance);
        if track.is_told || span < SPAN_MICROS {
            return None;
        }
        let fast = read.low.saturating_sub(from.high).saturating_sub(allowance).max(0);
        let slow = from.low.saturating_sub(read.high).saturating_sub(allowance).max(0);
        let rate = |gap: i64| gap.saturating_mul(MILLION) / span;
        let rate = rate(fast) - rate(slow);
        let is_step = rate.abs() > LARGEST_RATE;
        if rate.abs() > most && !is_step {
            let side: i8 = if rate > 0 { 1 } else { -1 };
            track.spans = if track.spans.signum() == -side { side } else { track.spans + side };
            track.from = Some(read);
            track.is_told = track.spans.abs() >= SPANS;
            return track.is_told.then_some(rate);
        }
        // So long that a rate beyond the allowance would have shown.
        let is_sure = span / 4 > allowance.saturating_mul(MILLION) / most;
        if is_step || is_sure {
            (track.from, track.spans) = (Some(read), 0);
        }
        None
    }
}

impl Offset {
    fn of(reading: ClockReading) -> Self {
        let micros = i64::try_from(reading.micros).unwrap_or(i64::MAX);
        let lies = |moment: Moment| micros.saturating_sub(epoch_micros(moment));
        Self { low: lies(reading.received), high: lies(reading.sent), at: reading.received }
    }

    /// The bounds at a later moment: clocks run apart meanwhile.
    pub(super) fn aged(self, now: Moment) -> Self {
        let slack = micros(now.since(self.at)) / RATE_DIVISOR;
        let (low, high) = (self.low.saturating_sub(slack), self.high.saturating_add(slack));
        Self { low, high, at: now.max(self.at) }
    }

    /// What both say; a step within the allowance leaves the newer.
    fn narrowed_by(self, other: Self) -> Self {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        if low <= high { Self { low, high, at: self.at } } else { self }
    }

    pub(super) const fn middle(self) -> i64 {
        self.low.midpoint(self.high)
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

/// Clocks that are kept by NTP run apart by one part in so many at the most (500 ppm).
const RATE_DIVISOR: i64 = 2000;
const MILLION: i64 = 1_000_000;
/// A rate is measured over ten seconds at least, and told when it was seen three times in a row.
const SPAN_MICROS: i64 = 10 * MILLION;
const SPANS: i8 = 3;
/// What runs apart by more than a tenth did not run, but was set.
const LARGEST_RATE: i64 = MILLION / 10;

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
