//! The life of a lease, from the round that won it (or the call that took it over) to its end. Owns
//! which operation may run when, how long the lease is trusted, and what becomes of its keys.
//!
//! ```text
//!    won ──▶ Idle ◀── resume / stop ──▶ Renewing ──validity over, or proved gone──▶ Lost
//!            ▲  │                          │                                         ▲ │
//!            │  └─extend─▶ Extending ◀─────┘ extend                                  │ │
//!            └───ended────────┘ └────────validity over, or proved gone───────────────┘ │
//!            any of them, and Lost ──release, withdraw──▶ Released ◀───────────────────┘
//! ```
//!
//! One operation at a time works on a lease: its renewal or an extension. Each has a number
//! ([`WorkId`]), and the driver hands in its replies and timers under that number
//! ([`LeaseLife::work`]): input for an operation that has ended changes nothing. A lease that is
//! lost or released is never held again.

mod check;
mod end;
mod marks;
mod work;

use std::sync::Arc;
use std::time::Duration;

use crate::extend::{Extend, Extension};
use crate::hold::{Hold, LossReason};
use crate::identity::{Claim, FencingToken};
use crate::lease::Lease;
use crate::policy::Policy;
use crate::quorum::Quorum;
use crate::round::RoundReport;
use crate::time::Moment;
pub use end::{Loss, Release};
use marks::{Mark, Marks};
use work::Work;
pub use work::{ExtensionEnd, LeaseWork, WorkEnd, WorkId};

/// A lease from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseLife {
    policy: Arc<Policy>,
    quorum: Quorum,
    /// When it was won or taken over, for `max_hold` and `min_hold`.
    since: Moment,
    work: Work,
    work_id: WorkId,
    stage: Stage,
    /// Why it was lost; kept after its release.
    lost: Option<LossReason>,
    marks: Marks,
    /// What its driver has not taken yet. Boxed, as most leases have none at any given time.
    untold: Option<Box<Untold>>,
}

/// The stage that a lease has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Neither released nor known to be lost. Its validity tells whether it may be trusted.
    Held,
    /// It is lost, and not released.
    Lost(LossReason),
    /// It was released or withdrawn.
    Released,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Untold {
    loss: Option<Loss>,
    /// The result of an extension that ended because the lease did, for its driver.
    cut_short: Option<(WorkId, ExtensionEnd)>,
}

impl LeaseLife {
    /// Starts with a lease that was won, at `now`. Its end is told to those that wait in the nodes' queues if it was
    /// waited for there itself (`was_queued`): otherwise the first of them watches the key.
    pub fn won(
        now: Moment,
        (lease, was_queued): (Lease, bool),
        policy: impl Into<Arc<Policy>>,
        quorum: Quorum,
    ) -> Self {
        let mut life = Self::new(now, policy.into(), quorum, Work::Idle(Box::new(lease)));
        life.marks.set(Mark::Queued, was_queued);
        life
    }

    /// Whether its end is told to those that wait in the nodes' queues.
    pub const fn was_queued(&self) -> bool {
        self.marks.has(Mark::Queued)
    }

    /// Takes another process's lease over, by its claim. Nothing is proved until an extension or a
    /// check has proved it.
    pub fn taken_over(
        now: Moment,
        claim: Arc<Claim>,
        policy: impl Into<Arc<Policy>>,
        quorum: Quorum,
    ) -> Self {
        let mut life = Self::new(now, policy.into(), quorum, Work::Unproved(claim));
        life.marks.set(Mark::TakenOver, true);
        life
    }

    fn new(since: Moment, policy: Arc<Policy>, quorum: Quorum, work: Work) -> Self {
        Self {
            policy,
            quorum,
            since,
            work,
            work_id: WorkId::default(),
            stage: Stage::Held,
            lost: None,
            marks: Marks::default(),
            untold: None,
        }
    }

    /// The stage that it has reached.
    pub const fn stage(&self) -> Stage {
        self.stage
    }

    /// Why it was lost, if that happened before its release.
    pub const fn lost(&self) -> Option<LossReason> {
        self.lost
    }

    /// Its settings: those of its acquisition, or of the last extension that was won.
    pub const fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// When it was won or taken over.
    pub const fn since(&self) -> Moment {
        self.since
    }

    /// The claim whose keys it holds.
    pub fn claim(&self) -> &Arc<Claim> {
        match &self.work {
            Work::Unproved(claim) => claim,
            Work::Idle(lease) => lease.claim(),
            Work::Renewing(hold) => hold.lease().claim(),
            Work::Extending(extending) => extending.claim(),
        }
    }

    /// What is proved of it, also after its end; `None` for one that was taken over and not
    /// confirmed.
    pub fn lease(&self) -> Option<&Lease> {
        match &self.work {
            Work::Unproved(_) => None,
            Work::Idle(lease) => Some(lease),
            Work::Renewing(hold) => Some(hold.lease()),
            Work::Extending(extending) => extending.lease(),
        }
    }

