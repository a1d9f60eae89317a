//! Sets one setting after another, and checks them together.

use std::time::Duration;

use super::{Policy, RestartGuard};
use crate::error::ConfigError;
use crate::time::Ttl;
use crate::validity::Drift;

/// Collects settings and checks them together.
///
/// ```
/// use quorlock_protocol::Policy;
/// use std::time::Duration;
///
/// let policy = Policy::builder().ttl(Duration::from_secs(5)).try_once().build()?;
/// assert_eq!(policy.ttl().as_millis(), 5000);
/// assert!(Policy::builder().ttl(Duration::ZERO).build().is_err());
/// # Ok::<(), quorlock_protocol::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct PolicyBuilder {
    policy: Policy,
    raw_ttl: Option<Duration>,
    raw_drift: Option<f64>,
    raw_retention: Option<Duration>,
    raw_max_ttl: Option<Duration>,
}

impl From<Policy> for PolicyBuilder {
    fn from(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }
}

impl PolicyBuilder {
    /// How long the nodes keep the keys, unless they are extended. Default 10 s, whole milliseconds.
    ///
    /// Raise it when the network or the process may stall for long; lower it to be free of a crashed
    /// holder sooner.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.raw_ttl = Some(ttl);
        self
    }

    /// The part of the ttl that is given away for clocks that run at different rates. Default 0.01.
    pub const fn drift_factor(mut self, factor: f64) -> Self {
        self.raw_drift = Some(factor);
        self
    }

    /// How long one node may take to answer. Default: see [`Policy::node_timeout`].
    ///
    /// Raise it for distant nodes; lower it to fail sooner when a majority is down.
    pub const fn node_timeout(mut self, timeout: Duration) -> Self {
        self.policy.node_timeout = Some(timeout);
        self
    }

    /// How long an acquisition may take as a whole. Default: until it is held. Zero, and anything below a
    /// millisecond, tries once.
    pub const fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.policy.timeout = timeout;
        self
    }

    /// Exactly one round: no waiting.
    pub const fn try_once(mut self) -> Self {
        self.policy.retry_limit = Some(0);
        self.policy.timeout = None;
        self
    }

    /// How many rounds may follow the first. Default: no limit.
    pub const fn retry_limit(mut self, limit: Option<u32>) -> Self {
        self.policy.retry_limit = limit;
        self
    }

    /// The mean delay between two rounds. Default 100 ms.
    pub const fn retry_delay(mut self, delay: Duration) -> Self {
        self.policy.retry_delay = delay;
        self
    }

    /// How much shorter or longer than the mean a delay may be. Default 50 ms.
    pub const fn retry_jitter(mut self, jitter: Duration) -> Self {
        self.policy.retry_jitter = jitter;
        self
    }

    /// How long to go on without a reachable quorum where neither a timeout nor a limit of retries
    /// is set. Default 3 s.
    pub const fn unreachable_timeout(mut self, timeout: Duration) -> Self {
        self.policy.unreachable_timeout = timeout;
        self
    }

    /// Whether acquisitions get a fencing token. Default on.
    pub const fn fencing(mut self, on: bool) -> Self {
        self.policy.fencing = on;
        self
    }

    /// How long nodes remember the fencing tokens that they have granted, once no client tells them to any more
    /// (each does every 10 s, while it is connected). Default 120 s; what is below 30 s counts as 30 s. Of several
    /// clients the longest counts.
    ///
    /// Raise it where the clocks of the nodes may differ by more than a minute: what is forgotten is made up for by
    /// them alone.
    pub const fn fence_retention(mut self, retention: Duration) -> Self {
        self.raw_retention = Some(retention);
        self
    }

    /// Whether leases are renewed until they are released. Default off.
    pub const fn auto_extend(mut self, on: bool) -> Self {
        self.policy.auto_extend = on;
        self
    }

    /// For how long, at most, a lease is renewed, so that a stuck process does not hold for ever.
    /// Default 24 hours.
    pub const fn max_hold(mut self, limit: Duration) -> Self {
        self.policy.max_hold = limit;
        self
    }

    /// What is done about nodes that may have forgotten locks. Default [`RestartGuard::Auto`].
    pub const fn restart_guard(mut self, guard: RestartGuard) -> Self {
        self.policy.restart_guard = guard;
        self
    }

    /// Whether the nodes' clocks are watched, and a node whose clock was set forward is held back like
    /// one that has forgotten. Default on; of no use with one node.
    pub const fn clock_guard(mut self, on: bool) -> Self {
        self.policy.clock_guard = on;
        self
    }

    /// The longest time for which any lock may ask nodes to keep its keys; a longer one is refused.
    /// Default: no limit.
    ///
    /// A node that may have forgotten locks is held back for so long. Without it, the guards go by the
    /// longest time that this client has asked for, or that others have noted on the nodes, up to a
    /// day. All clients should have the same.
    pub const fn max_ttl(mut self, limit: Option<Duration>) -> Self {
        self.policy.max_ttl = None;
        self.raw_max_ttl = limit;
        self
    }

    /// How much longer than the ttl the nodes keep the keys of a lease that is not released: of one that
    /// was lost, or whose process died. Default 0, whole milliseconds.
    ///
    /// Raise it where no fencing token can be checked, to the longest time for which work may go on after
    /// its lease has ended (a pause, a request under way): until it has passed nobody else can begin.
    /// Every crash costs that much more. A release gives the lock to others at once, even after a loss:
    /// it says that the work has ended.
    pub const fn lock_delay(mut self, delay: Duration) -> Self {
        self.policy.lock_delay = delay;
        self
    }

    /// How long the lock is kept from others, at least, from its acquisition on: a release before that
    /// leaves the keys until then. Default 0.
    ///
    /// Raise it for a job that several machines begin at the same time of day: to more than their clocks
    /// may differ, and less than its period, so that a short run is not repeated by the next machine.
    /// It binds releases alone: a lease that is lost, or whose process died, ends as always.
    pub const fn min_hold(mut self, least: Duration) -> Self {
        self.policy.min_hold = least;
        self
    }

    /// Checks the settings together.
    ///
    /// # Errors
    /// [`ConfigError`] if one is out of bounds, or the ttl is not above the drift allowance.
    pub fn build(self) -> Result<Policy, ConfigError> {
        let mut policy = self.policy;
        if let Some(ttl) = self.raw_ttl {
            policy.ttl = Ttl::from_duration(ttl)?;
        }
        if let Some(factor) = self.raw_drift {
            policy.drift = Drift::from_factor(factor)?;
        }
        if let Some(retention) = self.raw_retention {
            policy.fence_retention = Ttl::from_duration(retention)?;
        }
        if let Some(limit) = self.raw_max_ttl {
            policy.max_ttl = Some(Ttl::from_duration(limit)?);
        }
        policy.drift.check(policy.ttl)?;
        policy.lock_delay = whole_millis("lock_delay", policy.lock_delay)?;
        policy.min_hold = whole_millis("min_hold", policy.min_hold)?;
        whole_millis("ttl and lock_delay together", policy.ttl.as_duration() + policy.lock_delay)?;
        if let Some(limit) = policy.max_ttl
            && policy.longest_keep() > limit.as_duration()
        {
            let (limit, asked) = (exact(limit.as_duration()), exact(policy.longest_keep()));
            let default = Self::default().policy.ttl;
            return Err(ConfigError::new(
                if self.raw_ttl.is_none() && policy.longest_keep() == default.as_duration() {
                    format!("max_ttl, {limit}, is below the default ttl of {asked}: pass ttl, too")
                } else {
                    format!(
                        "a lock may keep its keys for at most max_ttl, {limit}, and this one asks for \
                         {asked}"
                    )
                },
            ));
        }
        if policy.node_timeout == Some(Duration::ZERO) {
            return Err(ConfigError::new("node_timeout must be above zero"));
        }
        // No time to wait at all means one round, as for a lock of the standard library.
        if policy.timeout.is_some_and(|timeout| timeout < Duration::from_millis(1)) {
            policy.timeout = None;
            policy.retry_limit = Some(0);
        }
        Ok(policy)
    }
}

