//! Acting on a lease: extend, check, release, withdraw. Knows the order in which they exclude each other.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    ErrorKind, Extend, Extension, LossReason, Moment, Policy, ReleaseOutcome, RoundReport,
    Standing, Ticket, Withdraw, Withdrawal,
};
use tokio::sync::oneshot;

use super::{LastVotes, Lease, ReleaseVotes, Stage, State};
use crate::clock;
use crate::driver::Driver;
use crate::error::LockError;
use crate::inbox::Inbox;

impl Lease {
    /// Keeps the lease for `ttl` (or as long as before) from now on; returns the new validity.
    ///
    /// Tries again on faults while the validity lasts, for as long as an acquisition would go on
    /// without a quorum. Dropping the future leaves the lease with the validity that is proved.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`] if it is over, [`ErrorKind::QuorumUnreachable`] if too few nodes answer
    /// (what is left of the validity stays good), [`ErrorKind::LockNotHeld`] after a release,
    /// [`ErrorKind::Config`] for a wrong ttl.
    pub async fn extend(&self, ttl: Option<Duration>) -> Result<Duration, LockError> {
        let lease = self.clone();
        self.on_engine(async move { lease.extend_here(ttl).await }).await
    }

    /// [`Self::extend`] on the caller's own task, which must run on the engine.
    ///
    /// # Errors
    /// As for [`Self::extend`].
    pub async fn extend_here(&self, ttl: Option<Duration>) -> Result<Duration, LockError> {
        let _one_at_a_time = self.shared.gate.lock().await;
        let policy = self.policy_with(ttl)?;
        self.shared.manager.announce(&policy);
        self.shared.manager.settle(None).await?;
        let driver = Driver::new(&self.shared.manager.nodes);
        let mut machine = self.begin_extension(&driver, policy)?;
        // However this ends, also when the future is dropped, the lease is watched again afterwards.
        let _resume = ResumeOnDrop { lease: self, inbox: &driver.inbox };
        let shared = &self.shared;
        let outcome = driver
            .run(&mut machine, |machine| {
                shared.lock().bound(machine.until(), machine.forgotten());
            })
            .await;
        let spent = (outcome.attempts, outcome.elapsed);
        match outcome.result {
            Ok(lease) => {
                let votes = match outcome.round {
                    Some(round) => LastVotes::Open(round, Arc::clone(&driver.inbox)),
                    None => LastVotes::Closed(shared.manager.name_votes(&outcome.report)),
                };
                self.finish_extension(lease, policy, votes)
            }
            Err(kind) => {
                if kind == ErrorKind::LeaseLost {
                    let is_over = clock::now() >= outcome.until;
                    self.lose(if is_over { LossReason::Expired } else { LossReason::Gone });
                }
                Err(self.error(kind, &[outcome.report], spent))
            }
        }
    }

    /// Asks the nodes whether a quorum still holds the lease; returns the validity that they prove.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`] if it is proved to be over, [`ErrorKind::QuorumUnreachable`] if too few
    /// nodes answer to tell, [`ErrorKind::LockNotHeld`] after a release.
    pub async fn check(&self) -> Result<Duration, LockError> {
        let lease = self.clone();
        self.on_engine(async move { lease.check_here().await }).await
    }

    /// [`Self::check`] on the caller's own task, which must run on the engine.
    ///
    /// # Errors
    /// As for [`Self::check`].
    pub async fn check_here(&self) -> Result<Duration, LockError> {
        let _one_at_a_time = self.shared.gate.lock().await;
        self.check_usable()?;
        let policy = self.shared.lock().policy;
        self.shared.manager.settle(None).await?;
        let inspection = self.shared.manager.inspect(&self.shared.claim, policy).await;
        let spent = (1, clock::now().since(inspection.report.started));
        let kind = match inspection.standing {
            Standing::Held(lease) => {
                let mut state = self.shared.lock();
                // What was proved before may reach further than the slowest node's answer.
                let is_news = state.facts.is_none();
                state.facts.get_or_insert(lease);
                drop(state);
                if is_news {
                    self.resume();
                }
                self.check_usable()?;
                return Ok(self.validity());
            }
            Standing::NotHeld => ErrorKind::LeaseLost,
            Standing::Unknown => ErrorKind::QuorumUnreachable,
        };
        if kind == ErrorKind::LeaseLost {
            self.lose(LossReason::Gone);
        }
        Err(self.error(kind, &[inspection.report], spent))
    }

