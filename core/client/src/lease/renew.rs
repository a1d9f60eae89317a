//! Renews a lease and reports its loss, on the engine's thread. Owns who is told; the lease's life
//! decides.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard, Weak};
use std::time::Duration;

use quorlock_protocol::{
    Command, Environment as _, ErrorKind, LeaseWork, Loss, LossReason, Machine as _, Moment,
    NodeId, Output, RoundReport, Stage, WorkEnd,
};
use tokio::sync::Notify;

use super::{LastVotes, Lease, OnLost, Shared, State};
use crate::clock::Snapshot;
use crate::error::{LockError, NodeReport};
use crate::inbox::{Arrival, OperationId};
use crate::renewal::{Renewable, RenewalScheduler};

impl Lease {
    /// Waits until the lease is lost, and returns why; never ends if it is released first.
    ///
    /// The loss is reported by the clock, at the end of the last proved validity, even if no node
    /// answers. May be dropped at any time.
    pub async fn lost(&self) -> LockError {
        self.watch();
        let told = Arc::clone(&self.shared.lock().extras().told);
        loop {
            let told = told.notified();
            let stage = self.shared.lock().life.stage();
            if let Stage::Lost(reason) = stage {
                return self.lost_error(reason);
            }
            told.await;
        }
    }

    /// Calls `callback` once, on the engine's thread, when the lease is lost; at once if it already
    /// is. The callback must not block.
    pub fn on_lost(&self, callback: impl FnOnce(LockError) + Send + 'static) {
        let mut state = self.shared.lock();
        match state.life.stage() {
            Stage::Lost(reason) => {
                drop(state);
                callback(self.lost_error(reason));
            }
            Stage::Held => {
                state.extras().on_lost.push(Box::new(callback));
                drop(state);
                self.watch();
            }
            Stage::Released => {}
        }
    }

    /// Calls `callback`, on the engine's thread, with what every node did in a round of renewal:
    /// once per round, as soon as all have answered or the next one begins. The callback must not
    /// block.
    pub fn on_renewal(&self, callback: impl Fn(&[NodeReport]) + Send + Sync + 'static) {
        let mut state = self.shared.lock();
        // A round that has ended already is not reported.
        let over = state.life.last_round();
        let extras = state.extras();
        if extras.on_renewal.is_empty() {
            extras.renewals.see(over);
        }
        extras.on_renewal.push(Arc::new(callback));
    }

    /// Stops renewal: the lease ends with the validity that is proved, unless it is extended or
    /// released before. For a holder that cannot continue, such as a thread that was ended.
    pub fn let_run_out(&self) {
        let now = self.shared.now();
        let mut state = self.shared.lock();
        state.life.let_run_out(now);
        state.settle(&self.shared.manager.renewals);
        self.resume(state, now);
    }

    fn watch(&self) {
        let mut state = self.shared.lock();
        state.life.watch();
        self.resume(state, self.shared.now());
    }

    /// Starts renewal, or the watch for the lease's end, if that is wanted and does not run
    /// already.
    pub(super) fn resume(&self, mut state: MutexGuard<'_, State>, now: Moment) {
        let manager = &self.shared.manager;
        if let Some((_, first)) = state.life.resume(now, !manager.is_closed()) {
            let lease: Weak<dyn Renewable> = Arc::<Shared>::downgrade(&self.shared);
            state.renewal = manager.renewals.add(&manager.engine, lease, first);
        }
    }

    /// Tells every listener of the loss, and takes back the keys that must not stay.
    pub(super) fn tell_loss(&self, loss: Option<ToldLoss>) {
        let Some(ToldLoss { loss, waiting, callbacks }) = loss else {
            return;
        };
        if let Some(waiting) = waiting {
            waiting.notify_waiters();
        }
        self.shared.manager.withdraw_afresh(loss.withdraw.into_iter().collect());
        self.shared.account_lost(loss.reason);
        for callback in callbacks {
            call(|| callback(self.lost_error(loss.reason)));
        }
    }

