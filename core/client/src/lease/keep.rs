//! Keeping a lease alive and telling its loss, on the engine's thread.

use std::sync::{Arc, PoisonError, Weak};

use quorlock_protocol::{ErrorKind, Hold, HoldEnd, LossReason, RoundReport};

use super::release::Ending;
use super::votes::Renewals;
use super::{LastVotes, Lease, Shared, Stage};
use crate::clock;
use crate::driver::Driver;
use crate::error::{LockError, NodeReport};

impl Lease {
    /// Waits until the lease is lost, and tells why; never ends if it is released first.
    ///
    /// The loss is told by the clock, at the end of what was last proved, whether or not the nodes
    /// answer. May be dropped at any time.
    pub async fn lost(&self) -> LockError {
        self.watch();
        loop {
            let told = self.shared.told.notified();
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
                state.on_lost.push(Box::new(callback));
                drop(state);
                self.watch();
            }
            Stage::Released => {}
        }
    }

    /// Calls `callback`, on the engine's thread, with what every node did in a round of renewal: once a
    /// round, as soon as all have answered or the next one begins. It must not block.
    pub fn on_renewal(&self, callback: impl Fn(&[NodeReport]) + Send + Sync + 'static) {
        self.shared.lock().on_renewal.push(Arc::new(callback));
    }

    /// Renews the lease no longer: it ends with the validity that is proved, unless it is extended or
    /// released before. For a holder that cannot go on, such as a thread that was ended.
    pub fn let_run_out(&self) {
        let mut state = self.shared.lock();
        state.policy = state.policy.without_auto_extend();
        state.stop_active();
        let watched = state.watched;
        drop(state);
        if watched {
            self.keep();
        }
    }

    /// Goes on renewing after an explicit extension, or watching where someone waits for the loss.
    pub(super) fn resume(&self) {
        let state = self.shared.lock();
        let wanted = state.policy.auto_extend() || state.watched;
        drop(state);
        if wanted {
            self.keep();
        }
    }

    fn watch(&self) {
        let mut state = self.shared.lock();
        let first = !std::mem::replace(&mut state.watched, true);
        let idle = state.active.is_none();
        drop(state);
        if first && idle {
            self.keep();
        }
    }

    /// Starts to renew (where the policy says so) and to watch the end.
    pub(super) fn keep(&self) {
        let mut state = self.shared.lock();
        let (Stage::Held, Some(facts)) = (state.stage, state.facts.clone()) else {
            return;
        };
        let manager = &self.shared.manager;
        let mut policy = state.policy;
        if manager.is_closed() {
            policy = policy.without_auto_extend();
        }
        state.stop_active();
        let driver = Driver::new(&manager.nodes);
        state.active = Some(Arc::clone(&driver.inbox));
        let machine = Hold::new(clock::now(), facts, policy, state.held_since, manager.quorum);
        drop(state);
        manager.engine.spawn_detached(hold(Arc::downgrade(&self.shared), driver, machine));
    }

    /// The lease is over: no more of it is renewed, its keys are taken back (or left to their lock-delay),
    /// everyone is told.
    pub(super) fn lose(&self, reason: LossReason) {
        let mut state = self.shared.lock();
        if state.stage != Stage::Held {
            return;
        }
        state.stop_active();
        state.stage = Stage::Lost(reason);
        state.lost = Some(reason);
        let callbacks = std::mem::take(&mut state.on_lost);
        let takes_back = state.policy.lock_delay().is_zero();
        drop(state);
        self.shared.told.notify_waiters();
        if takes_back {
            self.shared.manager.withdraw_afresh(vec![self.withdrawal(Ending::Withdrawn)]);
        }
        for callback in callbacks {
            callback(self.lost_error(reason));
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

/// Drives the hold machine without keeping the lease in memory: an abandoned one stops.
async fn hold(shared: Weak<Shared>, driver: Driver, mut machine: Hold) {
    let mut renewals = Renewals::default();
    let end = driver
        .run(&mut machine, |machine| {
            let Some(shared) = shared.upgrade() else {
                return;
            };
            let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
            if state.stage == Stage::Held && state.is_worked_on_by(&driver.inbox) {
                state.facts = Some(machine.lease().clone());
                state.at_risk = machine.is_at_risk(clock::now());
                let round = machine.last_round();
                if let Some(round) = &round {
                    state.votes = LastVotes::Closed(round.clone());
                }
                drop(state);
                shared.tell_renewal(renewals.see(round));
            }
        })
        .await;
    if let (HoldEnd::Lost(reason, _), Some(shared)) = (end, shared.upgrade()) {
        shared.tell_renewal(renewals.see(None));
        Lease { shared }.lose(reason);
    }
}

impl Shared {
    fn tell_renewal(&self, round: Option<RoundReport>) {
        let Some(round) = round else {
            return;
        };
        let callbacks = self.lock().on_renewal.clone();
        if callbacks.is_empty() {
            return;
        }
        let votes = self.manager.name_votes(&round);
        for callback in callbacks {
            callback(&votes);
        }
    }
}
