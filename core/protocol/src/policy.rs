//! The settings of a lock, checked when they are built. Owns their units, defaults and bounds.

mod checks;
mod derived;
mod guards;
mod options;
mod unreachable;
mod waiting;

use std::time::Duration;

pub use self::guards::RestartGuard;
pub use self::options::{OptionDefault, OptionInfo, OptionKind};
pub use self::unreachable::OnUnreachable;
pub use self::waiting::WaitMode;

use crate::time::Ttl;
use crate::validity::Drift;

/// The settings of a lock: valid by construction, made by [`Policy::builder`].
#[expect(clippy::struct_excessive_bools, reason = "each is a setting of its own")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    pub(crate) ttl: Ttl,
    pub(crate) drift: Drift,
    pub(crate) node_timeout: Option<Duration>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry_limit: Option<u32>,
    pub(crate) retry_delay: Duration,
    pub(crate) retry_jitter: Duration,
    pub(crate) unreachable_timeout: Duration,
    pub(crate) fencing: bool,
    pub(crate) fence_retention: Ttl,
    pub(crate) auto_extend: bool,
    pub(crate) max_hold: Duration,
    pub(crate) restart_guard: RestartGuard,
    pub(crate) clock_guard: bool,
    pub(crate) max_ttl: Option<Ttl>,
    pub(crate) lock_delay: Duration,
    pub(crate) min_hold: Duration,
    pub(crate) wait: WaitMode,
    pub(crate) fair: bool,
    pub(crate) on_unreachable: OnUnreachable,
}

impl Policy {
    /// Starts from the defaults.
    pub fn builder() -> PolicyBuilder {
        PolicyBuilder::default()
    }

    /// Starts from these settings.
    pub fn to_builder(self) -> PolicyBuilder {
        PolicyBuilder::from(self)
    }

    /// The ttl from which the validity is computed.
    pub const fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// The allowance for clocks that run apart.
    pub const fn drift(&self) -> Drift {
        self.drift
    }

    /// How long the whole acquisition may take; `None` waits until the lock is held.
    pub const fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// How many rounds may follow the first; `None` for no limit.
    pub const fn retry_limit(&self) -> Option<u32> {
        self.retry_limit
    }

    /// Whether leases are renewed until they are released.
    pub const fn auto_extend(&self) -> bool {
        self.auto_extend
    }

    /// How long an acquisition continues without a reachable quorum where nothing else limits it.
    pub const fn unreachable_timeout(&self) -> Duration {
        self.unreachable_timeout
    }

    /// For how long, at most, a lease is renewed.
    pub const fn max_hold(&self) -> Duration {
        self.max_hold
    }

    /// What is done about nodes that may have forgotten locks.
    pub const fn restart_guard(&self) -> RestartGuard {
        self.restart_guard
    }

    /// Whether the nodes' clocks are compared.
    pub const fn clock_guard(&self) -> bool {
        self.clock_guard
    }

    /// The longest ttl that locks may have, where one was set.
    pub const fn max_ttl(&self) -> Option<Ttl> {
        self.max_ttl
    }

    /// For how long the nodes keep the keys of a lease beyond its ttl.
    pub const fn lock_delay(&self) -> Duration {
        self.lock_delay
    }

    /// How long, at least, the lock is kept from others after it was acquired, however soon it is
    /// released.
    pub const fn min_hold(&self) -> Duration {
        self.min_hold
    }

    /// What becomes of an acquisition that can reach no quorum.
    pub const fn on_unreachable(&self) -> OnUnreachable {
        self.on_unreachable
    }

