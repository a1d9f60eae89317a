//! A lease in the hands of a client, and what is at work on it. Owns what can be told from both: until when
//! it is trusted, and until when others are kept out.

use quorlock_protocol::{Extend, Hold, Inspect, Lease, Moment, Policy};

use crate::client::{Bound, Task};

/// A lease that was won.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    pub(crate) lease: Lease,
    pub(crate) policy: Policy,
    pub(crate) draw: u32,
    /// The place of this lease among all that were won.
    pub(crate) serial: u32,
    pub(crate) since: Moment,
    /// When the user last extended it, or got it.
    pub(crate) asked: Moment,
    pub(crate) work: Work,
    /// Whether the clock has passed the end of its validity.
    pub(crate) over: bool,
    /// Whether the user looked, and the lease was valid.
    pub(crate) looked: bool,
}

/// What is at work on a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "a client has one, and it is looked at all the time")]
pub(crate) enum Work {
    Nothing,
    Keeping(Task<Hold>),
    Extending(Task<Extend>, Bound, Policy),
    /// Its token is asked for, as by who takes it over.
    TakingOver(Task<Inspect>),
}

impl Holding {
    /// When a lease that is renewed must be over: the last renewal begins within `max_hold`, and may
    /// be tried again until the validity ends.
    pub(crate) fn longest_hold(&self) -> Moment {
        let renewed = (self.since + self.policy.max_hold()).max(self.asked);
        renewed + self.lease.ttl().as_duration() * 2
    }

    /// Until when others are kept out if it is lost: the lock-delay beyond the end of its validity.
    pub(crate) fn kept_until(&self) -> Moment {
        let mut lease = self.lease.clone();
        lease.limit(self.until());
        lease.kept_until(self.policy.drift())
    }

    /// When the round began that proved the lease as it is trusted, or before.
    pub(crate) fn proved(&self) -> Moment {
        let validity = self.policy.drift().end_of(self.lease.ttl(), Moment::default());
        self.until().before(validity.since_epoch())
    }

    /// Whether an explicit extension is under way.
    pub(crate) const fn is_extended(&self) -> bool {
        matches!(self.work, Work::Extending(..))
    }

    /// Until when the lease is trusted.
    pub(crate) fn until(&self) -> Moment {
        match &self.work {
            Work::Nothing | Work::TakingOver(_) => self.lease.until(),
            Work::Keeping(task) => task.machine.lease().until(),
            Work::Extending(task, ..) => self.lease.until().min(task.machine.until()),
        }
    }
}
