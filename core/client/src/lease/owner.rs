//! Writes who holds a lease to the nodes, and deletes it. Owns when; waits for no answer.

use std::time::{Duration, SystemTime};

use super::{Lease, Shared};

impl Lease {
    /// Writes who holds the lease to the nodes, now and with each extension, if the manager tells that.
    pub(crate) fn tell_owner(&self) {
        if self.shared.manager.owner.is_none() {
            return;
        }
        self.shared.lock().extras().owned_since = Some(SystemTime::now());
        self.shared.write_owner();
    }

    /// Deletes what was written, if anything was.
    pub(super) fn erase_owner(&self, max_remaining: Option<Duration>) {
        if self.shared.manager.owner.is_none() {
            return;
        }
        let mut state = self.shared.lock();
        let since = state.extras.as_mut().and_then(|extras| extras.owned_since.take());
        drop(state);
        if since.is_some() {
            self.shared.manager.erase_owner(&self.shared.claim, max_remaining);
        }
    }
}

impl Shared {
    pub(super) fn write_owner(&self) {
        let state = self.lock();
        let since = state.extras.as_ref().and_then(|extras| extras.owned_since);
        let key_ttl = state.life.policy().key_ttl().as_duration();
        drop(state);
        if let (Some(owner), Some(since)) = (&self.manager.owner, since) {
            self.manager.write_owner(owner, &self.claim, (since, key_ttl));
        }
    }
}
