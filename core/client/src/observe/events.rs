//! The list of events: what happens to locks and nodes, for programs that watch. Owns the list, the
//! names and the sentences; knows no listener.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use quorlock_protocol::{Claim, FencingToken, LossReason, Resources, WakeCause};

use super::value::Value;
use crate::error::NodeReport;

/// Something that happened to a lock or a node.
///
/// Its [`Display`](std::fmt::Display) is a line for a log, without a password and without the holder id.
///
/// ```
/// use quorlock::{EventKind, Redlock};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), quorlock::LockError> {
/// let locks = Redlock::builder()
///     .nodes(["memory://a", "memory://b", "memory://c"])
///     .on_event(|event| {
///         if let EventKind::Released { held_for, .. } = event.kind() {
///             println!("held for {held_for:?}");
///         }
///     })
///     .build()?;
/// locks.lock("invoice:42").acquire().await?.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    at: SystemTime,
    kind: EventKind,
}

/// What happened, with its details. More kinds may be added.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// A lock was acquired.
    Acquired {
        /// The lease.
        lease: LeaseInfo,
        /// How long its caller waited for it.
        waited: Duration,
        /// How many rounds it took.
        attempts: u32,
        /// What every node did in the last round, as far as it is known.
        votes: Vec<NodeReport>,
    },
    /// A round was refused because another holds the lock.
    Contended {
        /// What was asked for.
        resources: Resources,
        /// When a quorum of the nodes is free if the holder neither extends nor releases; `None`
        /// if the nodes did not tell.
        holder_ends_in: Option<Duration>,
    },
    /// A caller waits for the lock.
    Waiting {
        /// What it waits for.
        resources: Resources,
        /// How many callers are before it in the nodes' queues; `None` where it has no place there.
        rank: Option<u32>,
        /// After what time the lock can be had, if its holder neither extends nor releases it; `None` if the nodes did
        /// not tell.
        holder_ends_in: Option<Duration>,
    },
    /// A caller that waited tries again.
    Woken {
        /// What it waits for.
        resources: Resources,
        /// What woke it.
        by: WakeCause,
        /// How long it had waited.
        waited: Duration,
    },
    /// A lease was prolonged, by its renewal or by its holder.
    Extended {
        /// The lease.
        lease: LeaseInfo,
        /// How long it may be trusted from now on.
        validity: Duration,
        /// The part of the earlier validity that was left, from 0 to 1.
        slack: f64,
    },
    /// A lease could not be prolonged so far; the rest of its validity stays good.
    ExtensionFailed {
        /// The lease.
        lease: LeaseInfo,
        /// How long it may still be trusted.
        validity: Duration,
        /// What kept it.
        detail: String,
    },
    /// A lease was lost: work under it may overlap another holder's.
    Lost {
        /// The lease.
        lease: LeaseInfo,
        /// Why.
        reason: LossReason,
        /// How long it was held.
        held_for: Duration,
    },
    /// A lease was given back.
    Released {
        /// The lease.
        lease: LeaseInfo,
        /// `released`, `expired`, `taken` or `unknown` as for [`Lease::release`](crate::Lease::release),
        /// or `abandoned` if the last handle was dropped without a release.
        outcome: &'static str,
        /// How long it was held.
        held_for: Duration,
    },
    /// The state of a node has changed.
    Node {
        /// The node's address, without a password.
        address: Arc<str>,
        /// The name of its state before.
        from: &'static str,
        /// The name of its state now.
        to: &'static str,
        /// Why, where the name does not say everything.
        detail: Option<String>,
    },
    /// A node may have forgotten locks: its votes do not count for a time.
    Quarantined {
        /// The node's address, without a password.
        address: Arc<str>,
        /// A stable name for why, for example `restarted`.
        reason: &'static str,
        /// For about how long.
        lasts: Duration,
    },
    /// A clock was set, or stood still with this machine.
    ClockStep {
        /// The node's address; `None` if it is this machine's clock.
        address: Option<Arc<str>>,
        /// By how much, where that is known.
        by: Option<Duration>,
        /// `forward`, `back` or `paused`.
        direction: &'static str,
    },
    /// No quorum could be reached, and the caller goes on without the lock, as it asked for.
    Degraded {
        /// What was asked for.
        resources: Resources,
        /// What kept it from being locked.
        detail: String,
    },
}

