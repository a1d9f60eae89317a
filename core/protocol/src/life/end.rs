//! How a lease ends: lost, given back or withdrawn. Owns what becomes of its keys in each case.

use std::sync::Arc;

use super::{LeaseLife, Stage};
use crate::command::Ticket;
use crate::hold::LossReason;
use crate::time::Moment;
use crate::withdraw::{ReleaseOutcome, Withdraw, Withdrawal};

/// A lease is lost: what its driver has to tell and to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Loss {
    /// Why.
    pub reason: LossReason,
    /// Takes back what keys are left; `None` if these stay.
    pub withdraw: Option<Withdraw>,
}

/// What becomes of a lease that its user gives back.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub enum Release {
    /// It was released before.
    NotHeld,
    /// It was lost before, so that it had expired. The work under it has ended now: takes back the keys that
    /// were left for that.
    Lost(Option<Withdraw>),
    /// The nodes are asked; what they tell is to be seen by [`ReleaseOutcome::seen`].
    Asked {
        /// Takes the keys back, and tells what became of them.
        withdraw: Withdraw,
        /// Whether nothing was left of the validity.
        was_over: bool,
    },
}

/// Whether its user has had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// `min_hold` counts.
    GivenBack,
    /// It was lost, or never reached its user.
    Withdrawn,
}

impl ReleaseOutcome {
    /// What its user is told: a lease whose validity was over at the call had expired, whatever keys still stood.
    /// So whoever asks the lease and whoever releases it hear the same.
    #[must_use]
    pub const fn seen(self, was_over: bool) -> Self {
        match self {
            Self::Released | Self::Unknown if was_over => Self::Expired,
            outcome => outcome,
        }
    }
}

impl LeaseLife {
    /// The loss that its driver was not told yet; at most once in its life there is one.
    pub fn take_loss(&mut self) -> Option<Loss> {
        let loss = self.untold.as_mut()?.loss.take();
        self.tidy();
        loss
    }

    /// The user gives it back: the work under it has ended.
    pub fn release(&mut self, now: Moment) -> Release {
        let was_over = self.is_over(now);
        match self.end(now) {
            Stage::Released => Release::NotHeld,
            Stage::Lost(reason) => {
                let left = self.keys_stay(reason);
                Release::Lost(left.then(|| self.withdrawal(now, Ending::GivenBack)))
            }
            Stage::Held => {
                let withdraw = self.withdrawal(now, Ending::GivenBack);
                Release::Asked { withdraw, was_over }
            }
        }
    }

    /// Ends it as if it had never been won, because it has not reached its user. `None` if it is over already.
    pub fn withdraw(&mut self, now: Moment) -> Option<Withdraw> {
        let was_held = self.end(now) == Stage::Held;
        was_held.then(|| self.withdrawal(now, Ending::Withdrawn))
    }

    /// Ends it by its user's will; tells what it was before.
    fn end(&mut self, now: Moment) -> Stage {
        self.stop_work(now);
        std::mem::replace(&mut self.stage, Stage::Released)
    }

    /// It is lost: nothing more is done for it, and its user is to be told.
    pub(super) fn lose(&mut self, now: Moment, reason: LossReason) {
        if self.stage != Stage::Held {
            return;
        }
        self.stop_work(now);
        self.stage = Stage::Lost(reason);
        self.lost = Some(reason);
        let stay = self.keys_stay(reason);
        let withdraw = (!stay).then(|| self.withdrawal(now, Ending::Withdrawn));
        self.untold().loss = Some(Loss { reason, withdraw });
    }

    /// Whether the keys that are left of a lost lease stay until its user has let go of it, or they run out. With a
    /// lock-delay they do: it is for such an end that they last longer. So they do where the nodes have told of the
    /// loss: until the user hears of that, it may rely on a validity that it has read.
    fn keys_stay(&self, reason: LossReason) -> bool {
        !self.policy.lock_delay.is_zero() || reason == LossReason::Gone
    }

    /// Takes the keys back, wherever they may be.
    fn withdrawal(&self, now: Moment, ending: Ending) -> Withdraw {
        let (policy, lease) = (&self.policy, self.lease());
        let (keys_expire_by, valid_until) = match lease {
            Some(lease) => (lease.keys_expire_by(), lease.kept_until(policy.drift)),
            None => (now + policy.key_ttl().as_duration(), now),
        };
        let withdrawal = Withdrawal {
            ticket: Ticket(0),
            claim: Arc::clone(self.claim()),
            quorum: self.quorum,
            // At least one try, also for a lease that is long over.
            keys_expire_by: keys_expire_by.max(now + policy.node_timeout()),
            unsent: lease.map(|lease| lease.unsent().to_vec()).unwrap_or_default(),
            node_timeout: policy.node_timeout(),
        };
        let machine = Withdraw::new(now, withdrawal).valid_until(valid_until);
        match ending {
            Ending::GivenBack => machine.keeping(self.since + policy.min_hold, policy.drift),
            Ending::Withdrawn => machine,
        }
    }
}
