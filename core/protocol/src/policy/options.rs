//! The table of settings, from which the bindings read every name, kind, default and meaning. Owns
//! the list; the values are the policy's.

use std::sync::LazyLock;
use std::time::Duration;

use super::{Policy, PolicyBuilder};
use crate::error::ConfigError;

/// One setting.
#[derive(Clone, Copy, Debug)]
pub struct OptionInfo {
    /// Its name, in `snake_case`.
    pub name: &'static str,
    /// What its values are, and how one is set.
    pub kind: OptionKind,
    /// Its default.
    pub default: OptionDefault,
    /// What it means, in one sentence.
    pub meaning: &'static str,
}

/// What the values of a setting are, and how one is set.
#[derive(Clone, Copy, Debug)]
pub enum OptionKind {
    /// A length of time.
    Time(fn(PolicyBuilder, Duration) -> PolicyBuilder),
    /// A length of time that may be endless: [`Duration::MAX`].
    Bound(fn(PolicyBuilder, Duration) -> PolicyBuilder),
    /// A length of time; `None` for no limit.
    Limit(fn(PolicyBuilder, Option<Duration>) -> PolicyBuilder),
    /// A plain number.
    Number(fn(PolicyBuilder, f64) -> PolicyBuilder),
    /// A whole number; `None` for no limit.
    Count(fn(PolicyBuilder, Option<u32>) -> PolicyBuilder),
    /// On or off.
    Flag(fn(PolicyBuilder, bool) -> PolicyBuilder),
    /// One of several words; an error for any other.
    Word(fn(PolicyBuilder, &str) -> Result<PolicyBuilder, ConfigError>),
}

/// A default value, with its unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OptionDefault {
    /// A length of time.
    Time(Duration),
    /// A plain number.
    Number(f64),
    /// On or off.
    Flag(bool),
    /// One of several words.
    Word(&'static str),
    /// Nothing: see the meaning.
    Unset,
}

impl Policy {
    /// Every setting, in the order in which several of them must be set.
    pub fn options() -> &'static [OptionInfo] {
        static OPTIONS: LazyLock<Vec<OptionInfo>> = LazyLock::new(|| table(Policy::default()));
        &OPTIONS
    }
}

#[rustfmt::skip] // two lines each
fn table(default: Policy) -> Vec<OptionInfo> {
    use OptionDefault::{Flag, Number, Time, Unset, Word};
    use OptionKind as Kind;
    let option = |name, kind, default, meaning| OptionInfo { name, kind, default, meaning };
    vec![
        option("ttl", Kind::Time(PolicyBuilder::ttl), Time(default.ttl.as_duration()),
            "how long the nodes keep the keys"),
        option("drift_factor", Kind::Number(PolicyBuilder::drift_factor), Number(default.drift.factor()),
            "the part of the ttl given away for clock drift"),
        option("node_timeout", Kind::Bound(PolicyBuilder::node_timeout), Unset,
            "how long one node may take; a fiftieth of the ttl, 50 to 250 ms"),
        option("timeout", Kind::Limit(PolicyBuilder::timeout), Unset,
            "how long an acquisition may take; until it is held"),
        option("retry_limit", Kind::Count(PolicyBuilder::retry_limit), Unset,
            "how many rounds may follow the first; no limit"),
        option("retry_delay", Kind::Time(PolicyBuilder::retry_delay), Time(default.retry_delay),
            "the mean delay between two rounds"),
        option("retry_jitter", Kind::Time(PolicyBuilder::retry_jitter), Time(default.retry_jitter),
            "how much shorter or longer than the mean a delay may be"),
        option("unreachable_timeout", Kind::Bound(PolicyBuilder::unreachable_timeout), Time(default.unreachable_timeout),
            "how long to go on without a quorum when waiting has no limit"),
        option("fencing", Kind::Flag(PolicyBuilder::fencing), Flag(default.fencing),
            "whether acquisitions get a fencing token"),
        option("fence_retention", Kind::Time(PolicyBuilder::fence_retention), Time(default.fence_retention.as_duration()),
            "how long nodes remember a token"),
        option("auto_extend", Kind::Flag(PolicyBuilder::auto_extend), Flag(default.auto_extend),
            "whether leases are renewed until released"),
        option("max_hold", Kind::Bound(PolicyBuilder::max_hold), Time(default.max_hold),
            "for how long, at most, a lease is renewed"),
        option("restart_guard", Kind::Word(|builder, word| Ok(builder.restart_guard(word.parse()?))), Word(default.restart_guard.name()),
            "what is done about nodes that may have forgotten locks"),
        option("clock_guard", Kind::Flag(PolicyBuilder::clock_guard), Flag(default.clock_guard),
            "whether nodes whose clock was set forward are held back"),
        option("max_ttl", Kind::Limit(PolicyBuilder::max_ttl), Unset,
            "the longest time for which a lock may keep keys; no limit"),
        option("lock_delay", Kind::Time(PolicyBuilder::lock_delay), Time(default.lock_delay),
            "how much longer than the ttl the nodes keep the keys of a lease that is not released"),
        option("min_hold", Kind::Time(PolicyBuilder::min_hold), Time(default.min_hold),
            "how long a lock is kept from others, at least, however soon it is released"),
        option("wait", Kind::Word(|builder, word| Ok(builder.wait(word.parse()?))), Word(default.wait.name()),
            "how a caller that waits learns that the lock is free: it is told, or it polls"),
        option("fair", Kind::Flag(PolicyBuilder::fair), Flag(default.fair),
            "whether callers get the lock in the order in which they came"),
        option("on_unreachable", Kind::Word(|builder, word| Ok(builder.on_unreachable(word.parse()?))), Word(default.on_unreachable.name()),
            "what becomes of an acquisition that can reach no quorum; raise, or proceed without the lock"),
    ]
}
