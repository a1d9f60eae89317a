//! What a won round gives. Owns nothing but the facts of it; only the machines can make one.

use std::sync::Arc;
use std::time::Duration;

use crate::identity::{Claim, FencingToken, HolderId, NodeId, Resources};
use crate::time::{Moment, Ttl};
use crate::validity::Drift;

/// A claim that a quorum granted, and until when that may be trusted.
///
/// Only a won round makes one, or prolongs one into the next: there is no public constructor.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub(crate) claim: Arc<Claim>,
    pub(crate) fencing_token: Option<FencingToken>,
    pub(crate) ttl: Ttl,
    pub(crate) key_ttl: Ttl,
    pub(crate) until: Moment,
    pub(crate) keys_expire_by: Moment,
    pub(crate) fence_retention: Ttl,
    pub(crate) unsent: Vec<NodeId>,
}

impl Lease {
    /// The claim that was granted.
    pub const fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// What is held.
    pub fn resources(&self) -> &Resources {
        &self.claim.resources
    }

    /// The value of the keys.
    pub fn holder(&self) -> &HolderId {
        &self.claim.holder
    }

    /// The fencing token of the acquisition; `None` where fencing is off.
    pub const fn fencing_token(&self) -> Option<FencingToken> {
        self.fencing_token
    }

    /// From which its validity was reckoned.
    pub const fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// The end of the validity: from then on another may hold the lock.
    pub const fn until(&self) -> Moment {
        self.until
    }

    /// Until when the keys cannot have run out by themselves: the end of the validity, and the lock-delay
    /// beyond it. Nobody else can have held the lock before then, trusted or not.
    pub fn kept_until(&self, drift: Drift) -> Moment {
        if self.key_ttl == self.ttl {
            return self.until;
        }
        let end = |ttl| drift.end_of(ttl, Moment::default());
        self.until + end(self.key_ttl).since(end(self.ttl))
    }

    /// When the last node will have forgotten the keys by itself, however late it was asked.
    pub const fn keys_expire_by(&self) -> Moment {
        self.keys_expire_by
    }

    /// Nodes that cannot hold the keys: the grant was never sent to them, and there was no extension.
    pub fn unsent(&self) -> &[NodeId] {
        &self.unsent
    }

    /// An extension is under way: it may give the keys to any node, to be kept until `keys_expire_by`.
    pub fn outlast(&mut self, keys_expire_by: Moment) {
        self.keys_expire_by = self.keys_expire_by.max(keys_expire_by);
        self.unsent.clear();
    }

    /// Trusts the lease no longer than `until`.
    pub fn limit(&mut self, until: Moment) {
        self.until = self.until.min(until);
    }

    /// What is left of the validity.
    pub const fn validity(&self, now: Moment) -> Duration {
        self.until.since(now)
    }
}
