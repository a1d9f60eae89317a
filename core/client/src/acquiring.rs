//! Runs one acquisition: its caller waits behind earlier callers of this process, then tries until it has a lease or an
//! error. Owns what must be taken back when it ends early; the machine `Acquire` decides about the rounds.

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quorlock_protocol::{
    Acquire, AcquireOutcome, ErrorKind, FencingToken, Moment, OnUnreachable, Policy, Resources,
    RoundReport, TO_TRY,
};
use tokio::time::timeout;

use crate::acquisition_report::AcquisitionReport;
use crate::caller_queues::{Turn, WaitStyle};
use crate::driver::Driver;
use crate::engine::Task;
use crate::error::{LockError, name_votes};
use crate::guards::LongLockNote;
use crate::lease::Lease;
use crate::lease_guard::{LeaseGuard, UndeliveredLease};
use crate::manager::Manager;
use crate::node::NodeState;
use crate::observe::{WaitWatch, WakeCause};

/// One call of [`Lock::acquire`](crate::Lock::acquire): what is asked for, with which settings, since when.
#[derive(Clone)]
pub(crate) struct Call {
    manager: Arc<Manager>,
    resources: Resources,
    policy: Arc<Policy>,
    /// By the boot clock.
    called: Moment,
}

type Acquisition<'a> = Pin<Box<dyn Future<Output = Result<LeaseGuard, LockError>> + Send + 'a>>;

/// What a caller tries with.
struct Start {
    driver: Driver,
    /// Whether it tries once, whatever the policy: its time is up.
    is_last: bool,
    /// `None` for a caller that tries once, beside the one whose turn it is.
    turn: Option<Turn>,
    /// How the try before ended, for a caller that has waited in the process's queue.
    before: Option<ErrorKind>,
}

/// An acquisition under way: dropped half-way, it withdraws.
struct Acquiring<'a> {
    manager: &'a Manager,
    driver: Driver,
    machine: Option<Acquire>,
    note: Option<Box<LongLockNote>>,
    /// Passed on to the next caller once the keys have been asked back.
    turn: Option<Turn>,
}

impl Call {
    pub(crate) fn new(
        manager: &Arc<Manager>,
        resources: Resources,
        policy: Policy,
        called: Moment,
    ) -> Self {
        let (manager, policy) = (Arc::clone(manager), manager.share(policy));
        Self { manager, resources, policy, called }
    }

    /// Covers the acquisition, as a child of the caller's span, and the lease until its end.
    #[cfg(feature = "tracing")]
    pub(crate) async fn run_traced(&self, caller: &tracing::Span) -> Result<LeaseGuard, LockError> {
        let span = tracing::debug_span!(target: "quorlock", "quorlock.acquire");
        let acquired = tracing::Instrument::instrument(self.run_anywhere(), span).await;
        if let Ok(lease) = &acquired {
            lease.begin_hold(caller);
        }
        acquired
    }

    /// Acquires the lock: here if this is a task of the engine, or else on one.
    pub(crate) async fn run_anywhere(&self) -> Result<LeaseGuard, LockError> {
        if self.manager.engine.is_current() {
            return self.run().await;
        }
        match self.run_on_engine().await {
            Some(result) => result.map(UndeliveredLease::deliver),
            None => Err(self.error(ErrorKind::Closed, &[], (0, Duration::ZERO))),
        }
    }

    fn run_on_engine(&self) -> Task<Result<UndeliveredLease, LockError>> {
        let call = self.clone();
        let acquiring = async move { call.run().await.map(UndeliveredLease::from) };
        self.manager.engine.spawn_awaited(acquiring)
    }

    /// Acquires the lock, on a task of the engine; counts what came of it.
    async fn run(&self) -> Result<LeaseGuard, LockError> {
        // Before it is seen whether the manager is closed; until what is left of it is asked back.
        let _needed = self.manager.need_nodes();
        let report = AcquisitionReport::new(&self.manager);
        match self.acquire().await {
            Ok(lease) => {
                report.won(&lease);
                lease.tell_owner();
                Ok(lease)
            }
            Err(error) => {
                let is_proceeding = self.policy.on_unreachable() == OnUnreachable::Proceed;
                if is_proceeding && error.kind() == ErrorKind::QuorumUnreachable {
                    report.degraded(&error);
                    let (resources, policy) = (&self.resources, Arc::clone(&self.policy));
                    let lease = Lease::degraded(&self.manager, resources, policy, error);
                    return Ok(LeaseGuard::new(lease));
                }
                report.failed(&error);
                Err(Box::pin(self.manager.name_holder(&self.resources, error)).await)
            }
        }
    }