    /// Takes the keys back and tells what became of the lease, as soon as a quorum has spoken.
    ///
    /// The rest goes on in the background, also when the future is dropped; nodes that cannot be
    /// reached are tried again until they have forgotten the keys by themselves. A lease that had
    /// expired is no error here: it is an outcome, told at once.
    ///
    /// # Errors
    /// [`ErrorKind::LockNotHeld`] if it was released before.
    pub async fn release(&self) -> Result<ReleaseOutcome, LockError> {
        self.release_told().await.map(|(outcome, _)| outcome)
    }

    /// [`Self::release`], with what the nodes answer.
    ///
    /// # Errors
    /// As for [`Self::release`].
    pub async fn release_told(&self) -> Result<(ReleaseOutcome, ReleaseVotes), LockError> {
        let votes = ReleaseVotes::new(&self.shared.manager.addresses);
        if let Stage::Lost(_) = self.begin_release()? {
            return Ok((ReleaseOutcome::Expired, votes));
        }
        let (send, told) = oneshot::channel();
        self.revoke(Some(send), votes.clone());
        Ok((told.await.unwrap_or(ReleaseOutcome::Unknown), votes))
    }

    /// The error that an outcome of [`Self::release`] amounts to, for those who want one: the lease
    /// was over before it was released.
    pub fn loss(&self, outcome: ReleaseOutcome) -> Option<LockError> {
        if let Some(reason) = self.shared.lock().lost {
            return Some(self.lost_error(reason));
        }
        LockError::of_outcome(outcome, &self.shared.claim.resources)
    }

    /// Gives the lease back without waiting for the outcome. Does nothing if it is over already.
    pub fn withdraw(&self) {
        if matches!(self.begin_release(), Ok(Stage::Held)) {
            self.revoke(None, ReleaseVotes::default());
        }
    }

    fn begin_release(&self) -> Result<Stage, LockError> {
        let mut state = self.shared.lock();
        if state.stage == Stage::Released {
            drop(state);
            return Err(self.not_held());
        }
        state.stop_active();
        Ok(std::mem::replace(&mut state.stage, Stage::Released))
    }

    fn revoke(&self, mut told: Option<oneshot::Sender<ReleaseOutcome>>, votes: ReleaseVotes) {
        let mut machine = self.withdrawal();
        let driver = Driver::new(&self.shared.manager.nodes);
        let work = async move {
            driver
                .run(&mut machine, |machine| {
                    votes.set(machine.report());
                    if let (Some(outcome), true) = (machine.outcome(), told.is_some()) {
                        let _ = told.take().map(|told| told.send(outcome));
                    }
                })
                .await;
        };
        self.shared.manager.engine.background(work);
    }

    /// A machine that takes the lease's keys back.
    pub(super) fn withdrawal(&self) -> Withdraw {
        let state = self.shared.lock();
        let now = clock::now();
        let (forgotten, valid_until) = match &state.facts {
            Some(facts) => (facts.forgotten(), facts.until()),
            None => (now + state.policy.ttl().as_duration(), now),
        };
        let withdrawal = Withdrawal {
            ticket: Ticket(0),
            claim: Arc::clone(&self.shared.claim),
            quorum: self.shared.manager.quorum,
            // At least one try, also for a lease that is long over.
            forgotten: forgotten.max(now + state.policy.node_timeout()),
            node_timeout: state.policy.node_timeout(),
        };
        Withdraw::new(now, withdrawal).valid_until(valid_until)
    }

