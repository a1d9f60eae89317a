//! Settings on their way into the core. Owns what Node's defaults differ in; every other default and
//! every bound that concerns several settings is the core's.

use std::time::Duration;

use napi::bindgen_prelude::Either3;
use napi_derive::napi;
use quorlock::{ConfigError, OptionDefault, Policy, PolicyBuilder, RestartGuard};

use crate::numbers::Js;
use crate::numbers::millis;
use crate::spelling;

/// Node keeps the retry settings of node-redlock 5, whose users expect them.
const RETRY_COUNT: u32 = 10;
const RETRY_DELAY: Duration = Duration::from_millis(200);
const RETRY_JITTER: Duration = Duration::from_millis(100);

/// The first number that JavaScript cannot count beyond.
const LIMIT: f64 = 9_007_199_254_740_992.0;

/// Settings as given by the user; what is absent keeps its value. Times are in milliseconds.
#[napi(object, object_to_js = false)]
#[derive(Clone)]
pub struct Settings {
    /// The part of the ttl given away for clock drift.
    pub drift_factor: Option<f64>,
    /// How long one node may take.
    pub node_timeout: Option<f64>,
    /// How long an acquisition may take.
    pub timeout: Option<f64>,
    /// How many tries may follow the first; -1 or Infinity for no limit.
    pub retry_count: Option<f64>,
    /// The mean delay between two tries.
    pub retry_delay: Option<f64>,
    /// How far a delay may lie from the mean.
    pub retry_jitter: Option<f64>,
    /// How long to go on without a quorum when waiting has no limit.
    pub unreachable_timeout: Option<f64>,
    /// Whether acquisitions get a fencing token.
    pub fencing: Option<bool>,
    /// How long nodes remember a token.
    pub fence_retention: Option<f64>,
    /// Whether leases are renewed until released.
    pub auto_extend: Option<bool>,
    /// For how long, at most, a lease is renewed.
    pub max_hold: Option<f64>,
    /// What is done about nodes that may have forgotten locks: `auto`, `strict` or `off`.
    pub restart_guard: Option<String>,
    /// Whether nodes whose clock was set forward are held back.
    pub clock_guard: Option<bool>,
    /// The longest time for which a lock may keep keys.
    pub max_ttl: Option<f64>,
    /// How much longer than the duration the nodes keep a lock that is lost instead of released.
    pub lock_delay: Option<f64>,
    /// How long a lock is kept from others, at least, however soon it is released.
    pub min_hold: Option<f64>,
}

/// One setting with its default.
#[napi(object, object_from_js = false)]
pub struct SettingDefault {
    /// Its name.
    pub name: String,
    /// Its default; absent where there is none. Times are in milliseconds.
    pub value: Option<Either3<f64, bool, &'static str>>,
    /// What it means.
    pub meaning: &'static str,
}

/// Every setting of the core with the default that it has in Node.
#[napi]
pub fn defaults() -> Vec<SettingDefault> {
    let retries = SettingDefault {
        name: "retryCount".to_owned(),
        value: Some(Either3::A(f64::from(RETRY_COUNT))),
        meaning: "how many tries may follow the first; -1 for no limit",
    };
    let own = |name: &str| match name {
        "retry_delay" => Some(RETRY_DELAY),
        "retry_jitter" => Some(RETRY_JITTER),
        _ => None,
    };
    let of_core = Policy::options().into_iter().filter(|option| option.name != "retry_limit");
    let mut all: Vec<_> = of_core
        .map(|option| SettingDefault {
            name: match option.name {
                // What the user names is an argument; the default is still told under this name.
                "ttl" => "ttl".to_owned(),
                name => spelling::option(name),
            },
            value: match (own(option.name), option.default) {
                (Some(time), _) | (None, OptionDefault::Time(time)) => {
                    Some(Either3::A(millis(time)))
                }
                (None, OptionDefault::Number(number)) => Some(Either3::A(number)),
                (None, OptionDefault::Flag(flag)) => Some(Either3::B(flag)),
                (None, OptionDefault::Word(word)) => Some(Either3::C(word)),
                (None, OptionDefault::Unset) => None,
            },
            meaning: option.meaning,
        })
        .collect();
    all.push(retries);
    all
}

/// The core's defaults, with Node's own.
pub(crate) fn builder() -> PolicyBuilder {
    Policy::builder()
        .retry_limit(Some(RETRY_COUNT))
        .retry_delay(RETRY_DELAY)
        .retry_jitter(RETRY_JITTER)
}

/// The settings that the locks of a manager start from.
///
/// A ttl is not among them in Node: every call has its own. So `maxTtl` may be below the core's default.
pub(crate) fn policy(settings: &Settings) -> Result<Policy, ConfigError> {
    let policy = settings.apply(builder())?;
    match settings.max_ttl.map(|limit| most("maxTtl", limit)).transpose()?.flatten() {
        Some(limit) if limit < Policy::default().ttl().as_duration() => policy.ttl(limit).build(),
        _ => policy.build(),
    }
}