/// `5 s` or `1.5 s`: not all languages have one unit, so it is told.
fn exact(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// Rounded up to the grain of the nodes: what is promised is the least.
fn whole_millis(name: &str, time: Duration) -> Result<Duration, ConfigError> {
    let millis = time.as_nanos().div_ceil(1_000_000);
    match u64::try_from(millis) {
        Ok(millis) if millis < Ttl::LIMIT_MILLIS => Ok(Duration::from_millis(millis)),
        _ => Err(ConfigError::new(format!("{name} must be below 2^53 ms, not {millis} ms"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_zero_tries_once() {
        let policy = Policy::builder().timeout(Some(Duration::ZERO)).build().unwrap();
        assert_eq!((policy.timeout(), policy.retry_limit()), (None, Some(0)));
    }

    #[test]
    fn bad_settings_are_refused_with_a_sentence() {
        let text = |builder: PolicyBuilder| builder.build().unwrap_err().to_string();
        let millis = Duration::from_millis;
        assert!(text(Policy::builder().ttl(millis(0))).contains("at least 1 ms"));
        assert!(text(Policy::builder().ttl(millis(1 << 53))).contains("below 2^53"));
        assert!(text(Policy::builder().ttl(millis(2))).contains("drift"));
        assert!(text(Policy::builder().drift_factor(1.0)).contains("below 1"));
        assert!(text(Policy::builder().drift_factor(f64::NAN)).contains("below 1"));
        assert!(text(Policy::builder().node_timeout(millis(0))).contains("node_timeout"));
        let limit = millis(1 << 53);
        let below = |count| limit.saturating_sub(millis(count));
        assert!(
            text(Policy::builder().lock_delay(limit)).starts_with("lock_delay must be below 2^53")
        );
        assert!(
            text(Policy::builder().min_hold(Duration::MAX)).starts_with("min_hold must be below")
        );
        let sum = Policy::builder().lock_delay(below(10_000));
        assert!(text(sum).starts_with("ttl and lock_delay together must be below 2^53 ms"));
        assert!(Policy::builder().lock_delay(below(10_001)).build().is_ok());
    }

    #[test]
    fn a_limit_below_the_default_ttl_asks_for_a_ttl() {
        let seconds = Duration::from_secs;
        let limited = |ttl: Option<u64>| {
            let builder = Policy::builder().max_ttl(Some(seconds(5)));
            let builder = ttl.map_or(builder.clone(), |ttl| builder.ttl(seconds(ttl)));
            builder.build().map_err(|error| error.to_string())
        };
        let words = "max_ttl, 5 s, is below the default ttl of 10 s: pass ttl, too";
        assert_eq!(limited(None).unwrap_err(), words);
        assert!(
            limited(Some(6))
                .unwrap_err()
                .ends_with("at most max_ttl, 5 s, and this one asks for 6 s")
        );
        assert!(limited(Some(5)).is_ok());
    }

    #[test]
    fn settings_survive_a_rebuild() {
        let policy = Policy::builder().ttl(Duration::from_secs(3)).drift_factor(0.05);
        let policy = policy
            .lock_delay(Duration::from_secs(2))
            .min_hold(Duration::from_secs(9))
            .build()
            .unwrap();
        assert_eq!(policy.to_builder().build().unwrap(), policy);
    }
}