    /// Up to the lease or the error. A caller that waits in the queue needs no room yet for its try, nor the other way round.
    fn acquire(&self) -> Acquisition<'_> {
        if let Err(closed) = self.manager.check_open(&self.resources) {
            return Box::pin(ready(Err(closed)));
        }
        let started = self.started();
        let note = self.manager.announce(&self.policy);
        // First into the process's queue: callers that come while the nodes are being connected keep their order.
        match self.begin() {
            Some(start) => Box::pin(self.try_for(start, note, started)),
            None => Box::pin(self.wait_for_turn(note, started)),
        }
    }

    /// Since when its time counts: since the call. One that begins late still has [`TO_TRY`], or the whole of a shorter
    /// timeout: the lock may be free.
    fn started(&self) -> Moment {
        let clock = &self.manager.clock;
        let called = clock.at(self.called);
        self.policy.timeout().map_or(called, |timeout| {
            called.max(clock.now().before(timeout.saturating_sub(TO_TRY)))
        })
    }

    fn error(&self, kind: ErrorKind, rounds: &[RoundReport], spent: (u32, Duration)) -> LockError {
        self.manager.error(kind, &self.resources, rounds, spent)
    }

    fn style(&self) -> WaitStyle {
        WaitStyle::of(&self.policy)
    }

    /// How much is left of `time`.
    fn left(&self, time: Duration, started: Moment) -> Duration {
        time.saturating_sub(self.manager.clock.now().since(started))
    }

    /// For how long nodes may connect: the try needs the rest of the time.
    fn to_connect(&self, started: Moment) -> Option<Duration> {
        let left = self.left(self.policy.timeout()?, started);
        Some(left.saturating_sub(TO_TRY).max(left / 2))
    }

    /// For how long a caller waits in the process's queue.
    fn patience(&self, started: Moment) -> Option<Duration> {
        self.policy.longest_wait().map(|longest| self.left(longest, started))
    }

    /// Tries until the lock is won or the settings end it.
    async fn try_for(
        &self,
        start: Start,
        note: Option<Box<LongLockNote>>,
        started: Moment,
    ) -> Result<LeaseGuard, LockError> {
        let Start { driver, is_last, turn, before } = start;
        let (manager, resources) = (&self.manager, &self.resources);
        let once = || self.policy.to_builder().timeout(None).retry_limit(Some(0)).build();
        let policy = if is_last { once()? } else { *self.policy };
        manager.settle(self.to_connect(started)).await?;
        manager.check_open(resources)?;
        let known = FencingToken(manager.known.load(Ordering::Relaxed));
        let machine = Acquire::new(started, resources.clone(), policy, manager.quorum, known)
            .queued_as(manager.engine.draw_waiter());
        let was_contended =
            manager.caller_queues.contention.is_recent(resources, manager.clock.to_boot(started));
        let machine = if was_contended { machine.queue_first() } else { machine };
        let machine = Some(before.into_iter().fold(machine, Acquire::after));
        let mut acquiring = Acquiring { manager, driver, machine, note, turn };
        let outcome = acquiring.run(resources).await;
        if outcome.was_waited_for {
            manager.tell_of_push();
        }
        let (driver, note) = (acquiring.driver.clone(), acquiring.note.take());
        let left = outcome.withdrawals;
        let spent = (outcome.attempts, outcome.elapsed);
        match outcome.result {
            Ok(won) => {
                if let Some(token) = won.lease.fencing_token() {
                    manager.known.fetch_max(token.0, Ordering::Relaxed);
                }
                manager.withdraw_afresh(left);
                manager.note_quorum();
                let lost = outcome.lost_rounds.iter();
                let lost = lost.map(|round| name_votes(&round.votes, &manager.addresses)).collect();
                let policy = Arc::clone(&self.policy);
                let lease = Lease::won(manager, won, policy, &driver.inbox, spent, lost);
                lease.keep_note(note);
                Ok(LeaseGuard::new(lease))
            }
            Err(kind) => {
                if let Some(note) = note {
                    note.finish();
                }
                acquiring.turn.iter_mut().for_each(|turn| turn.note(kind));
                let may_have_keys = outcome.lost_rounds.last().is_some_and(may_have_granted);
                let withdrawn = manager.withdraw_rest(&driver, left);
                if may_have_keys {
                    // What the last try has left is gone when the caller hears, save on nodes that do not answer.
                    let patience = policy.node_timeout().min(TO_WITHDRAW);
                    let _ = timeout(patience, withdrawn).await;
                }
                manager.check_open(resources)?;
                if let Some(mistake) = manager.mistake() {
                    return Err(mistake.into());
                }
                Err(self.error(kind, &outcome.lost_rounds, spent))
            }
        }
    }

    /// What a try takes, for the first caller of this lock and for a caller that tries once; `None` for others.
    fn begin(&self) -> Option<Start> {
        let driver = self.manager.driver();
        let number = self.manager.number;
        let queues = &self.manager.caller_queues;
        let turn = queues.enter(number, &self.resources, self.style(), &driver.inbox);
        let may_begin = turn.is_some() || self.policy.retry_limit() == Some(0);
        may_begin.then_some(Start { driver, is_last: false, turn, before: None })
    }

    /// Waits behind the callers of this process that came before, then tries.
    async fn wait_for_turn(
        &self,
        note: Option<Box<LongLockNote>>,
        started: Moment,
    ) -> Result<LeaseGuard, LockError> {
        let queues = &self.manager.caller_queues;
        let mut entry = queues.join(self.manager.number, &self.resources, self.style());
        self.manager.telemetry.note_wait(&self.resources, None, None);
        let began = self.manager.clock.now();
        if !self.manager.is_settled() {
            // The nodes are connected meanwhile; what is wrong with them is told when it is this caller's turn.
            let _ = Box::pin(self.manager.settle(self.patience(started))).await;
        }
        let turn = entry.turn(self.patience(started)).await;
        // The one before it in the queue has ended.
        let by = turn.as_ref().map_or(WakeCause::Timer, |_| WakeCause::Push);
        let start = self.leave_queue(turn, started)?;
        let waited = self.manager.clock.now().since(began);
        self.manager.telemetry.note_wake(&self.resources, by, waited);
        Box::pin(self.try_for(start, note, started)).await
    }

    /// What a caller tries with that has waited. One with a limited number of tries still gets one without its turn,
    /// and so does one that learns in this way that too few nodes can be reached.
    fn leave_queue(&self, turn: Option<Turn>, started: Moment) -> Result<Start, LockError> {
        let (manager, resources) = (&self.manager, &self.resources);
        manager.check_open(resources)?;
        let driver = manager.driver();
        let left = self.policy.timeout().map(|timeout| self.left(timeout, started));
        if let Some(turn) = turn.filter(|_| left.is_none_or(|left| left > LAST_TRY)) {
            turn.listen(manager.number, &driver.inbox);
            let before = Some(turn.before());
            return Ok(Start { driver, is_last: false, turn: Some(turn), before });
        }
        let healthy = manager.nodes.iter().filter(|node| node.state() == NodeState::Healthy);
        if left.is_some() && healthy.count() >= manager.quorum.size() {
            let spent = (0, manager.clock.now().since(started));
            return Err(self.error(ErrorKind::AcquireTimedOut, &[], spent));
        }
        Ok(Start { driver, is_last: true, turn: None, before: None })
    }
}

