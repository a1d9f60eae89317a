//! One acquisition, from the line in which its caller stands to the lease or the error. Owns what is left when it ends
//! early; the rounds are the machine's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quorlock_protocol::{
    Acquire, AcquireOutcome, ErrorKind, FencingToken, Moment, Policy, Resources, RoundReport,
};
use tokio::time::timeout;

use crate::driver::Driver;
use crate::error::{LockError, name_votes};
use crate::guard::LeaseGuard;
use crate::lease::Lease;
use crate::manager::Manager;
use crate::node::NodeState;
use crate::node_guards::LongLockNote;
use crate::observe::{WaitWatch, WakeCause};
use crate::turnstile::Turn;

/// What a caller tries with.
struct Start {
    driver: Driver,
    /// Whether it tries once, whatever the policy: its time is up.
    is_last: bool,
    /// `None` for a caller that tries once, beside the one whose turn it is.
    turn: Option<Turn>,
    /// How the try before ended, for a caller that has waited in line.
    before: Option<ErrorKind>,
}

/// An acquisition under way: dropped half-way, it withdraws.
struct Acquiring<'a> {
    manager: &'a Manager,
    driver: Driver,
    machine: Option<Acquire>,
    note: Option<LongLockNote>,
    /// Passed on to the next caller once the keys have been asked back.
    turn: Option<Turn>,
}

impl Manager {
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        resources: &Resources,
        policy: &Policy,
    ) -> Result<LeaseGuard, LockError> {
        self.check_open(resources)?;
        let started = self.clock.now();
        let note = self.announce(policy);
        // First into the line: a caller that comes while the nodes are being connected keeps its place.
        let start = match self.begin(resources, policy) {
            Some(start) => start,
            None => self.stand_in_line(resources, policy, started).await?,
        };
        // Apart in memory: while a caller waits in line, it needs no room for the machine and the driver.
        Box::pin(self.try_for(resources, policy, start, note, started)).await
    }

    /// Tries until the lock is won or the settings end it.
    async fn try_for(
        self: &Arc<Self>,
        resources: &Resources,
        policy: &Policy,
        start: Start,
        note: Option<LongLockNote>,
        started: Moment,
    ) -> Result<LeaseGuard, LockError> {
        let Start { driver, is_last, turn, before } = start;
        let once = || policy.to_builder().timeout(None).retry_limit(Some(0)).build();
        let policy = if is_last { once()? } else { *policy };
        let left = |time: Duration| time.saturating_sub(self.clock.now().since(started));
        self.settle(policy.timeout().map(left)).await?;
        let known = FencingToken(self.known.load(Ordering::Relaxed));
        let machine = Acquire::new(started, resources.clone(), policy, self.quorum, known)
            .queued_as(self.engine.draw_waiter());
        let was_contended =
            self.turnstile.contention.is_recent(resources, self.clock.to_boot(started));
        let machine = if was_contended { machine.queue_first() } else { machine };
        let machine = Some(before.into_iter().fold(machine, Acquire::after));
        let mut acquiring = Acquiring { manager: self, driver, machine, note, turn };
        let outcome = acquiring.run(resources).await;
        if outcome.was_waited_for {
            self.tell_of_push();
        }
        let (driver, note) = (acquiring.driver.clone(), acquiring.note.take());
        let left = outcome.withdrawals;
        let spent = (outcome.attempts, outcome.elapsed);
        match outcome.result {
            Ok(won) => {
                if let Some(token) = won.lease.fencing_token() {
                    self.known.fetch_max(token.0, Ordering::Relaxed);
                }
                self.withdraw_afresh(left);
                self.note_quorum();
                let lost = outcome.lost_rounds.iter();
                let lost = lost.map(|round| name_votes(&round.votes, &self.addresses)).collect();
                let lease = Lease::won(self, won, policy, &driver.inbox, spent, lost);
                lease.keep_note(note);
                Ok(LeaseGuard::new(lease))
            }
            Err(kind) => {
                note.into_iter().for_each(LongLockNote::finish);
                acquiring.turn.iter_mut().for_each(|turn| turn.note(kind));
                let may_have_keys = outcome.lost_rounds.last().is_some_and(may_have_granted);
                let withdrawn = self.withdraw_rest(&driver, left);
                if may_have_keys {
                    // What the last try has left is gone when the caller hears, save on nodes that do not answer.
                    let patience = policy.node_timeout().min(TO_WITHDRAW);
                    let _ = timeout(patience, withdrawn).await;
                }
                self.check_open(resources)?;
                if let Some(mistake) = self.mistake() {
                    return Err(mistake.into());
                }
                Err(self.error(kind, resources, &outcome.lost_rounds, spent))
            }
        }
    }

    /// What a try takes, for the first caller of this lock and for a caller that tries once; `None` for others.
    fn begin(&self, resources: &Resources, policy: &Policy) -> Option<Start> {
        let driver = self.driver();
        let turn = self.turnstile.enter(self.number, resources, &driver.inbox);
        let may_begin = turn.is_some() || policy.retry_limit() == Some(0);
        may_begin.then_some(Start { driver, is_last: false, turn, before: None })
    }

    /// Waits behind the callers of this process that came before. A caller with a limited number of tries still gets
    /// one, and so does a caller that learns in this way that too few nodes can be reached.
    async fn stand_in_line(
        &self,
        resources: &Resources,
        policy: &Policy,
        started: Moment,
    ) -> Result<Start, LockError> {
        let left = |time: Duration| time.saturating_sub(self.clock.now().since(started));
        let patience = policy.longest_wait().map(left);
        self.telemetry.note_wait(resources, None, None);
        let began = self.clock.now();
        // The nodes are connected meanwhile; what is wrong with them is told when it is this caller's turn.
        let wait = self.turnstile.wait(self.number, resources, patience);
        let (turn, _) = tokio::join!(wait, Box::pin(self.settle(patience)));
        // The one before it in the line has ended.
        let by = turn.as_ref().map_or(WakeCause::Timer, |_| WakeCause::Push);
        self.telemetry.note_wake(resources, by, self.clock.now().since(began));
        self.check_open(resources)?;
        let driver = self.driver();
        let is_in_time = policy.timeout().is_none_or(|timeout| left(timeout) > LAST_TRY);
        if let Some(turn) = turn.filter(|_| is_in_time) {
            turn.listen(self.number, &driver.inbox);
            let before = Some(turn.before());
            return Ok(Start { driver, is_last: false, turn: Some(turn), before });
        }
        let healthy = self.nodes.iter().filter(|node| node.state() == NodeState::Healthy);
        if policy.timeout().is_some() && healthy.count() >= self.quorum.size() {
            let spent = (0, self.clock.now().since(started));
            return Err(self.error(ErrorKind::AcquireTimedOut, resources, &[], spent));
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
            self.note.take().into_iter().for_each(LongLockNote::finish);
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
