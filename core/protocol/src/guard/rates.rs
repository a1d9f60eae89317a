//! How fast the nodes' clocks run beside this client's. Owns the measuring of rates; steps are none of
//! its business.

use std::time::Duration;

use super::clocks::{ClockReading, Offset, RATE_DIVISOR, micros};
use crate::identity::NodeId;
use crate::validity::Drift;

/// Which clocks run at another rate than this client's, for long enough to be sure.
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

    /// Forgets what was measured: this client's own clock was not right.
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

const MILLION: i64 = 1_000_000;
/// A rate is measured over ten seconds at least, and told when it was seen three times in a row.
const SPAN_MICROS: i64 = 10 * MILLION;
const SPANS: i8 = 3;
/// What runs apart by more than a tenth did not run, but was set.
const LARGEST_RATE: i64 = MILLION / 10;
