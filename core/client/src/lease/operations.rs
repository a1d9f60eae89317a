//! Acting on a lease: extend and check. Knows the order in which they exclude each other.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    ErrorKind, Extend, Extension, Inspection, LastRound, LossReason, Moment, Policy, RoundReport,
    Standing,
};

use super::{LastVotes, Lease, Proof, Stage, State};
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

    /// On a task of the engine's, where it neither overtakes what the keeper has begun to send, nor is overtaken by
    /// a release: a blocking caller polls its own future beside the thread that drives.
    async fn extend_here(&self, ttl: Option<Duration>) -> Result<Duration, LockError> {
        let gate = self.gate();
        let _one_at_a_time = gate.lock().await;
        let policy = self.policy_with(ttl)?;
        self.keep(self.shared.manager.announce(&policy));
        self.shared.manager.settle(None).await?;
        if policy.fencing() && self.shared.lock().lacks_token() {
            self.check_usable()?;
            // For its token, which the nodes alone know; what else they say the extension hears, too.
            self.look(policy).await;
        }
        let driver = self.shared.manager.driver();
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
                let votes = match outcome.last {
                    LastRound::Counting(round) => LastVotes::of(round, &driver.inbox),
                    LastRound::Over(report) => LastVotes::over(&report),
                };
                self.finish_extension(lease, policy, votes)
            }
            Err(kind) => {
                let report = outcome.last.report();
                self.note_votes(&report);
                if kind == ErrorKind::LeaseLost {
                    let is_over = self.shared.manager.clock.now() >= outcome.until;
                    self.lose(if is_over { LossReason::Expired } else { LossReason::Gone });
                }
                Err(self.error(kind, &[report], spent))
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
        let gate = self.gate();
        let _one_at_a_time = gate.lock().await;
        self.check_usable()?;
        let policy = *self.shared.lock().policy;
        self.shared.manager.settle(None).await?;
        let inspection = self.look(policy).await;
        let spent = (1, self.shared.manager.clock.now().since(inspection.report.started));
        let kind = match inspection.standing {
            Standing::Held(_) => {
                self.check_usable()?;
                return Ok(self.validity());
            }
            Standing::NotHeld => ErrorKind::LeaseLost,
            Standing::Unknown => ErrorKind::QuorumUnreachable,
        };
        if kind == ErrorKind::LeaseLost {
            self.note_votes(&inspection.report);
            self.lose(LossReason::Gone);
        }
        Err(self.error(kind, &[inspection.report], spent))
    }

    /// Asks the nodes what they hold, and keeps the proof if it is the first of a lease that was taken over, or
    /// the first with its fencing token.
    async fn look(&self, policy: Policy) -> Inspection {
        let (manager, claim) = (&self.shared.manager, &self.shared.claim);
        let lacks_token = policy.fencing() && self.shared.lock().lacks_token();
        let inspection = manager.inspect(claim, policy, lacks_token).await;
        if let Standing::Held(lease) = &inspection.standing {
            let mut state = self.shared.lock();
            // What was proved before may reach further than the slowest node's answer.
            let is_first = state.facts().is_none();
            if is_first || (state.lacks_token() && lease.fencing_token().is_some()) {
                let mut lease = lease.clone();
                if let Some(known) = state.facts() {
                    lease.outlast(known.forgotten());
                }
                state.let_go(&manager.keeper);
                state.proof = Proof::Bare(Box::new(lease));
                self.resume(state);
            }
        }
        inspection
    }

    fn gate(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.shared.lock().extras().gate)
    }

    fn begin_extension(&self, driver: &Driver, policy: Policy) -> Result<Extend, LockError> {
        self.check_usable()?;
        let mut state = self.shared.lock();
        if state.stage != Stage::Held {
            // Since that check.
            drop(state);
            return Err(self.check_held().err().unwrap_or_else(|| self.not_held()));
        }
        state.stop(&self.shared.manager.keeper);
        state.extending = Some(Arc::clone(&driver.inbox));
        let facts = state.facts();
        let extension = Extension {
            claim: Arc::clone(&self.shared.claim),
            fencing_token: facts.and_then(quorlock_protocol::Lease::fencing_token),
            until: facts.map_or(Moment::FAR_FUTURE, quorlock_protocol::Lease::until),
            patience: policy.timeout().unwrap_or(policy.unreachable_timeout()),
            first_ticket: 0,
        };
        let now = self.shared.manager.clock.now();
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
        if state.stage == Stage::Held {
            // It may have been told meanwhile to renew no longer.
            let renewed = state.policy.auto_extend();
            let policy = if renewed { policy } else { policy.without_auto_extend() };
            state.proof = Proof::Bare(Box::new(lease));
            state.policy = self.shared.manager.share(policy);
            state.votes = votes;
        }
        drop(state);
        self.check_held()?;
        Ok(self.validity())
    }

    /// The nodes have been asked again: what they said before is of no use any more.
    fn note_votes(&self, report: &RoundReport) {
        if !report.votes.is_empty() {
            self.shared.lock().votes = LastVotes::over(report);
        }
    }

    fn check_usable(&self) -> Result<(), LockError> {
        if self.is_over() {
            self.lose(LossReason::Expired);
        }
        self.check_held()?;
        self.shared.manager.check_open(&self.shared.claim.resources)
    }

    fn check_held(&self) -> Result<(), LockError> {
        let stage = self.shared.lock().stage;
        match stage {
            Stage::Held => Ok(()),
            Stage::Released => Err(self.not_held()),
            Stage::Lost(reason) => Err(self.lost_error(reason)),
        }
    }

    /// Whether nothing is left of a validity that was proved.
    pub(super) fn is_over(&self) -> bool {
        let state = self.shared.lock();
        state.facts().is_some() && state.validity(self.shared.manager.clock.now()).is_zero()
    }

    fn policy_with(&self, ttl: Option<Duration>) -> Result<Policy, LockError> {
        let policy = *self.shared.lock().policy;
        match ttl {
            Some(ttl) => Ok(policy.to_builder().ttl(ttl).build()?),
            None => Ok(policy),
        }
    }

    async fn on_engine<T: Send + 'static>(
        &self,
        operation: impl Future<Output = Result<T, LockError>> + Send + 'static,
    ) -> Result<T, LockError> {
        let task = self.shared.manager.engine.spawn_awaited(operation);
        task.await.unwrap_or_else(|| Err(self.error(ErrorKind::Closed, &[], (0, Duration::ZERO))))
    }

    pub(super) fn not_held(&self) -> LockError {
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
        if state.is_extended_by(self.inbox) {
            state.extending = None;
            self.lease.resume(state);
        }
    }
}

impl State {
    /// Trusts the lease no longer than `until`, and knows that nodes may keep its keys until
    /// `forgotten`.
    fn bound(&mut self, until: Moment, forgotten: Moment) {
        if let Proof::Bare(facts) = &mut self.proof {
            facts.limit(until);
            facts.outlast(forgotten);
        }
    }
}
