//! Points in time, and the time to live of keys. Owns their arithmetic; never reads a clock.

use std::ops::Add;
use std::time::Duration;

use crate::error::ConfigError;

/// A reading of one of the driver's clocks: the time since an epoch that the driver chooses.
///
/// The clocks must be monotonic and must count the time in which the machine sleeps;
/// [`Environment::now`](crate::Environment::now) tells which clock is read where. All arithmetic
/// saturates, so a ttl of centuries is safe.
///
/// ```
/// use quorlock_protocol::Moment;
/// use std::time::Duration;
///
/// let start = Moment::from_millis(100);
/// assert_eq!(start + Duration::from_millis(50), Moment::from_millis(150));
/// assert_eq!(start.since(Moment::from_millis(400)), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// Later than every moment that a clock will ever read.
    pub const FAR_FUTURE: Self = Self(Duration::MAX);

    /// The moment that lies `elapsed` after the driver's epoch.
    pub const fn from_epoch(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// The moment that lies `millis` milliseconds after the driver's epoch.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// The time from the driver's epoch to this moment.
    pub const fn since_epoch(self) -> Duration {
        self.0
    }

    /// The time from `earlier` to this moment; zero if `earlier` is in fact later.
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment that lies `duration` before this one, or the epoch if that is sooner.
    #[must_use]
    pub const fn before(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

/// How long the nodes keep a key: whole milliseconds, at least 1 and below 2^53.
///
/// The upper bound keeps the number exact in Lua and JavaScript.
///
/// ```
/// use quorlock_protocol::Ttl;
///
/// assert_eq!(Ttl::from_millis(10_000)?.as_millis(), 10_000);
/// assert!(Ttl::from_millis(0).is_err());
/// # Ok::<(), quorlock_protocol::ConfigError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u64);

impl Ttl {
    /// The first number of milliseconds that is too large.
    pub const LIMIT_MILLIS: u64 = 1 << 53;

    /// The shortest ttl that nodes accept.
    pub(crate) const SHORTEST: Self = Self(1);

    /// A ttl from one of the library's own constants.
    pub(crate) const fn of_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// A ttl of `millis` milliseconds.
    ///
    /// # Errors
    /// [`ConfigError`] if `millis` is zero, or 2^53 and above.
    pub fn from_millis(millis: u64) -> Result<Self, ConfigError> {
        if (1..Self::LIMIT_MILLIS).contains(&millis) {
            Ok(Self(millis))
        } else {
            Err(ConfigError::new(format!(
                "ttl must be at least 1 ms and below 2^53 ms, not {millis} ms"
            )))
        }
    }

    /// A ttl of `duration`, cut to whole milliseconds (nodes expire at that grain).
    ///
    /// # Errors
    /// [`ConfigError`] if that is zero, or 2^53 ms and above.
    pub fn from_duration(duration: Duration) -> Result<Self, ConfigError> {
        Self::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    /// This ttl plus `more`, at most the longest one.
    pub(crate) fn and(self, more: Duration) -> Self {
        let more = u64::try_from(more.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add(more).min(Self::LIMIT_MILLIS - 1))
    }

    /// This ttl minus `less`, at least the shortest one.
    pub(crate) fn without(self, less: Duration) -> Self {
        let less = u64::try_from(less.as_millis()).unwrap_or(u64::MAX);
        Self(self.0.saturating_sub(less).max(1))
    }

    /// The number of milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The same length of time as a [`Duration`].
    pub const fn as_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}
