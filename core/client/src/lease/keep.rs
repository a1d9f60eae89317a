//! Keeping a lease alive and telling its loss, on the engine's thread.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, MutexGuard};

use quorlock_protocol::{
    Command, ErrorKind, Hold, HoldEnd, LossReason, Machine as _, Moment, NodeId, Output,
    RoundReport, Surroundings as _,
};

use super::release::Ending;
use super::{LastVotes, Lease, Proof, Shared, Stage, State};
use crate::clock::Snapshot;
use crate::error::{LockError, NodeReport};
use crate::inbox::{Arrival, OperationId};

impl Lease {
    /// Waits until the lease is lost, and tells why; never ends if it is released first.
    ///
    /// The loss is told by the clock, at the end of what was last proved, whether or not the nodes
    /// answer. May be dropped at any time.
    pub async fn lost(&self) -> LockError {
        self.watch();
        let told = Arc::clone(&self.shared.lock().extras().told);
        loop {
            let told = told.notified();
            let stage = self.shared.lock().stage;
            if let Stage::Lost(reason) = stage {
                return self.lost_error(reason);
            }
            told.await;
        }
    }

    /// Calls `callback` once, on the engine's thread, when the lease is lost; at once if it is. It
    /// must not block.
    pub fn on_lost(&self, callback: impl FnOnce(LockError) + Send + 'static) {
        let mut state = self.shared.lock();
        match state.stage {
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

    /// Calls `callback`, on the engine's thread, with what every node did in a round of renewal: once a
    /// round, as soon as all have answered or the next one begins. It must not block.
    pub fn on_renewal(&self, callback: impl Fn(&[NodeReport]) + Send + Sync + 'static) {
        let mut state = self.shared.lock();
        // What is over already is not news.
        let over = state.hold().and_then(Hold::last_round);
        let extras = state.extras();
        if extras.on_renewal.is_empty() {
            extras.renewals.see(over);
        }
        extras.on_renewal.push(Arc::new(callback));
    }

    /// Renews the lease no longer: it ends with the validity that is proved, unless it is extended or
    /// released before. For a holder that cannot go on, such as a thread that was ended.
    pub fn let_run_out(&self) {
        let mut state = self.shared.lock();
        state.policy = self.shared.manager.share(state.policy.without_auto_extend());
        state.let_go(&self.shared.manager.keeper);
        self.resume(state);
    }

    fn watch(&self) {
        let mut state = self.shared.lock();
        state.watched = true;
        self.resume(state);
    }

    /// Has the keeper renew the lease, where the policy says so, and watch its end where someone waits for the
    /// loss. Not during an explicit extension: that does so when it is over.
    pub(super) fn resume(&self, mut state: MutexGuard<'_, State>) {
        let manager = &self.shared.manager;
        let is_wanted = state.policy.auto_extend() || state.watched;
        if !is_wanted || state.extending.is_some() {
            return;
        }
        // One that the keeper has already is left with it.
        let (Stage::Held, Proof::Bare(facts)) = (state.stage, &state.proof) else {
            return;
        };
        let mut policy = Arc::clone(&state.policy);
        if manager.is_closed() {
            policy = manager.share(policy.without_auto_extend());
        }
        let since = state.held_since;
        let now = manager.clock.now();
        let mut hold = Hold::new(now, (**facts).clone(), policy, since, manager.quorum);
        // One that has only begun has nothing to send.
        let due = match hold.poll(&mut Snapshot::at(now)) {
            Output::WakeAt(at) => at,
            Output::Send(..) | Output::Done(_) => unreachable!("a lease is first held"),
        };
        let lease = Arc::downgrade(&self.shared);
        let operation = manager.keeper.keep(&manager.engine, lease, due);
        state.proof = Proof::Kept(operation, Box::new(hold));
    }

    /// The lease is over: no more of it is renewed, everyone is told. Its keys are taken back, unless they are
    /// left to their lock-delay, or the validity is not over that the holder may have read.
    pub(super) fn lose(&self, reason: LossReason) {
        let mut state = self.shared.lock();
        if state.stage != Stage::Held {
            return;
        }
        state.stop(&self.shared.manager.keeper);
        state.stage = Stage::Lost(reason);
        state.lost = Some(reason);
        let extras = state.extras.as_mut();
        let told = extras.map(|it| (Arc::clone(&it.told), std::mem::take(&mut it.on_lost)));
        let takes_back = state.policy.lock_delay().is_zero() && reason != LossReason::Gone;
        drop(state);
        let (waiting, callbacks) = told.unzip();
        if let Some(waiting) = waiting {
            waiting.notify_waiters();
        }
        if takes_back {
            self.shared.manager.withdraw_afresh(vec![self.withdrawal(Ending::Withdrawn)]);
        }
        for callback in callbacks.into_iter().flatten() {
            call(|| callback(self.lost_error(reason)));
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

impl Shared {
    /// Has the hold machine take in `replies`, or that its time has come if there are none, and hands what it
    /// wants sent to `send`, outside of the lock. Tells when it is to be looked at next; never again once it is over, or another
    /// operation has begun.
    pub(super) fn step(
        self: &Arc<Self>,
        operation: OperationId,
        replies: Vec<Arrival>,
        send: impl Fn(NodeId, Command),
    ) -> Option<Moment> {
        let mut state = self.lock();
        let hold = state.kept_as(operation)?;
        let env = &mut self.manager.clock.snapshot();
        hear(hold, env, replies);
        let mut commands = Vec::new();
        let next = loop {
            match hold.poll(env) {
                Output::Send(node, command) => commands.push((node, command)),
                Output::WakeAt(at) => break Ok(at),
                Output::Done(end) => break Err(end),
            }
        };
        let told = state.note_renewal(env.now());
        drop(state);
        for (node, command) in commands {
            send(node, command);
        }
        self.tell_renewals(told);
        match next {
            Ok(at) => Some(at),
            Err(end) => {
                self.end(&end);
                None
            }
        }
    }

    fn end(self: &Arc<Self>, end: &HoldEnd) {
        if let HoldEnd::Lost(reason, _) = *end {
            let last = self.lock().see_renewal(None);
            self.tell_renewals(last);
            Lease { shared: Arc::clone(self) }.lose(reason);
        }
    }

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
    fn hold(&self) -> Option<&Hold> {
        match &self.proof {
            Proof::Kept(_, hold) => Some(hold),
            Proof::Missing | Proof::Bare(_) => None,
        }
    }

    fn kept_as(&mut self, operation: OperationId) -> Option<&mut Hold> {
        match &mut self.proof {
            Proof::Kept(current, hold) if *current == operation => Some(hold),
            _ => None,
        }
    }

    /// Takes over what the hold machine has found out; gives the round of renewal to tell now, if there is
    /// one.
    fn note_renewal(&mut self, now: Moment) -> Option<RoundReport> {
        let Proof::Kept(_, hold) = &mut self.proof else {
            return None;
        };
        self.at_risk = hold.is_at_risk(now);
        let round = hold.last_round();
        hold.close_round();
        if let Some(round) = &round {
            self.votes = LastVotes::over(round);
        }
        self.see_renewal(round)
    }

    /// Counts nothing where nobody listens.
    fn see_renewal(&mut self, round: Option<RoundReport>) -> Option<RoundReport> {
        let extras = self.extras.as_mut().filter(|extras| !extras.on_renewal.is_empty())?;
        extras.renewals.see(round)
    }
}

fn hear(hold: &mut Hold, env: &mut Snapshot, replies: Vec<Arrival>) {
    if replies.is_empty() {
        return hold.handle_timeout(env);
    }
    for arrival in replies {
        // It may have waited here; whether it still counts is judged by the clock, afterwards.
        hold.handle_reply(&mut Snapshot::at(arrival.at), arrival.node, arrival.reply);
    }
}

/// Whether or not it panics, which is told on the standard error, what else there is to do goes on.
fn call(callback: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(callback));
}
