//! Converts settings from JavaScript into the core's policy. Owns the defaults in which Node
//! differs; every other default, and every bound that concerns several settings, is the core's.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use napi::bindgen_prelude::Either3;
use napi_derive::napi;
use quorlock::{ConfigError, OptionDefault, OptionInfo, OptionKind, Policy, PolicyBuilder};

use crate::numbers::{Js, millis};
use crate::spelling;

/// Node keeps the retry settings of node-redlock 5, whose users expect them.
const RETRY_COUNT: u32 = 10;
const RETRY_DELAY: Duration = Duration::from_millis(200);
const RETRY_JITTER: Duration = Duration::from_millis(100);

/// From this number on JavaScript's numbers are not exact any more.
const LIMIT: f64 = 9_007_199_254_740_992.0;

/// The user's settings by their names in Node; an absent one keeps its value. Times are in
/// milliseconds.
pub(crate) type Settings = HashMap<String, Either3<f64, bool, String>>;

/// One setting with its default.
#[napi(object, object_from_js = false)]
pub struct SettingDefault {
    /// Its name.
    pub name: String,
    /// Its default; absent where there is none. Times are in milliseconds.
    pub value: Option<Either3<f64, bool, &'static str>>,
    /// What `typeof` says of its values.
    #[napi(ts_type = "'number' | 'boolean' | 'string'")]
    pub kind: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

/// Every setting of the core with the default that it has in Node.
#[napi]
pub fn defaults() -> Vec<SettingDefault> {
    let of_option = |option: &OptionInfo| SettingDefault {
        name: match option.name {
            // In Node the duration is an argument of each call; the default is still listed under
            // this name.
            "ttl" => "ttl".to_owned(),
            name => spelling::option(name),
        },
        value: match option.name {
            "retry_limit" => Some(Either3::A(f64::from(RETRY_COUNT))),
            "retry_delay" => Some(Either3::A(millis(RETRY_DELAY))),
            "retry_jitter" => Some(Either3::A(millis(RETRY_JITTER))),
            _ => value_of(option.default),
        },
        kind: match option.kind {
            OptionKind::Flag(_) => "boolean",
            OptionKind::Word(_) => "string",
            _ => "number",
        },
        meaning: match option.name {
            "retry_limit" => "how many tries may follow the first; -1 for no limit",
            _ => option.meaning,
        },
    };
    Policy::options().iter().map(of_option).collect()
}

fn value_of(default: OptionDefault) -> Option<Either3<f64, bool, &'static str>> {
    match default {
        OptionDefault::Time(time) => Some(Either3::A(millis(time))),
        OptionDefault::Number(number) => Some(Either3::A(number)),
        OptionDefault::Flag(flag) => Some(Either3::B(flag)),
        OptionDefault::Word(word) => Some(Either3::C(word)),
        OptionDefault::Unset => None,
    }
}

/// The core's defaults, with Node's own.
pub(crate) fn builder() -> PolicyBuilder {
    Policy::builder()
        .retry_limit(Some(RETRY_COUNT))
        .retry_delay(RETRY_DELAY)
        .retry_jitter(RETRY_JITTER)
}

/// The settings from which the locks of a manager start.
///
/// In Node a manager has no ttl: every call has its own. So `maxTtl` may be below the core's
/// default.
pub(crate) fn policy(settings: &Settings) -> Result<Policy, ConfigError> {
    let policy = apply(settings, builder())?;
    match settings.get("maxTtl") {
        Some(Either3::A(limit)) => match most("maxTtl", *limit)? {
            Some(limit) if limit < Policy::default().ttl().as_duration() => {
                policy.ttl(limit).build()
            }
            _ => policy.build(),
        },
        _ => policy.build(),
    }
}

/// Applies the settings that the user has set.
///
/// A timeout without a `retryCount` means: try until the timeout.
pub(crate) fn apply(
    settings: &Settings,
    mut policy: PolicyBuilder,
) -> Result<PolicyBuilder, ConfigError> {
    for (name, option) in &*NAMED {
        if let Some(value) = settings.get(name) {
            if option.name == "timeout" {
                policy = policy.retry_limit(None);
            }
            policy = set(policy, name, option.kind, value)?;
        }
    }
    Ok(policy)
}

fn set(
    policy: PolicyBuilder,
    name: &str,
    kind: OptionKind,
    value: &Either3<f64, bool, String>,
) -> Result<PolicyBuilder, ConfigError> {
    Ok(match (kind, value) {
        (OptionKind::Time(set), Either3::A(millis)) => set(policy, time(name, *millis)?),
        (OptionKind::Bound(set), Either3::A(millis)) => set(policy, limit(name, *millis)?),
        (OptionKind::Limit(set), Either3::A(millis)) => set(policy, most(name, *millis)?),
        (OptionKind::Number(set), Either3::A(number)) => set(policy, finite(name, *number)?),
        (OptionKind::Count(set), Either3::A(count)) => set(policy, retry_limit(name, *count)?),
        (OptionKind::Flag(set), Either3::B(flag)) => set(policy, *flag),
        (OptionKind::Word(set), Either3::C(word)) => set(policy, word)?,
        // JavaScript's half has checked the types already.
        _ => return Err(ConfigError::new(format!("{name} is of the wrong type"))),
    })
}

/// The settings by their names in Node.
static NAMED: LazyLock<Vec<(String, &OptionInfo)>> = LazyLock::new(|| {
    Policy::options().iter().map(|option| (spelling::option(option.name), option)).collect()
});

/// The core knows its bounds, but not how JavaScript writes NaN and infinity.
fn finite(name: &str, number: f64) -> Result<f64, ConfigError> {
    if number.is_finite() {
        return Ok(number);
    }
    Err(ConfigError::new(format!("{name} must be a finite number, not {}", Js(number))))
}

/// A ttl; the core knows its bounds.
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

/// Like [`time`], but may be infinite.
fn limit(name: &str, millis: f64) -> Result<Duration, ConfigError> {
    if millis == f64::INFINITY { Ok(Duration::MAX) } else { time(name, millis) }
}

/// An upper limit of time; `None` if it is infinite.
fn most(name: &str, millis: f64) -> Result<Option<Duration>, ConfigError> {
    limit(name, millis).map(|limit| (limit < Duration::MAX).then_some(limit))
}

fn retry_limit(name: &str, count: f64) -> Result<Option<u32>, ConfigError> {
    if count == f64::INFINITY {
        return Ok(None);
    }
    if count.fract() != 0.0 || !(-1.0..=f64::from(u32::MAX)).contains(&count) {
        return Err(ConfigError::new(format!(
            "{name} must be a whole number from 0 upwards, or -1 for no limit, not {}",
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
