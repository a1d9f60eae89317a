//! Computes the values that follow from a lock's settings: key ttl, node timeout, longest wait, fence
//! retention. Owns these formulas.

use std::time::Duration;

use super::Policy;
use crate::time::Ttl;

impl Policy {
    /// How long nodes are asked to keep the keys: the ttl plus the lock-delay.
    pub fn key_ttl(&self) -> Ttl {
        self.ttl.and(self.lock_delay)
    }

    /// How long one node may take to answer; computed from the ttl where it is not set.
    ///
    /// A fiftieth of the ttl, between 50 ms and 250 ms, and never above half the ttl. A slow node
    /// adds nothing while a quorum answers, so a generous value costs only where the quorum needs
    /// the node.
    pub fn node_timeout(&self) -> Duration {
        let ttl = self.ttl.as_duration();
        let derived = (ttl / 50).clamp(Duration::from_millis(50), Duration::from_millis(250));
        self.node_timeout.unwrap_or(derived).min(ttl / 2)
    }

    /// The longest time that an acquisition may wait: the timeout, or the sum of its retries;
    /// `None` without a limit.
    pub fn longest_wait(&self) -> Option<Duration> {
        let delay = self.retry_delay.saturating_add(self.retry_jitter);
        self.timeout.or_else(|| self.retry_limit.map(|limit| delay.saturating_mul(limit)))
    }

    /// The longest ttl that a key of a lock may be given: a least hold must last by the slowest
    /// permitted clock.
    pub fn longest_key_ttl(&self) -> Duration {
        let hold = self.drift.lasting(self.min_hold).as_duration();
        let hold = if self.min_hold.is_zero() { Duration::ZERO } else { hold };
        self.key_ttl().as_duration().max(hold)
    }

    /// The longest time for which nodes are asked to keep a key.
    pub(crate) fn longest_keep(&self) -> Duration {
        (self.ttl.as_duration() + self.lock_delay).max(self.min_hold)
    }

    /// How long nodes remember fences after the last client asked them to: the setting, but at
    /// least the time that covers the differences between their clocks.
    ///
    /// It need not outlast a lease. A forgotten token was granted so long ago that the node's
    /// clock, below which the node grants no token, has overtaken it.
    pub(crate) fn fence_retention(&self) -> Ttl {
        self.fence_retention.max(LEAST_RETENTION)
    }

    /// The same settings without renewal.
    #[must_use]
    pub const fn without_auto_extend(mut self) -> Self {
        self.auto_extend = false;
        self
    }
}

/// A forgotten token was granted at least this long ago, less the ten seconds between two calls
/// that extend the retention and the second on either side by which tokens may differ from their
/// node's clock: that leaves 18 s for the differences between those clocks.
const LEAST_RETENTION: Ttl = Ttl::of_millis(30_000);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_timeout_follows_the_ttl_within_bounds() {
        let of = |ttl| {
            let ttl = Duration::from_millis(ttl);
            Policy::builder().ttl(ttl).build().unwrap().node_timeout().as_millis()
        };
        assert_eq!([of(20), of(1_000), of(10_000), of(600_000)], [10, 50, 200, 250]);
    }

    #[test]
    fn fences_are_kept_until_clocks_make_up_for_them() {
        let retention = |seconds| {
            let policy = Policy::builder().fence_retention(Duration::from_secs(seconds)).build();
            policy.unwrap().fence_retention().as_duration().as_secs()
        };
        assert_eq!([1, 30, 31, 86_400].map(retention), [30, 30, 31, 86_400]);
        assert_eq!(Policy::default().fence_retention().as_millis(), 120_000);
    }

    #[test]
    fn a_least_hold_is_announced_for_as_long_as_a_release_asks_for_it() {
        for millis in [1, 10_000, 60_000, 300_000, 3_600_000_000_000] {
            let hold = Duration::from_millis(millis);
            let policy = Policy::builder().min_hold(hold).build().unwrap();
            let asked = policy.drift().lasting(hold).as_duration();
            assert!(policy.longest_key_ttl() >= asked, "{hold:?}");
        }
        assert_eq!(Policy::default().longest_key_ttl(), Duration::from_secs(10));
    }

    #[test]
    fn the_nodes_are_asked_for_the_ttl_and_the_lock_delay() {
        let policy = Policy::builder().lock_delay(Duration::from_micros(1_500)).build().unwrap();
        assert_eq!((policy.ttl().as_millis(), policy.key_ttl().as_millis()), (10_000, 10_002));
    }
}
