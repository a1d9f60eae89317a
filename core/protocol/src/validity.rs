//! Computes how long a lease may be trusted. The only place where elapsed time and drift are
//! subtracted.

use std::time::Duration;

use crate::error::ConfigError;
use crate::time::{Moment, Ttl};

/// How far the clocks of the client and of the nodes may run apart during one ttl.
///
/// `ttl * factor + constant`: the factor covers different clock rates, the constant covers the
/// grain of a node's expiry (1 ms) and of its clock. Every rounding shortens the validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Drift {
    parts_per_million: u32,
}

impl Drift {
    /// The part that does not depend on the ttl.
    pub const CONSTANT: Duration = Duration::from_millis(2);

    const MILLION: u32 = 1_000_000;

    /// An allowance of `factor` of the ttl, for example 0.01.
    ///
    /// # Errors
    /// [`ConfigError`] unless `0 <= factor < 1`.
    pub fn from_factor(factor: f64) -> Result<Self, ConfigError> {
        if !(0.0..1.0).contains(&factor) {
            return Err(ConfigError::new(format!(
                "the drift factor must be at least 0 and below 1, not {factor}"
            )));
        }
        // In range by the check above, and rounded up, which shortens the validity.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let parts_per_million = (factor * f64::from(Self::MILLION)).ceil() as u32;
        Ok(Self { parts_per_million })
    }

    /// The allowance as a part of the ttl.
    pub fn factor(self) -> f64 {
        f64::from(self.parts_per_million) / f64::from(Self::MILLION)
    }

    /// The allowance for one `ttl`.
    pub fn of(self, ttl: Ttl) -> Duration {
        let nanos = u128::from(ttl.as_millis()) * u128::from(self.parts_per_million);
        // ms * ppm is nanoseconds exactly: 1 ms is 1e6 ns, and a part per million takes the 1e6 away.
        let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
        let rest = u32::try_from(nanos % 1_000_000_000).unwrap_or(0);
        Duration::new(seconds, rest).saturating_add(Self::CONSTANT)
    }

    /// Whether a `ttl` leaves anything after the allowance.
    ///
    /// # Errors
    /// [`ConfigError`] if it does not.
    pub fn check(self, ttl: Ttl) -> Result<(), ConfigError> {
        if ttl.as_duration() > self.of(ttl) {
            return Ok(());
        }
        Err(ConfigError::new(format!(
            "ttl {} ms is not above the drift allowance of {:.2} ms (ttl * {} + {} ms), \
             so that no lease could ever be valid",
            ttl.as_millis(),
            self.of(ttl).as_secs_f64() * 1000.0,
            self.factor(),
            Self::CONSTANT.as_millis(),
        )))
    }

    /// When a lease ends whose round started at `start`: `start + ttl - drift`.
    ///
    /// Counted from the start of the round and not from its replies: a node may have set the key
    /// right after the round started.
    pub fn end_of(self, ttl: Ttl, start: Moment) -> Moment {
        start + ttl.as_duration().saturating_sub(self.of(ttl))
    }

    /// The ttl with which keys last for `time` on a node with the fastest permitted clock.
    pub(crate) fn lasting(self, time: Duration) -> Ttl {
        let slower = u128::from(Self::MILLION.saturating_sub(self.parts_per_million).max(1));
        let nanos = time.as_nanos().saturating_mul(u128::from(Self::MILLION)).div_ceil(slower);
        let millis = u64::try_from(nanos.div_ceil(1_000_000)).unwrap_or(u64::MAX);
        Ttl::SHORTEST.and(Duration::from_millis(millis).saturating_add(Self::CONSTANT))
    }

    /// When the keys have expired on the node with the slowest permitted clock, if it was asked at
    /// `asked` at the latest.
    pub(crate) fn keys_expire_by(self, ttl: Ttl, asked: Moment) -> Moment {
        asked + ttl.as_duration() + self.of(ttl)
    }
}

impl Default for Drift {
    /// One per cent.
    fn default() -> Self {
        Self { parts_per_million: 10_000 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_per_cent_and_two_milliseconds() {
        let ttl = Ttl::from_millis(10_000).unwrap();
        assert_eq!(Drift::default().of(ttl), Duration::from_millis(102));
        let end = Drift::default().end_of(ttl, Moment::from_millis(5));
        assert_eq!(end, Moment::from_millis(9_903));
    }

    #[test]
    fn a_ttl_within_the_drift_is_refused() {
        assert!(Drift::default().check(Ttl::from_millis(2).unwrap()).is_err());
        assert!(Drift::default().check(Ttl::from_millis(3).unwrap()).is_ok());
    }

    proptest! {
        #[test]
        fn a_lease_ends_before_the_slowest_allowed_node_forgets(
            ttl in 3_u64..Ttl::LIMIT_MILLIS, ppm in 0_u32..990_000, start in 0_u64..1 << 40,
        ) {
            let drift = Drift { parts_per_million: ppm };
            let ttl = Ttl::from_millis(ttl).unwrap();
            let start = Moment::from_millis(start);
            let end = drift.end_of(ttl, start);
            prop_assert!(end <= start + ttl.as_duration());
            // The allowance with the rounded-up part is at least the exact product.
            let exact = u128::from(ttl.as_millis()) * u128::from(ppm);
            prop_assert!(ttl.as_duration().saturating_sub(end.since(start)).as_nanos()
                >= exact.min(ttl.as_duration().as_nanos()));
        }

        #[test]
        fn keys_last_for_the_time_wanted_on_the_fastest_allowed_node(
            time in 1_u64..1 << 40, ppm in 0_u32..990_000,
        ) {
            let drift = Drift { parts_per_million: ppm };
            let ttl = drift.lasting(Duration::from_millis(time));
            let by_the_fastest = u128::from(ttl.as_millis()) * u128::from(1_000_000 - ppm);
            prop_assert!(by_the_fastest >= u128::from(time) * 1_000_000);
        }

        #[test]
        fn a_factor_survives_the_way_in_and_out(ppm in 0_u32..1_000_000) {
            let drift = Drift { parts_per_million: ppm };
            let again = Drift::from_factor(drift.factor()).unwrap();
            prop_assert!(again.parts_per_million >= ppm && again.parts_per_million <= ppm + 1);
        }
    }
}
