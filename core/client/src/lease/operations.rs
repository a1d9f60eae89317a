//! The operations on a held lease: extend and check. Owns the order in which they exclude each
//! other.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    Environment, ErrorKind, ExtensionEnd, Inspection, LastRound, LeaseLife, Machine, Moment,
    NodeId, Output, Policy, Reply, RoundReport, Stage, Standing, WorkEnd, WorkId,
};

use super::account::Before;
use super::{LastVotes, Lease};
use crate::driver::Driver;
use crate::error::LockError;

impl Lease {
    /// Keeps the lease for `ttl` (or as long as before) from now on; returns the new validity.
    /// If more is left, the validity gets shorter, but the nodes keep the keys for what is left.
    ///
    /// Tries again on faults while the validity lasts, for as long as an acquisition would continue
    /// without a quorum. Dropping the future leaves the lease with the validity that is proved.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`] if the lease is proved to have ended,
    /// [`ErrorKind::QuorumUnreachable`] if too few nodes answer (the rest of the validity stays
    /// good), [`ErrorKind::LockNotHeld`] after a release, [`ErrorKind::Config`] for a wrong ttl.
    pub async fn extend(&self, ttl: Option<Duration>) -> Result<Duration, LockError> {
        let lease = self.clone();
        self.on_engine(async move { lease.extend_here(ttl).await }).await
    }

    /// Runs on a task of the engine, where it cannot overtake a renewal that is being sent, nor be
    /// overtaken by a release: a blocking caller polls its own future beside the thread that
    /// drives.
    async fn extend_here(&self, ttl: Option<Duration>) -> Result<Duration, LockError> {
        self.refuse_degraded()?;
        let gate = self.gate();
        let _one_at_a_time = gate.lock().await;
        let policy = self.policy_with(ttl)?;
        self.keep_note(self.shared.manager.announce(&policy));
        self.shared.manager.settle(None).await?;
        if self.shared.lock().life.lacks_token(&policy) {
            self.check_usable()?;
            // Looks for the token, which only the nodes know; the extension learns everything else
            // itself.
            let (asked, inspection) = self.look(&policy).await;
            self.update(|life, now| life.learn(now, asked, &inspection.standing));
        }
        let driver = self.shared.manager.driver();
        let mut work = self.begin_extension(&driver, policy)?;
        // However this ends, even if the future is dropped, the lease is watched again afterwards.
        let _resume = ResumeOnDrop { lease: self, id: work.id };
        match driver.run(&mut work, |_| {}).await {
            WorkEnd::Extended(end) => self.finish_extension(end, &driver, work.before),
            WorkEnd::Lost(_) | WorkEnd::Stopped => Err(self.not_held()),
        }
    }

    /// Asks the nodes whether a quorum still holds the lease; returns the validity that they prove.
    ///
    /// # Errors
    /// [`ErrorKind::LeaseLost`] if the lease is proved to have ended,
    /// [`ErrorKind::QuorumUnreachable`] if too few nodes answer to tell, [`ErrorKind::LockNotHeld`]
    /// after a release.
    pub async fn check(&self) -> Result<Duration, LockError> {
        if self.engine().is_current() {
            return self.check_here().await;
        }
        let lease = self.clone();
        self.on_engine(async move { lease.check_here().await }).await
    }

    async fn check_here(&self) -> Result<Duration, LockError> {
        self.refuse_degraded()?;
        let gate = self.gate();
        let _one_at_a_time = gate.lock().await;
        self.check_usable()?;
        let policy = **self.shared.lock().life.policy();
        self.shared.manager.settle(None).await?;
        let (asked, inspection) = self.look(&policy).await;
        let spent = (1, self.shared.now().since(inspection.report.started));
        if inspection.standing == Standing::NotHeld {
            self.note_votes(&inspection.report);
        }
        self.update(|life, now| life.checked(now, asked, &inspection.standing));
        let kind = match inspection.standing {
            Standing::Held(_) => {
                self.check_usable()?;
                return Ok(self.validity());
            }
            Standing::NotHeld => ErrorKind::LeaseLost,
            Standing::Unknown => ErrorKind::QuorumUnreachable,
        };
        Err(self.error(kind, &[inspection.report], spent))
    }

    /// Asks the nodes what they hold.
    async fn look(&self, policy: &Policy) -> (WorkId, Inspection) {
        let (asked, machine) = self.shared.lock().life.look(self.shared.now(), policy);
        (asked, self.shared.manager.inspect(machine).await)
    }

    /// Passes a result to the life of the lease, and acts on what follows from it.
    fn update(&self, input: impl FnOnce(&mut LeaseLife, Moment)) {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        input(&mut state.life, now);
        let loss = state.take_loss(&self.shared.manager.renewals);
        self.resume(state, now);
        self.tell_loss(loss);
    }