    pub(super) fn lost_error(&self, reason: LossReason) -> LockError {
        let resources = &self.shared.claim.resources;
        let message = format!(
            "the lease on {resources} is lost: {}; work since then may overlap another holder's",
            reason.describe()
        );
        LockError::new(ErrorKind::LeaseLost, resources, message).with_votes(self.votes())
    }
}

/// A loss, and the listeners that must be told.
pub(super) struct ToldLoss {
    loss: Loss,
    waiting: Option<Arc<Notify>>,
    callbacks: Vec<OnLost>,
}

impl Renewable for Shared {
    fn ttl(&self) -> Duration {
        Self::ttl(self)
    }

    /// Takes in `replies`, sends without the lease's lock, and reports a loss or a round of
    /// renewal.
    fn step(
        self: Arc<Self>,
        operation: OperationId,
        replies: Vec<Arrival>,
        send: &dyn Fn(NodeId, Command),
    ) -> Option<Moment> {
        let mut state = self.lock();
        if state.renewal != operation {
            return None;
        }
        let env = &mut self.manager.clock.snapshot();
        let before = state.before();
        let id = state.life.work_id();
        let mut work = state.life.work(id);
        handle_replies(&mut work, env, replies);
        let mut commands = Vec::new();
        let next = loop {
            match work.poll(env) {
                Output::Send(node, command) => commands.push((node, command)),
                Output::WakeAt(at) => break Ok(at),
                Output::Done(end) => break Err(end),
            }
        };
        let told = state.note_renewal(&next);
        let change = self.change(before, &state, env.now());
        let loss = state.take_loss(&self.manager.renewals);
        drop(state);
        for (node, command) in commands {
            send(node, command);
        }
        self.account(change, true);
        self.tell_renewals(told);
        if loss.is_some() {
            let last = self.lock().see_renewal(None);
            self.tell_renewals(last);
            Lease { shared: self }.tell_loss(loss);
        }
        next.ok()
    }
}

impl Shared {
    fn tell_renewals(&self, round: Option<RoundReport>) {
        let Some(round) = round else {
            return;
        };
        let callbacks = self.lock().extras().on_renewal.clone();
        let votes = self.manager.name_votes(&round);
        for callback in callbacks {
            call(|| callback(&votes));
        }
    }
}

impl State {
    /// The loss that was not reported yet, if the lease is lost. Nothing more is sent for it.
    pub(super) fn take_loss(&mut self, renewals: &RenewalScheduler) -> Option<ToldLoss> {
        self.settle(renewals);
        let loss = self.life.take_loss()?;
        let extras = self.extras.as_mut();
        let told = extras.map(|it| (Arc::clone(&it.told), std::mem::take(&mut it.on_lost)));
        let (waiting, callbacks) = told.unzip();
        Some(ToldLoss { loss, waiting, callbacks: callbacks.unwrap_or_default() })
    }

    /// Takes over what the renewal has found; returns its round if it must be reported now.
    fn note_renewal(&mut self, next: &Result<Moment, WorkEnd>) -> Option<RoundReport> {
        let round = match next {
            Ok(_) => self.life.take_round(),
            Err(WorkEnd::Lost(last)) => last.clone(),
            Err(_) => return None,
        };
        if let Some(round) = &round {
            self.votes = LastVotes::over(round);
        }
        self.see_renewal(round)
    }

    /// Counts nothing if there is no listener.
    fn see_renewal(&mut self, round: Option<RoundReport>) -> Option<RoundReport> {
        let extras = self.extras.as_mut().filter(|extras| !extras.on_renewal.is_empty())?;
        extras.renewals.see(round)
    }
}

fn handle_replies(work: &mut LeaseWork<'_>, env: &mut Snapshot, replies: Vec<Arrival>) {
    if replies.is_empty() {
        return work.handle_timeout(env);
    }
    for arrival in replies {
        // The reply may have waited here; the clock decides afterwards whether it still counts.
        work.handle_reply(&mut Snapshot::at(arrival.at), arrival.node, arrival.reply);
    }
}

/// If the callback panics (which is printed on standard error), the remaining work still continues.
fn call(callback: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(callback));
}
