//! A lease that is released when it is dropped. Owns that rule; the lease itself does everything
//! else.

use std::future::Future;
use std::ops::Deref;

use quorlock_protocol::ReleaseOutcome;

use crate::background::BackgroundTicket;
use crate::error::LockError;
use crate::lease::Lease;

/// A lease that is released when it goes out of scope.
///
/// Dropping it does what [`Self::release`] does, in the background, but without telling the
/// outcome; call that to learn whether the lease was held until then. It derefs to [`Lease`].
#[must_use = "a lease that is dropped is released"]
#[derive(Debug)]
pub struct LeaseGuard {
    lease: Option<Lease>,
}

impl LeaseGuard {
    pub(crate) const fn new(lease: Lease) -> Self {
        Self { lease: Some(lease) }
    }

    /// Releases the lease and tells what became of it.
    ///
    /// # Errors
    /// As for [`Lease::release`].
    pub fn release(self) -> impl Future<Output = Result<ReleaseOutcome, LockError>> + Send {
        let releasing = Lease::release(&self);
        async move {
            // Not dropped before the release has begun: a future that is never polled releases, too.
            let outcome = releasing.await;
            drop(self.into_lease());
            outcome
        }
    }

    /// Turns the rule off: the lease ends by an explicit release or by itself.
    pub fn into_lease(mut self) -> Lease {
        self.lease.take().expect("a guard holds its lease until it is consumed")
    }
}

impl Deref for LeaseGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        self.lease.as_ref().expect("a guard holds its lease until it is consumed")
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.give_back();
        }
    }
}

/// A lease on its way to the caller that asked for it, for example through a queue to another
/// thread.
///
/// Dropping it takes the lease back like a cancelled acquisition ([`Lease::withdraw`]): `min_hold`
/// does not apply.
#[derive(Debug)]
pub struct UndeliveredLease {
    lease: Option<Lease>,
    /// A close leaves the nodes open for a moment, so that it can still be taken back.
    _needed: Option<BackgroundTicket>,
}

impl UndeliveredLease {
    /// The lease, which its user does not have yet.
    pub fn lease(&self) -> &Lease {
        self.lease.as_ref().expect("it holds its lease until it is delivered")
    }

    /// The lease has reached its user.
    pub fn deliver(mut self) -> LeaseGuard {
        LeaseGuard { lease: self.lease.take() }
    }
}

impl From<LeaseGuard> for UndeliveredLease {
    fn from(mut guard: LeaseGuard) -> Self {
        let needed = guard.lease.as_ref().map(Lease::need_nodes);
        Self { lease: guard.lease.take(), _needed: needed }
    }
}

impl Drop for UndeliveredLease {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.withdraw();
        }
    }
}