/// The names of the events, for programs; one bit each in an [`Interest`](super::Interest).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventName {
    /// `acquired`
    Acquired,
    /// `contended`
    Contended,
    /// `waiting`
    Waiting,
    /// `woken`
    Woken,
    /// `extended`
    Extended,
    /// `extension_failed`
    ExtensionFailed,
    /// `lost`
    Lost,
    /// `released`
    Released,
    /// `node`
    Node,
    /// `quarantined`
    Quarantined,
    /// `clock_step`
    ClockStep,
    /// `degraded`
    Degraded,
}

/// Which lease an event is about. Its [`Debug`](fmt::Debug) hides the holder id, which is for nobody's log.
#[derive(Clone, PartialEq, Eq)]
pub struct LeaseInfo {
    claim: Arc<Claim>,
    fencing_token: Option<u64>,
}

impl fmt::Debug for LeaseInfo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("LeaseInfo");
        shown.field("resources", &self.claim.resources);
        shown.field("fencing_token", &self.fencing_token).finish_non_exhaustive()
    }
}

impl Event {
    pub(super) fn now(kind: EventKind) -> Self {
        Self { at: SystemTime::now(), kind }
    }

    /// When it happened, by the wall clock.
    pub const fn at(&self) -> SystemTime {
        self.at
    }

    /// What happened.
    pub const fn kind(&self) -> &EventKind {
        &self.kind
    }

    /// A stable name for it, for example `acquired`.
    pub const fn name(&self) -> &'static str {
        self.kind.name().as_str()
    }

    /// Its fields by name, for a binding.
    #[doc(hidden)]
    pub fn fields(&self) -> Vec<(&'static str, Value)> {
        self.kind.fields()
    }
}

impl EventKind {
    /// Its name.
    pub const fn name(&self) -> EventName {
        match self {
            Self::Acquired { .. } => EventName::Acquired,
            Self::Contended { .. } => EventName::Contended,
            Self::Waiting { .. } => EventName::Waiting,
            Self::Woken { .. } => EventName::Woken,
            Self::Extended { .. } => EventName::Extended,
            Self::ExtensionFailed { .. } => EventName::ExtensionFailed,
            Self::Lost { .. } => EventName::Lost,
            Self::Released { .. } => EventName::Released,
            Self::Node { .. } => EventName::Node,
            Self::Quarantined { .. } => EventName::Quarantined,
            Self::ClockStep { .. } => EventName::ClockStep,
            Self::Degraded { .. } => EventName::Degraded,
        }
    }
}

impl EventName {
    /// Every name, in the order of its bits.
    pub const ALL: [Self; 12] = [
        Self::Acquired,
        Self::Contended,
        Self::Waiting,
        Self::Woken,
        Self::Extended,
        Self::ExtensionFailed,
        Self::Lost,
        Self::Released,
        Self::Node,
        Self::Quarantined,
        Self::ClockStep,
        Self::Degraded,
    ];

    /// For example `extension_failed`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acquired => "acquired",
            Self::Contended => "contended",
            Self::Waiting => "waiting",
            Self::Woken => "woken",
            Self::Extended => "extended",
            Self::ExtensionFailed => "extension_failed",
            Self::Lost => "lost",
            Self::Released => "released",
            Self::Node => "node",
            Self::Quarantined => "quarantined",
            Self::ClockStep => "clock_step",
            Self::Degraded => "degraded",
        }
    }
}

impl LeaseInfo {
    pub(crate) fn new(claim: &Arc<Claim>, token: Option<FencingToken>) -> Self {
        Self { claim: Arc::clone(claim), fencing_token: token.map(|FencingToken(token)| token) }
    }

    pub(super) fn locked(&self) -> &Resources {
        &self.claim.resources
    }

    /// The names of the locked resources.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.claim.resources.names()
    }

    /// The holder id, as [`Lease::token`](crate::Lease::token) tells it: who knows it can release
    /// the lease.
    pub fn token(&self) -> &str {
        self.claim.holder.as_str()
    }

    /// The number that the protected resource checks.
    pub const fn fencing_token(&self) -> Option<u64> {
        self.fencing_token
    }
}
