//! How a lease ends: lost, released or withdrawn. Owns what becomes of its keys in each case.

use std::sync::Arc;

use super::{LeaseLife, Mark, Stage};
use crate::command::Ticket;
use crate::hold::LossReason;
use crate::lease::Lease;
use crate::time::Moment;
use crate::withdraw::{ReleaseOutcome, Withdraw, Withdrawal};

/// The loss of a lease: what its driver has to report and to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loss {
    /// Why the lease was lost.
    pub reason: LossReason,
    /// Takes the remaining keys back; `None` if they stay.
    pub withdraw: Option<Withdraw>,
}

/// What a release by the user leads to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub enum Release {
    /// It was released before.
    NotHeld,
    /// It was lost before, so it had expired. The work under it has ended now, so keys that stayed
    /// until then are taken back.
    Lost(Option<Withdraw>),
    /// The nodes are asked; [`ReleaseOutcome::seen`] turns their answer into the outcome for the
    /// user.
    Asked {
        /// Takes the keys back, and tells what became of them.
        withdraw: Withdraw,
        /// Whether the validity had ended.
        was_over: bool,
    },
}

impl ReleaseOutcome {
    /// The outcome for the user: a lease whose validity had ended at the call had expired, even if
    /// its keys still existed. So a release and a check at the same moment agree.
    #[must_use]
    pub const fn seen(self, was_over: bool) -> Self {
        match self {
            Self::Released | Self::Unknown if was_over => Self::Expired,
            outcome => outcome,
        }
    }
}

impl LeaseLife {
    /// The loss, if its driver has not taken it yet; a lease has at most one.
    pub fn take_loss(&mut self) -> Option<Loss> {
        let loss = self.untold.as_mut()?.loss.take();
        self.tidy();
        loss
    }

    /// The user releases the lease: the work under it has ended.
    pub fn release(&mut self, now: Moment) -> Release {
        let was_over = self.is_over(now);
        match self.end(now) {
            Stage::Released => Release::NotHeld,
            Stage::Lost(reason) => {
                let left = self.keys_stay(reason);
                Release::Lost(left.then(|| self.sparing_others(now, self.given_back(now))))
            }
            Stage::Held => {
                let withdraw = self.given_back(now);
                let withdraw = if was_over { self.sparing_others(now, withdraw) } else { withdraw };
                Release::Asked { withdraw, was_over }
            }
        }
    }

    /// Ends the lease as if it had never been won, because it has not reached its user. `None` if
    /// it has ended already.
    pub fn withdraw(&mut self, now: Moment) -> Option<Withdraw> {
        let was_held = self.end(now) == Stage::Held;
        was_held.then(|| self.withdrawal(now))
    }

    /// Ends the lease because its user wants that; returns the stage before.
    fn end(&mut self, now: Moment) -> Stage {
        self.stop_work(now);
        std::mem::replace(&mut self.stage, Stage::Released)
    }

    /// Marks the lease as lost: no operation works on it any more, and its user must be told.
    pub(super) fn lose(&mut self, now: Moment, reason: LossReason) {
        if self.stage != Stage::Held {
            return;
        }
        self.stop_work(now);
        self.stage = Stage::Lost(reason);
        self.lost = Some(reason);
        let stay = self.keys_stay(reason);
        let own_end = self.lease().map_or(now, Lease::keys_expire_by);
        let withdraw = (!stay).then(|| self.withdrawal(now).sparing(own_end));
        self.untold().loss = Some(Loss { reason, withdraw });
    }

    /// Whether the remaining keys of a lost lease stay until its user releases it or they expire.
    /// With a lock-delay they stay: it makes them last longer for this case. They also stay if the
    /// nodes have reported the loss: until the user learns of that, it may rely on a validity that
    /// it has read. And they stay if another may go by them for longer: the one that handed the
    /// lease over, or the one to which a lease that is not renewed was handed.
    fn keys_stay(&self, reason: LossReason) -> bool {
        let may_be_anothers = self.marks.has(Mark::TakenOver) || !self.policy.auto_extend;
        !self.policy.lock_delay.is_zero() || reason == LossReason::Gone || may_be_anothers
    }

    /// The machine that takes the keys back from all nodes.
    fn withdrawal(&self, now: Moment) -> Withdraw {
        let (policy, lease) = (&self.policy, self.lease());
        let (keys_expire_by, valid_until) = match lease {
            Some(lease) => (lease.keys_expire_by(), lease.kept_until(policy.drift)),
            None => (now + policy.key_ttl().as_duration(), now),
        };
        let withdrawal = Withdrawal {
            ticket: Ticket(0),
            claim: Arc::clone(self.claim()),
            quorum: self.quorum,
            // At least one try, also for a lease that ended long ago.
            keys_expire_by: keys_expire_by.max(now + policy.node_timeout()),
            unsent: lease.map(|lease| lease.unsent().to_vec()).unwrap_or_default(),
            node_timeout: policy.node_timeout(),
        };
        Withdraw::new(now, withdrawal).valid_until(valid_until).calling(self.was_queued())
    }

    /// The same for a release: `min_hold` applies.
    fn given_back(&self, now: Moment) -> Withdraw {
        let (min_hold, drift) = (self.policy.min_hold, self.policy.drift);
        self.withdrawal(now).keeping(self.since + min_hold, drift)
    }

    /// The same where the lease has ended: keys that another who has its token has extended stay. Keys that run out with
    /// the validity are left to do so. What the lease asked nodes to keep for longer is taken back, and so is what is left
    /// of one that ended before its time. Of one that was never proved, all is.
    fn sparing_others(&self, now: Moment, withdraw: Withdraw) -> Withdraw {
        let Some(lease) = self.lease() else {
            return withdraw;
        };
        let node_timeout = self.policy.node_timeout();
        let asked_more = self.marks.has(Mark::Extended)
            || lease.outlasts_validity(self.policy.drift, node_timeout);
        let lasts = now < lease.until() || asked_more;
        withdraw.sparing(if lasts { lease.keys_expire_by() } else { now })
    }
}