    /// The number that the protected resource checks, as far as it is known.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.lease()?.fencing_token()
    }

    /// How much longer it may be trusted; zero once it is lost or released.
    pub fn validity(&self, now: Moment) -> Duration {
        match (self.lease(), self.stage) {
            (Some(lease), Stage::Held) => lease.validity(now),
            _ => Duration::ZERO,
        }
    }

    /// Whether a proved validity has ended.
    pub fn is_over(&self, now: Moment) -> bool {
        self.lease().is_some() && self.validity(now).is_zero()
    }

    /// Whether at the last poll its renewal had failed and less than a third of the ttl was left.
    pub const fn is_at_risk(&self) -> bool {
        self.marks.has(Mark::AtRisk)
    }

    /// How many rounds of the renewal under way have failed so far.
    pub fn renewal_failures(&self) -> u32 {
        match &self.work {
            Work::Renewing(hold) => hold.failures(),
            Work::Unproved(_) | Work::Idle(_) | Work::Extending(_) => 0,
        }
    }

    /// Whether an extension is under way.
    pub const fn is_extending(&self) -> bool {
        matches!(self.work, Work::Extending(_))
    }

    /// Whether it is being renewed, or its end is being watched.
    pub const fn is_kept(&self) -> bool {
        matches!(self.work, Work::Renewing(_))
    }

    /// What every node did in the last completed round of renewal ([`Hold::last_round`]).
    pub fn last_round(&self) -> Option<RoundReport> {
        match &self.work {
            Work::Renewing(hold) => hold.last_round(),
            Work::Unproved(_) | Work::Idle(_) | Work::Extending(_) => None,
        }
    }

    /// [`Self::last_round`], for a driver that keeps the result: the machine drops a round that is
    /// complete.
    pub fn take_round(&mut self) -> Option<RoundReport> {
        let round = self.last_round();
        if let Work::Renewing(hold) = &mut self.work {
            hold.close_round();
        }
        round
    }

    /// The user wants to be told of its loss: its end is watched from the next [`Self::resume`] on.
    pub const fn watch(&mut self) {
        self.marks.set(Mark::Watched, true);
    }

    /// Starts to renew the lease if its settings say so (and `may_renew`), and to watch its end if
    /// the user wants that, unless an operation is at work already. Returns the operation's number
    /// and when to poll it first; there is nothing to send before.
    pub fn resume(&mut self, now: Moment, may_renew: bool) -> Option<(WorkId, Moment)> {
        let is_wanted = self.policy.auto_extend || self.marks.has(Mark::Watched);
        if !is_wanted || self.stage != Stage::Held || !matches!(self.work, Work::Idle(_)) {
            return None;
        }
        let mut policy = Arc::clone(&self.policy);
        if policy.auto_extend && !may_renew {
            policy = Arc::new(policy.without_auto_extend());
        }
        let lease = *self.take_idle()?;
        let hold = Hold::new(now, lease, policy, self.since, self.quorum);
        let first = hold.first_wake();
        Some((self.begin(Work::Renewing(Box::new(hold))), first))
    }

    /// Stops renewal: the lease ends with the validity that is proved, unless it is extended or
    /// released before.
    pub fn let_run_out(&mut self, now: Moment) {
        Arc::make_mut(&mut self.policy).auto_extend = false;
        if self.is_kept() {
            self.stop_work(now);
        }
    }

    /// Starts to prolong the lease by the ttl of `policy`; the operation that was at work is
    /// stopped. `None` if the lease is not held any more: [`Self::stage`] says why.
    pub fn extend(&mut self, now: Moment, policy: Arc<Policy>) -> Option<WorkId> {
        self.expire(now);
        if self.stage != Stage::Held {
            return None;
        }
        self.stop_work(now);
        self.marks.set(Mark::Extended, true);
        let lease = self.take_idle();
        let known = lease.as_deref();
        let extension = Extension {
            claim: Arc::clone(self.claim()),
            fencing_token: known.and_then(Lease::fencing_token),
            until: known.map_or(Moment::FAR_FUTURE, Lease::until),
            patience: policy.timeout.unwrap_or(policy.unreachable_timeout),
            first_ticket: 0,
        };
        let keys_expire_by = known.map_or(now, Lease::keys_expire_by);
        let extend = Extend::new(now, extension, policy, self.quorum).outlasting(keys_expire_by);
        Some(self.begin(Work::extending(lease, extend)))
    }

    /// Compares the validity with the clock, for a lease whose end nobody watches.
    pub fn expire(&mut self, now: Moment) {
        if self.is_over(now) {
            self.lose(now, LossReason::Expired);
        }
    }
}