    fn gate(&self) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.shared.lock().extras().gate)
    }

    fn begin_extension(&self, driver: &Driver, policy: Policy) -> Result<Extending<'_>, LockError> {
        self.check_usable()?;
        let manager = &self.shared.manager;
        let mut state = self.shared.lock();
        let before = state.before();
        let id = state.life.extend(self.shared.now(), manager.share(policy));
        let loss = state.take_loss(&manager.renewals);
        if id.is_some() {
            state.extras().extending = Some(Arc::clone(&driver.inbox));
        }
        drop(state);
        self.tell_loss(loss);
        match id {
            Some(id) => Ok(Extending { lease: self, id, before }),
            // It ended after that check.
            None => Err(self.check_held().err().unwrap_or_else(|| self.not_held())),
        }
    }

    fn finish_extension(
        &self,
        end: ExtensionEnd,
        driver: &Driver,
        before: Before,
    ) -> Result<Duration, LockError> {
        let spent = (end.attempts, end.elapsed);
        let Err(kind) = end.result else {
            let votes = match end.last {
                LastRound::Counting(round) => LastVotes::of(round, &driver.inbox),
                LastRound::Over(report) => LastVotes::over(&report),
            };
            let mut state = self.shared.lock();
            if state.life.stage() == Stage::Held {
                state.votes = votes;
            }
            let change = self.shared.change(before, &state, self.shared.now());
            drop(state);
            self.shared.account(change, false);
            self.check_held()?;
            return Ok(self.validity());
        };
        let report = end.last.report();
        self.note_votes(&report);
        let loss = self.shared.lock().take_loss(&self.shared.manager.renewals);
        self.tell_loss(loss);
        let error = self.error(kind, &[report], spent);
        self.shared.account_failure(|| error.to_string());
        Err(error)
    }

    /// The nodes have been asked again, so their earlier votes are dropped.
    fn note_votes(&self, report: &RoundReport) {
        if !report.votes.is_empty() {
            self.shared.lock().votes = LastVotes::over(report);
        }
    }

    fn check_usable(&self) -> Result<(), LockError> {
        let mut state = self.shared.lock();
        state.life.expire(self.shared.now());
        let loss = state.take_loss(&self.shared.manager.renewals);
        drop(state);
        self.tell_loss(loss);
        self.check_held()?;
        self.shared.manager.check_open(&self.shared.claim.resources)
    }

    fn check_held(&self) -> Result<(), LockError> {
        let stage = self.shared.lock().life.stage();
        match stage {
            Stage::Held => Ok(()),
            Stage::Released => Err(self.not_held()),
            Stage::Lost(reason) => Err(self.lost_error(reason)),
        }
    }

    fn policy_with(&self, ttl: Option<Duration>) -> Result<Policy, LockError> {
        let policy = **self.shared.lock().life.policy();
        match ttl {
            Some(ttl) => Ok(policy.to_builder().ttl(ttl).build()?),
            None => Ok(policy),
        }
    }

    fn on_engine<T: Send + 'static>(
        &self,
        operation: impl Future<Output = Result<T, LockError>> + Send + 'static,
    ) -> impl Future<Output = Result<T, LockError>> {
        let task = self.shared.manager.engine.spawn_awaited(operation);
        async {
            let closed = || Err(self.error(ErrorKind::Closed, &[], (0, Duration::ZERO)));
            task.await.unwrap_or_else(closed)
        }
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

/// The extension of a lease, for the driver.
struct Extending<'a> {
    lease: &'a Lease,
    id: WorkId,
    before: Before,
}

impl Machine for Extending<'_> {
    type Outcome = WorkEnd;

    fn poll(&mut self, env: &mut dyn Environment) -> Output<WorkEnd> {
        self.lease.shared.lock().life.work(self.id).poll(env)
    }

    fn handle_reply(&mut self, env: &mut dyn Environment, node: NodeId, reply: Reply) {
        self.lease.shared.lock().life.work(self.id).handle_reply(env, node, reply);
    }

    fn handle_timeout(&mut self, env: &mut dyn Environment) {
        self.lease.shared.lock().life.work(self.id).handle_timeout(env);
    }

    fn cancel(&mut self, env: &mut dyn Environment) {
        self.lease.shared.lock().life.work(self.id).cancel(env);
    }
}

/// Stops an extension if it is still under way, and renews or watches the lease again.
struct ResumeOnDrop<'a> {
    lease: &'a Lease,
    id: WorkId,
}

impl Drop for ResumeOnDrop<'_> {
    fn drop(&mut self) {
        let shared = &self.lease.shared;
        let env = &mut shared.manager.clock.snapshot();
        let mut state = shared.lock();
        let mut work = state.life.work(self.id);
        work.cancel(env);
        // No caller waits for its end.
        let _ = work.poll(env);
        state.settle(&shared.manager.renewals);
        self.lease.resume(state, env.now());
    }
}
