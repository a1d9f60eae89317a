//! A lease as a client of the world holds it: its shipping life, and what its driver knows. Owns
//! until when it is trusted, and until when others are kept out.

use quorlock_protocol::{Inspect, Lease, LeaseLife, Moment, WorkId};

use crate::client::{Bound, Task};
use crate::link::Op;

/// A lease that was won.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holding {
    pub(crate) life: LeaseLife,
    /// The driver of the operation that is at work on it.
    pub(crate) driver: Option<Driver>,
    /// When the extension under way must have ended.
    pub(crate) bound: Option<Bound>,
    /// A check that is under way.
    pub(crate) check: Option<Box<Check>>,
    pub(crate) draw: u32,
    /// The place of this lease among all that were won.
    pub(crate) serial: u32,
    /// When the user last extended it, or got it.
    pub(crate) asked: Moment,
    /// Whether the clock has passed the end of its validity.
    pub(crate) over: bool,
    /// Whether the user looked, and the lease was valid.
    pub(crate) looked: bool,
}

/// The driver of a renewal or an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Driver {
    pub(crate) op: Op,
    pub(crate) id: WorkId,
    pub(crate) wake: Moment,
}

/// A look at what the nodes hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Check {
    pub(crate) task: Task<Inspect>,
    pub(crate) asked: WorkId,
    /// The lease of the client that takes it over, if that client looks.
    pub(crate) taken_over: Option<LeaseLife>,
}

impl Holding {
    /// What is proved of it; a lease that was won always has a proof.
    pub(crate) fn lease(&self) -> &Lease {
        self.life.lease().expect("it was won")
    }

    /// When a lease that is renewed must have ended: the last renewal begins within `max_hold`, and
    /// may be tried again until the validity ends.
    pub(crate) fn longest_hold(&self) -> Moment {
        let renewed = (self.life.since() + self.life.policy().max_hold()).max(self.asked);
        renewed + self.lease().ttl().as_duration() * 2
    }

    /// Until when others are kept out if it is lost: the lock-delay beyond the end of its validity.
    pub(crate) fn kept_until(&self) -> Moment {
        self.lease().kept_until(self.life.policy().drift())
    }

    /// When the round that proved the trusted validity began, or earlier.
    pub(crate) fn proved(&self) -> Moment {
        let validity = self.life.policy().drift().end_of(self.lease().ttl(), Moment::default());
        self.until().before(validity.since_epoch())
    }

    /// Whether its user waits for an extension or a check.
    pub(crate) fn is_busy(&self) -> bool {
        self.life.is_extending() || self.check.is_some()
    }

    /// Until when the lease is trusted.
    pub(crate) fn until(&self) -> Moment {
        self.lease().until()
    }

    /// Whether it is trusted at `clock`.
    pub(crate) fn is_trusted(&self, clock: Moment) -> bool {
        !self.life.validity(clock).is_zero()
    }

    /// When the next of its timers is due.
    pub(crate) fn wake(&self) -> Moment {
        let check = self.check.as_ref().map_or(Moment::FAR_FUTURE, |check| check.task.wake);
        self.driver.map_or(Moment::FAR_FUTURE, |driver| driver.wake).min(check)
    }
}
