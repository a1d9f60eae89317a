//! The lease that a won round gives: its claim, token and validity. Owns only these facts; only the
//! machines create one.

use std::sync::Arc;
use std::time::Duration;

use crate::identity::{Claim, FencingToken, HolderId, NodeId, Resources};
use crate::time::{Moment, Ttl};
use crate::validity::Drift;

/// A claim that a quorum granted, and the time until which it may be trusted.
///
/// Only a won round or extension creates one: there is no public constructor.
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

    /// The time to live from which its validity was computed.
    pub const fn ttl(&self) -> Ttl {
        self.ttl
    }

    /// The end of the validity: after it another client may hold the lock.
    pub const fn until(&self) -> Moment {
        self.until
    }

    /// The time until which the keys cannot have expired: the end of the validity plus the
    /// lock-delay. Nobody else can have held the lock before then, whether the lease was trusted or
    /// not.
    pub fn kept_until(&self, drift: Drift) -> Moment {
        if self.key_ttl == self.ttl {
            return self.until;
        }
        let end = |ttl| drift.end_of(ttl, Moment::default());
        self.until + end(self.key_ttl).since(end(self.ttl))
    }

    /// When the keys have expired on every node, however late the node was asked.
    pub const fn keys_expire_by(&self) -> Moment {
        self.keys_expire_by
    }

    /// Whether keys may last longer than the round that proved it explains: for a lock-delay, for a renewal that was not
    /// won, or for a longer ttl before the last extension.
    pub(crate) fn outlasts_validity(&self, drift: Drift, node_timeout: Duration) -> bool {
        // A node is asked until one timeout after the round began, and one after it was won.
        let explained = self.until + (drift.of(self.ttl) + node_timeout) * 2;
        self.keys_expire_by > explained
    }

    /// Nodes that cannot hold the keys: the grant was never sent to them, and there was no extension.
    pub fn unsent(&self) -> &[NodeId] {
        &self.unsent
    }

    /// Notes that an extension is under way: it may set the keys on any node, to be kept until
    /// `keys_expire_by`.
    pub fn outlast(&mut self, keys_expire_by: Moment) {
        self.keys_expire_by = self.keys_expire_by.max(keys_expire_by);
        self.unsent.clear();
    }

    /// Shortens the trust in the lease to `until`.
    pub fn limit(&mut self, until: Moment) {
        self.until = self.until.min(until);
    }

    /// The time that is left of the validity.
    pub const fn validity(&self, now: Moment) -> Duration {
        self.until.since(now)
    }
}
