//! A histogram that many threads may add to at once. Owns the buckets; knows nothing of what is
//! measured.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::value::Value;

/// How often a value fell into each bucket.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BUCKETS],
    /// In nanoseconds.
    sum: AtomicU64,
}

/// Times in buckets that double, from 16 µs to 18 minutes.
const BUCKETS: usize = 28;
/// The first bucket ends at two to the power of this, in nanoseconds.
const FIRST: u32 = 14;

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; BUCKETS], sum: AtomicU64::new(0) }
    }
}

impl Histogram {
    #[inline]
    pub(crate) fn record(&self, time: Duration) {
        self.record_nanos(crate::clock::nanos(time));
    }

    #[inline]
    pub(crate) fn record_nanos(&self, nanos: u64) {
        self.counts[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanos, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> HistogramStats {
        let counts: Vec<u64> =
            self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let exponents = (FIRST..).take(BUCKETS - 1);
        HistogramStats {
            bounds: exponents.map(|power| 2_f64.powi(power.cast_signed()) / 1e9).collect(),
            count: counts.iter().sum(),
            counts,
            sum: Duration::from_nanos(self.sum.load(Ordering::Relaxed)).as_secs_f64(),
        }
    }
}

/// The first bucket whose bound is not below the time.
#[inline]
const fn bucket(nanos: u64) -> usize {
    // A time of exactly a bound belongs below it.
    let power = u64::BITS - nanos.saturating_sub(1).leading_zeros();
    let index = power.saturating_sub(FIRST) as usize;
    if index < BUCKETS { index } else { BUCKETS - 1 }
}

/// Fractions from 0 to 1, in tenths.
#[derive(Debug, Default)]
pub(crate) struct Fractions {
    counts: [AtomicU64; 10],
    /// In millionths.
    sum: AtomicU64,
}

impl Fractions {
    pub(crate) fn record(&self, fraction: f64) {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 1")]
        let millionths = (fraction.clamp(0.0, 1.0) * 1e6) as u64;
        let tenth = usize::try_from(millionths.saturating_sub(1) / 100_000).unwrap_or(0);
        self.counts[tenth].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(millionths, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> HistogramStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let mut counts: Vec<u64> = self.counts.iter().map(load).collect();
        counts.push(0);
        HistogramStats {
            bounds: (1..=10).map(|tenth| f64::from(tenth) / 10.0).collect(),
            count: counts.iter().sum(),
            counts,
            #[expect(clippy::cast_precision_loss, reason = "a sum of fractions")]
            sum: load(&self.sum) as f64 / 1e6,
        }
    }
}

/// How often values fell into each bucket, since the manager was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramStats {
    /// The upper bound of each bucket but the last, which has none: seconds, or for the renewal
    /// slack a fraction.
    pub bounds: Vec<f64>,
    /// How many values fell into each bucket; one more than there are bounds.
    pub counts: Vec<u64>,
    /// How many values there were.
    pub count: u64,
    /// Their sum.
    pub sum: f64,
}

impl HistogramStats {
    /// The bound of the bucket that the `q`-quantile (0.99, say) fell into; `None` without values,
    /// and infinite in the last bucket.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let mut seen = 0;
        #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
        let wanted = q.clamp(0.0, 1.0) * self.count as f64;
        let index = self.counts.iter().position(|count| {
            seen += count;
            #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
            let seen = seen as f64;
            seen > 0.0 && seen >= wanted
        })?;
        Some(self.bounds.get(index).copied().unwrap_or(f64::INFINITY))
    }

    pub(super) fn value(&self) -> Value {
        let numbers = |list: &[f64]| list.iter().map(|number| Value::Number(*number)).collect();
        Value::Map(vec![
            ("bounds", Value::List(numbers(&self.bounds))),
            ("counts", Value::List(self.counts.iter().map(|it| Value::Count(*it)).collect())),
            ("count", Value::Count(self.count)),
            ("sum", Value::Number(self.sum)),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bound of the bucket that a time falls into, in nanoseconds.
    fn bound_of(time: Duration) -> u64 {
        let histogram = Histogram::default();
        histogram.record(time);
        let bound = histogram.snapshot().quantile(1.0).expect("one value");
        u64::try_from(Duration::try_from_secs_f64(bound).unwrap_or(Duration::MAX).as_nanos())
            .unwrap_or(u64::MAX)
    }

    #[test]
    fn a_time_falls_below_the_next_bound() {
        assert_eq!(bound_of(Duration::ZERO), 1 << 14);
        assert_eq!(bound_of(Duration::from_nanos(1 << 14)), 1 << 14);
        assert_eq!(bound_of(Duration::from_nanos((1 << 14) + 1)), 1 << 15);
        assert_eq!(bound_of(Duration::from_millis(1)), 1 << 20);
        assert_eq!(bound_of(Duration::from_secs(1)), 1 << 30);
        assert_eq!(bound_of(Duration::from_secs(1_000)), 1 << 40);
        assert_eq!(bound_of(Duration::from_secs(10_000)), u64::MAX, "in the last one");
    }

    #[test]
    fn quantiles_are_bounds_of_buckets() {
        let histogram = Histogram::default();
        assert_eq!(histogram.snapshot().quantile(0.5), None);
        for _ in 0..98 {
            histogram.record(Duration::from_micros(100));
        }
        histogram.record(Duration::from_millis(3));
        histogram.record(Duration::from_millis(3));
        let told = histogram.snapshot();
        assert_eq!(told.count, 100);
        assert!((told.sum - 0.0158).abs() < 1e-9, "{}", told.sum);
        assert_eq!(told.quantile(0.5), Some(131.072e-6));
        assert_eq!(told.quantile(0.99), Some(4.194_304e-3));
    }

    #[test]
    fn fractions_fall_into_tenths() {
        let slack = Fractions::default();
        for fraction in [0.0, 0.1, 0.65, 1.0, 7.0] {
            slack.record(fraction);
        }
        assert_eq!(slack.snapshot().counts, [2, 0, 0, 0, 0, 0, 1, 0, 0, 2, 0]);
    }
}