impl Settings {
    /// Changes what is set.
    ///
    /// A timeout without a `retryCount` beside it means: try until then.
    pub(crate) fn apply(&self, mut policy: PolicyBuilder) -> Result<PolicyBuilder, ConfigError> {
        if let Some(factor) = self.drift_factor {
            policy = policy.drift_factor(drift_factor(factor)?);
        }
        if let Some(timeout) = self.timeout {
            let timeout = limit("timeout", timeout)?;
            policy = policy.timeout((timeout < Duration::MAX).then_some(timeout)).retry_limit(None);
        }
        if let Some(count) = self.retry_count {
            policy = policy.retry_limit(retry_limit(count)?);
        }
        if let Some(delay) = self.retry_delay {
            policy = policy.retry_delay(time("retryDelay", delay)?);
        }
        if let Some(jitter) = self.retry_jitter {
            policy = policy.retry_jitter(time("retryJitter", jitter)?);
        }
        self.apply_rest(policy)
    }

    fn apply_rest(&self, mut policy: PolicyBuilder) -> Result<PolicyBuilder, ConfigError> {
        if let Some(timeout) = self.node_timeout {
            policy = policy.node_timeout(limit("nodeTimeout", timeout)?);
        }
        if let Some(timeout) = self.unreachable_timeout {
            policy = policy.unreachable_timeout(limit("unreachableTimeout", timeout)?);
        }
        if let Some(on) = self.fencing {
            policy = policy.fencing(on);
        }
        if let Some(retention) = self.fence_retention {
            policy = policy.fence_retention(time("fenceRetention", retention)?);
        }
        if let Some(on) = self.auto_extend {
            policy = policy.auto_extend(on);
        }
        if let Some(hold) = self.max_hold {
            policy = policy.max_hold(limit("maxHold", hold)?);
        }
        if let Some(word) = &self.restart_guard {
            policy = policy.restart_guard(word.parse::<RestartGuard>()?);
        }
        if let Some(on) = self.clock_guard {
            policy = policy.clock_guard(on);
        }
        if let Some(limit) = self.max_ttl {
            policy = policy.max_ttl(most("maxTtl", limit)?);
        }
        if let Some(delay) = self.lock_delay {
            policy = policy.lock_delay(time("lockDelay", delay)?);
        }
        if let Some(least) = self.min_hold {
            policy = policy.min_hold(time("minHold", least)?);
        }
        Ok(policy)
    }
}

/// The core knows its bounds, but not how JavaScript writes what is no number.
fn drift_factor(factor: f64) -> Result<f64, ConfigError> {
    if factor.is_finite() {
        return Ok(factor);
    }
    Err(ConfigError::new(format!("driftFactor must be a finite number, not {}", Js(factor))))
}

/// A ttl, whose bounds the core knows.
pub(crate) fn ttl(millis: f64) -> Result<Duration, ConfigError> {
    if millis.fract() != 0.0 || !millis.is_finite() {
        return Err(ConfigError::new(format!(
            "Duration must be an integer value in milliseconds. It is {}",
            Js(millis)
        )));
    }
    if !(1.0..LIMIT).contains(&millis) {
        return Err(ConfigError::new(format!(
            "the duration must be at least 1 ms and below 2^53 ms, not {} ms",
            Js(millis)
        )));
    }
    Ok(whole(millis))
}

fn time(name: &str, millis: f64) -> Result<Duration, ConfigError> {
    if !(0.0..LIMIT).contains(&millis) {
        return Err(ConfigError::new(format!(
            "{name} must be a number of milliseconds from 0 upwards and below 2^53, not {}",
            Js(millis)
        )));
    }
    Ok(if millis.fract() == 0.0 { whole(millis) } else { Duration::from_secs_f64(millis / 1000.0) })
}

/// Like [`time`], but may be endless.
fn limit(name: &str, millis: f64) -> Result<Duration, ConfigError> {
    if millis == f64::INFINITY { Ok(Duration::MAX) } else { time(name, millis) }
}

/// A time beyond which nothing may be; `None` if it is endless.
fn most(name: &str, millis: f64) -> Result<Option<Duration>, ConfigError> {
    limit(name, millis).map(|limit| (limit < Duration::MAX).then_some(limit))
}

fn retry_limit(count: f64) -> Result<Option<u32>, ConfigError> {
    if count == f64::INFINITY {
        return Ok(None);
    }
    if count.fract() != 0.0 || !(-1.0..=f64::from(u32::MAX)).contains(&count) {
        return Err(ConfigError::new(format!(
            "retryCount must be a whole number from 0 upwards, or -1 for no limit, not {}",
            Js(count)
        )));
    }
    // In range by the check above.
    #[allow(clippy::cast_possible_truncation)]
    let count = count as i64;
    Ok(u32::try_from(count).ok())
}

/// Only for whole numbers from 0 to 2^53, which are exact.
fn whole(millis: f64) -> Duration {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let millis = millis as u64;
    Duration::from_millis(millis)
}