    fn begin_extension(&self, driver: &Driver, policy: Policy) -> Result<Extend, LockError> {
        self.check_usable()?;
        let mut state = self.shared.lock();
        state.stop_active();
        state.active = Some(Arc::clone(&driver.inbox));
        let facts = state.facts.as_ref();
        let extension = Extension {
            claim: Arc::clone(&self.shared.claim),
            fencing_token: facts.and_then(quorlock_protocol::Lease::fencing_token),
            until: facts.map_or(Moment::FAR_FUTURE, quorlock_protocol::Lease::until),
            patience: policy.timeout().unwrap_or(policy.unreachable_timeout()),
            first_ticket: 0,
        };
        let now = clock::now();
        let forgotten = facts.map_or(now, quorlock_protocol::Lease::forgotten);
        let machine = Extend::new(now, extension, policy, self.shared.manager.quorum);
        Ok(machine.outlasting(forgotten))
    }

    fn finish_extension(
        &self,
        lease: quorlock_protocol::Lease,
        policy: Policy,
        votes: LastVotes,
    ) -> Result<Duration, LockError> {
        let mut state = self.shared.lock();
        if state.stage == Stage::Released {
            drop(state);
            return Err(self.not_held());
        }
        state.facts = Some(lease);
        state.policy = policy;
        state.votes = votes;
        drop(state);
        Ok(self.validity())
    }

    fn check_usable(&self) -> Result<(), LockError> {
        let known = self.shared.lock();
        let is_over = known.facts.is_some() && known.validity(clock::now()).is_zero();
        let stage = known.stage;
        drop(known);
        match stage {
            Stage::Released => Err(self.not_held()),
            Stage::Held if is_over => {
                self.lose(LossReason::Expired);
                Err(self.lost_error(LossReason::Expired))
            }
            Stage::Lost(reason) => Err(self.lost_error(reason)),
            Stage::Held => self.shared.manager.check_open(&self.shared.claim.resources),
        }
    }

    fn policy_with(&self, ttl: Option<Duration>) -> Result<Policy, LockError> {
        let policy = self.shared.lock().policy;
        match ttl {
            Some(ttl) => Ok(policy.to_builder().ttl(ttl).build()?),
            None => Ok(policy),
        }
    }

    async fn on_engine<T: Send + 'static>(
        &self,
        operation: impl Future<Output = Result<T, LockError>> + Send + 'static,
    ) -> Result<T, LockError> {
        let task = self.shared.manager.engine.spawn(operation);
        task.await.unwrap_or_else(|| Err(self.error(ErrorKind::Closed, &[], (0, Duration::ZERO))))
    }

    fn not_held(&self) -> LockError {
        let resources = &self.shared.claim.resources;
        let message = format!("{resources} is not held: the lease was released already");
        LockError::new(ErrorKind::LockNotHeld, resources, message)
    }

    fn error(&self, kind: ErrorKind, rounds: &[RoundReport], spent: (u32, Duration)) -> LockError {
        self.shared.manager.error(kind, &self.shared.claim.resources, rounds, spent)
    }
}

/// Renews or watches a lease again once an extension is over.
struct ResumeOnDrop<'a> {
    lease: &'a Lease,
    inbox: &'a Arc<Inbox>,
}

impl Drop for ResumeOnDrop<'_> {
    fn drop(&mut self) {
        let mut state = self.lease.shared.lock();
        if state.is_worked_on_by(self.inbox) {
            state.active = None;
            drop(state);
            self.lease.resume();
        }
    }
}

impl State {
    /// Trusts the lease no longer than `until`, and knows that nodes may keep its keys until
    /// `forgotten`.
    fn bound(&mut self, until: Moment, forgotten: Moment) {
        if let Some(facts) = &mut self.facts {
            facts.limit(until);
            facts.outlast(forgotten);
        }
    }
}