impl Acquiring<'_> {
    async fn run(&mut self, resources: &Resources) -> AcquireOutcome {
        let machine = self.machine.as_mut().expect("run is called once");
        let mut waits = WaitWatch::new(&self.manager.telemetry, self.manager.quorum, resources);
        let outcome = self.driver.run(machine, |machine| waits.see(machine)).await;
        waits.end(&outcome);
        self.machine = None;
        outcome
    }
}

impl Drop for Acquiring<'_> {
    fn drop(&mut self) {
        let Some(mut machine) = self.machine.take() else {
            return;
        };
        if let Some(outcome) = self.driver.abandon(&mut machine) {
            self.manager.telemetry.figures().note_rounds(outcome.attempts);
            if let Some(note) = self.note.take() {
                note.finish();
            }
            drop(self.manager.withdraw_rest(&self.driver, outcome.withdrawals));
        }
    }
}

/// Whether a node may have a key of the round.
fn may_have_granted(report: &RoundReport) -> bool {
    report.tally().refused < report.votes.len()
}

/// What is left of a timeout is not enough for a try: others, whose time is up as well, would do the same.
const LAST_TRY: Duration = Duration::from_millis(20);
/// How long the caller of a lost acquisition waits for its last keys to be taken back.
const TO_WITHDRAW: Duration = Duration::from_millis(50);
