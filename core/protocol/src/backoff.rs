//! Computes how long to wait before the next try. Owns no randomness: the caller passes random
//! bytes in.

use std::time::Duration;

use crate::identity::HolderId;

/// A number in `[0, 1)` made of random bytes.
pub(crate) fn fraction(random: [u8; HolderId::RANDOM_BYTES]) -> f64 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&random[..4]);
    f64::from(u32::from_le_bytes(bytes)) / (f64::from(u32::MAX) + 1.0)
}

/// A delay drawn evenly from `delay - jitter ..= delay + jitter`, but never below zero.
///
/// Clients that were refused at the same time would otherwise try again at the same time and split
/// the votes again.
pub(crate) fn jittered(delay: Duration, jitter: Duration, fraction: f64) -> Duration {
    let span = jitter.saturating_mul(2).mul_f64(fraction);
    delay.saturating_add(span).saturating_sub(jitter)
}

/// The delay after `failures` failures in a row: `first`, doubled each time, up to `most`.
pub(crate) fn doubled(first: Duration, failures: u32, most: Duration) -> Duration {
    first.saturating_mul(1 << failures.min(16)).min(most)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn stays_within_the_jitter(delay in 0_u64..10_000, jitter in 0_u64..10_000, bytes: [u8; 20]) {
            let (delay, jitter) = (Duration::from_millis(delay), Duration::from_millis(jitter));
            let drawn = jittered(delay, jitter, fraction(bytes));
            prop_assert!(drawn >= delay.saturating_sub(jitter));
            prop_assert!(drawn <= delay + jitter);
        }
    }

    #[test]
    fn doubles_up_to_the_most() {
        let delays: Vec<_> = (0..5)
            .map(|failures| {
                doubled(Duration::from_millis(50), failures, Duration::from_millis(300))
            })
            .map(|delay| delay.as_millis())
            .collect();
        assert_eq!(delays, [50, 100, 200, 300, 300]);
    }
}
