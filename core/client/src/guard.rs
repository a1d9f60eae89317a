//! A lease with an owner. Owns the rule that a dropped lease is withdrawn.

use std::ops::Deref;

use quorlock_protocol::ReleaseOutcome;

use crate::error::LockError;
use crate::lease::Lease;

/// A lease that is released when it goes out of scope.
///
/// Dropping it does what [`Self::release`] does, in the background, without telling the outcome; use that
/// to learn whether the lease held until then. It derefs to [`Lease`].
#[must_use = "a lease that is dropped is released"]
#[derive(Debug)]
pub struct LeaseGuard {
    lease: Option<Lease>,
    is_on_its_way: bool,
}

impl LeaseGuard {
    pub(crate) const fn new(lease: Lease) -> Self {
        Self { lease: Some(lease), is_on_its_way: false }
    }

    /// Has not reached whoever asked for it, until [`Self::arrived`] or [`Self::into_lease`]: dropped before
    /// then, it is taken back as an acquisition that was given up ([`Lease::withdraw`]).
    pub const fn on_its_way(mut self) -> Self {
        self.is_on_its_way = true;
        self
    }

    /// Has reached whoever asked for it.
    pub const fn arrived(mut self) -> Self {
        self.is_on_its_way = false;
        self
    }

    /// Releases the lease and tells what became of it.
    ///
    /// # Errors
    /// As for [`Lease::release`].
    pub async fn release(mut self) -> Result<ReleaseOutcome, LockError> {
        match self.lease.take() {
            Some(lease) => lease.release().await,
            None => Ok(ReleaseOutcome::Unknown),
        }
    }

    /// Gives the rule up: the lease ends by an explicit release or by itself.
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
        match self.lease.take() {
            Some(lease) if self.is_on_its_way => lease.withdraw(),
            Some(lease) => lease.give_back(),
            None => {}
        }
    }
}
