//! Checks a lock's settings together, and builds the policy from them. Owns the bounds that concern
//! several settings.

use std::time::Duration;

use super::{Policy, PolicyBuilder, WaitMode};
use crate::error::ConfigError;
use crate::time::Ttl;
use crate::validity::Drift;

impl PolicyBuilder {
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
        if policy.fair && policy.wait == WaitMode::Poll {
            return Err(ConfigError::new("fair needs a place in a queue: leave wait at \"push\""));
        }
        if policy.node_timeout == Some(Duration::ZERO) {
            return Err(ConfigError::new("node_timeout must be above zero"));
        }
        // No waiting time means one round, as for a lock of the standard library.
        if policy.timeout.is_some_and(|timeout| timeout < Duration::from_millis(1)) {
            policy.timeout = None;
            policy.retry_limit = Some(0);
        }
        Ok(policy)
    }
}

/// `5 s` or `1.5 s`, with the unit, since not all languages use the same one.
fn exact(time: Duration) -> String {
    format!("{} s", time.as_secs_f64())
}

/// Rounded up to a whole millisecond, the nodes' grain, as the setting promises at least this time.
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
