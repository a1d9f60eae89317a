//! A lease without a lock: no quorum could be reached, and its caller goes on all the same, as the
//! setting `on_unreachable` says. Owns which operations such a lease refuses.

use std::sync::Arc;

use quorlock_protocol::{Claim, Policy, Release, Resources};

use super::{Lease, ReleaseVotes};
use crate::error::LockError;
use crate::manager::Manager;
use crate::observe::{EventKind, EventName, sentence_of_degraded};

impl Lease {
    /// A lease without the lock, which `error` kept from being acquired.
    pub(crate) fn degraded(
        manager: &Arc<Manager>,
        resources: &Resources,
        policy: Arc<Policy>,
        error: LockError,
    ) -> Self {
        manager.tell_degraded(&sentence_of_degraded(resources, &error.to_string()));
        manager.telemetry.emit(EventName::Degraded, || EventKind::Degraded {
            resources: resources.clone(),
            detail: error.to_string(),
        });
        let claim = Claim { resources: resources.clone(), holder: Manager::fresh_holder() };
        let lease = Self::adopt(manager, Arc::new(claim), policy);
        lease.shared.lock().extras().degraded = Some(error);
        lease
    }

    /// Whether it is **not** a lock: no quorum could be reached, and the lock was told to go on all
    /// the same ([`OnUnreachable::Proceed`](crate::OnUnreachable)). It has no validity and no
    /// fencing token, is never lost, and its release does nothing.
    pub fn is_degraded(&self) -> bool {
        self.why_degraded().is_some()
    }

    /// What kept it from being locked, if it [is degraded](Self::is_degraded).
    pub fn why_degraded(&self) -> Option<LockError> {
        self.shared.lock().extras.as_ref()?.degraded.clone()
    }

    pub(super) fn refuse_degraded(&self) -> Result<(), LockError> {
        self.why_degraded().map_or(Ok(()), Err)
    }

    /// Ends it, if it is degraded; the second time it is not held any more.
    pub(super) fn release_degraded(&self) -> Option<Result<ReleaseVotes, LockError>> {
        if !self.is_degraded() {
            return None;
        }
        let release = self.shared.lock().life.release(self.shared.now());
        Some(match release {
            Release::NotHeld => Err(self.not_held()),
            Release::Lost(_) | Release::Asked { .. } => Ok(ReleaseVotes::default()),
        })
    }
}