    /// Whether acquisitions get a fencing token.
    pub const fn fencing(&self) -> bool {
        self.fencing
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            ttl: Ttl::from_millis(10_000).expect("ten seconds is a valid ttl"),
            drift: Drift::default(),
            node_timeout: None,
            timeout: None,
            retry_limit: None,
            retry_delay: Duration::from_millis(100),
            retry_jitter: Duration::from_millis(50),
            unreachable_timeout: Duration::from_secs(3),
            fencing: true,
            fence_retention: Ttl::from_millis(120_000).expect("two minutes are a valid ttl"),
            auto_extend: false,
            max_hold: Duration::from_secs(86_400),
            restart_guard: RestartGuard::Auto,
            clock_guard: true,
            max_ttl: None,
            lock_delay: Duration::ZERO,
            min_hold: Duration::ZERO,
            wait: WaitMode::Push,
            fair: false,
            on_unreachable: OnUnreachable::Raise,
        }
    }
}

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
    /// Raise it when the network or the process may stall for long; lower it so that a crashed
    /// holder's lock is free sooner.
    pub const fn ttl(mut self, ttl: Duration) -> Self {
        self.raw_ttl = Some(ttl);
        self
    }

    /// The part of the ttl that is subtracted because clocks run at different rates. Default 0.01.
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

    /// How long an acquisition may take as a whole. Default: no limit. Zero, and anything below a
    /// millisecond, tries once.
    pub const fn timeout(mut self, timeout: Option<Duration>) -> Self {
        self.policy.timeout = timeout;
        self
    }

    /// Takes what has passed already from the timeout, if there is one. [`TO_TRY`] is left, or the whole of a shorter
    /// timeout.
    pub fn waited(mut self, time: Duration) -> Self {
        let left = |timeout: Duration| timeout.saturating_sub(time).max(timeout.min(TO_TRY));
        self.policy.timeout = self.policy.timeout.map(left);
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

    /// How long an acquisition continues without a reachable quorum where neither a timeout nor a
    /// limit of retries is set. Default 3 s.
    pub const fn unreachable_timeout(mut self, timeout: Duration) -> Self {
        self.policy.unreachable_timeout = timeout;
        self
    }

    /// Whether acquisitions get a fencing token. Default on.
    pub const fn fencing(mut self, on: bool) -> Self {
        self.policy.fencing = on;
        self
    }

    /// How long nodes remember the fencing tokens that they have granted after the last client
    /// asked them to (each client does every 10 s while it is connected). Default 120 s; less than
    /// 30 s counts as 30 s. The longest value of all clients applies.
    ///
    /// Raise it where the clocks of the nodes may differ by more than a minute: once tokens are
    /// forgotten, only those clocks keep tokens growing.
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

    /// What becomes of an acquisition that can reach no quorum. Default [`OnUnreachable::Raise`].
    ///
    /// With [`OnUnreachable::Proceed`] the caller goes on **without the lock**: choose it only for
    /// locks that save work and protect nothing.
    pub const fn on_unreachable(mut self, choice: OnUnreachable) -> Self {
        self.policy.on_unreachable = choice;
        self
    }

    /// What is done about nodes that may have forgotten locks. Default [`RestartGuard::Auto`].
    pub const fn restart_guard(mut self, guard: RestartGuard) -> Self {
        self.policy.restart_guard = guard;
        self
    }

    /// Whether the nodes' clocks are compared, and the grants of a node whose clock was set forward
    /// stop counting as after a restart. Default on; has no effect with one node.
    pub const fn clock_guard(mut self, on: bool) -> Self {
        self.policy.clock_guard = on;
        self
    }

    /// The longest time for which any lock may ask nodes to keep its keys; a longer one is refused.
    /// Default: no limit.
    ///
    /// A node that may have forgotten locks is not trusted for this time. Without it, the guards
    /// use the longest time that this client has asked for, or that others have noted on the nodes,
    /// up to a day. All clients should have the same value.
    pub const fn max_ttl(mut self, limit: Option<Duration>) -> Self {
        self.policy.max_ttl = None;
        self.raw_max_ttl = limit;
        self
    }

    /// How much longer than the ttl the nodes keep the keys of a lease that is not released: of one that
    /// was lost, or whose process died. Default 0, whole milliseconds.
    ///
    /// Raise it where no fencing token can be checked, to the longest time for which work may
    /// continue after its lease has ended (a pause, a request under way): until it has passed
    /// nobody else can begin. Every crash blocks the lock for that much longer. A release frees the
    /// lock at once, even after a loss: it says that the work has ended.
    pub const fn lock_delay(mut self, delay: Duration) -> Self {
        self.policy.lock_delay = delay;
        self
    }

    /// How long the lock is kept from others, at least, from its acquisition on: a release before that
    /// leaves the keys until then. Default 0.
    ///
    /// Raise it for a job that several machines begin at the same time of day: to more than their
    /// clocks may differ, and less than its period, so that the next machine does not repeat a
    /// short run. Only releases are delayed: a lease that is lost, or whose process died, ends as
    /// always.
    pub const fn min_hold(mut self, least: Duration) -> Self {
        self.policy.min_hold = least;
        self
    }

    /// How a caller that waits learns that the lock is free. Default [`WaitMode::Push`].
    ///
    /// Choose [`WaitMode::Poll`] where servers are reached through a proxy that cannot push, or where a second
    /// connection a server is too much: a waiter then tries again after each `retry_delay`.
    pub const fn wait(mut self, mode: WaitMode) -> Self {
        self.policy.wait = mode;
        self
    }

    /// Whether callers get the lock in the order in which they came, over all processes that set this too. Default
    /// off; for one resource.
    ///
    /// Every grant is then a script that looks at the queue, and a free lock costs one more round trip. Callers
    /// without it are not stopped: they may come in between.
    pub const fn fair(mut self, on: bool) -> Self {
        self.policy.fair = on;
        self
    }
}

/// Enough for a try on a machine that is so busy that the call began late.
pub const TO_TRY: Duration = Duration::from_millis(150);
