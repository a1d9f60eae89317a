//! How a lease is released or withdrawn. Owns the tasks that take its keys back, and who is told
//! the outcome.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use quorlock_protocol::{Release, ReleaseOutcome, Withdraw};
use tokio::sync::oneshot;

use super::account::EndOfLease;
use super::{Lease, ReleaseVotes};
use crate::clock;
use crate::engine::WaiterGuard;
use crate::error::LockError;
use crate::guards::LongLockNote;

impl Lease {
    /// Takes the keys back and returns what became of the lease, as soon as a quorum has answered.
    ///
    /// The rest continues in the background, also when the future is dropped; nodes that cannot be
    /// reached are asked again until their keys have expired. A lease that had expired is an
    /// outcome here, not an error: [`ReleaseOutcome::Expired`] is returned whenever the validity
    /// had ended at the call, even if a quorum still had the keys. If too few nodes answer for a
    /// lease that was valid, the outcome is [`ReleaseOutcome::Unknown`].
    ///
    /// If the keys of a lost lease were left on the nodes, they are taken back now: the work under
    /// it has ended. Before `min_hold` has passed since the acquisition, the nodes are told to keep the keys until then;
    /// for the caller the lease has ended all the same, with the outcome `Released`.
    ///
    /// Of a lease that had expired, keys stay that last longer than this lease asked for: another who has its token has
    /// extended it.
    ///
    /// It begins when the future is first polled. A close of the manager in between leaves the nodes open for it, for a
    /// moment. After a close, the nodes are connected to again.
    ///
    /// # Errors
    /// [`ErrorKind::LockNotHeld`] if it was released before.
    pub fn release(
        &self,
    ) -> impl Future<Output = Result<ReleaseOutcome, LockError>> + Send + use<> {
        self.release_told().map(|told| told.map(|(outcome, _)| outcome))
    }

    /// [`Self::release`], with the nodes' answers.
    ///
    /// # Errors
    /// As for [`Self::release`].
    pub fn release_told(
        &self,
    ) -> impl Future<Output = Result<(ReleaseOutcome, ReleaseVotes), LockError>> + Send + use<>
    {
        let (lease, needed) = (self.clone(), self.need_nodes());
        async move {
            let _needed = needed;
            lease.release_now().await
        }
    }

    async fn release_now(&self) -> Result<(ReleaseOutcome, ReleaseVotes), LockError> {
        if let Some(ended) = self.release_degraded() {
            return ended.map(|votes| (ReleaseOutcome::Unknown, votes));
        }
        let votes = ReleaseVotes::new(&self.shared.manager.addresses);
        // What is written beside the keys is deleted over the same connections, before the keys.
        let _nodes = self.shared.manager.nodes_for_release();
        let (withdraw, was_over, end) = match self.begin_release(Some(&votes)) {
            (Release::NotHeld, _) => return Err(self.not_held()),
            (Release::Lost(left), _) => {
                self.revoke(left, None, ReleaseVotes::default(), None);
                return Ok((ReleaseOutcome::Expired, votes));
            }
            (Release::Asked { withdraw, was_over }, end) => (withdraw, was_over, end),
        };
        let (send, told) = oneshot::channel();
        let told_to = Some((send, self.engine().register_waiter()));
        self.revoke(Some(withdraw), told_to, votes.clone(), end);
        let outcome = told.await.unwrap_or(ReleaseOutcome::Unknown).seen(was_over);
        if matches!(outcome, ReleaseOutcome::Expired | ReleaseOutcome::Taken) {
            self.shared.lock().extras().is_lost_at_release = true;
        }
        Ok((outcome, votes))
    }

    /// The error that corresponds to an outcome of [`Self::release`], if the lease had ended before
    /// it was released. Its votes are those of the release, or the last earlier ones if no node was
    /// asked.
    pub fn loss(&self, outcome: ReleaseOutcome) -> Option<LockError> {
        let state = self.shared.lock();
        let (lost, release) = (state.life.lost(), state.release.clone());
        drop(state);
        if let Some(reason) = lost {
            return Some(self.lost_error(reason));
        }
        let votes = release.map(|votes| votes.now()).unwrap_or_default();
        LockError::of_outcome(outcome, &self.shared.claim.resources, votes)
    }

    /// Releases the lease as [`Self::release`] does, without waiting for the outcome.
    pub(crate) fn give_back(&self) {
        if self.release_degraded().is_some() {
            return;
        }
        let _nodes = self.shared.manager.nodes_for_release();
        match self.begin_release(None) {
            (Release::Asked { withdraw, .. } | Release::Lost(Some(withdraw)), end) => {
                self.revoke(Some(withdraw), None, ReleaseVotes::default(), end);
            }
            (Release::Lost(None) | Release::NotHeld, _) => {}
        }
    }

    /// Takes the lease back as if it had never been won, without waiting for the outcome: no work
    /// was done under it, so `min_hold` does not apply. Does nothing if the lease has ended.
    pub fn withdraw(&self) {
        if self.release_degraded().is_some() {
            return;
        }
        let _nodes = self.shared.manager.nodes_for_release();
        let mut state = self.shared.lock();
        let now = self.shared.now();
        let withdraw = state.life.withdraw(now);
        let end = withdraw.is_some().then(|| self.shared.begin_end(&mut state, false, now));
        state.settle(&self.shared.manager.renewals);
        drop(state);
        if end.is_some() {
            self.erase_records(None);
        }
        self.revoke(withdraw, None, ReleaseVotes::default(), end);
    }

    /// The user releases the lease; `votes` will receive the nodes' answers.
    fn begin_release(&self, votes: Option<&ReleaseVotes>) -> (Release, Option<EndOfLease>) {
        let mut state = self.shared.lock();
        let now = self.shared.now();
        let release = state.life.release(now);
        state.settle(&self.shared.manager.renewals);
        let end = match release {
            Release::Asked { was_over, .. } => {
                state.release = votes.cloned();
                if was_over {
                    state.extras().is_lost_at_release = true;
                }
                Some(self.shared.begin_end(&mut state, was_over, now))
            }
            Release::Lost(_) | Release::NotHeld => None,
        };
        drop(state);
        match &release {
            Release::NotHeld => {}
            // The keys were taken back with the loss: what stands there now is another's.
            Release::Lost(None) => self.erase_records(Some(Duration::ZERO)),
            Release::Lost(Some(machine)) | Release::Asked { withdraw: machine, .. } => {
                self.erase_records(machine.max_remaining(now));
            }
        }
        (release, end)
    }

    /// Deletes what is written beside the keys, before these are taken back: a least hold leaves them for a while.
    /// What is another holder's by now stays, and so does all beside a key of which more than `max_remaining` is left.
    fn erase_records(&self, max_remaining: Option<Duration>) {
        self.erase_record(max_remaining);
        self.erase_owner(max_remaining);
    }

    fn revoke(
        &self,
        machine: Option<Withdraw>,
        mut told_to: Option<(oneshot::Sender<ReleaseOutcome>, WaiterGuard)>,
        votes: ReleaseVotes,
        mut end: Option<EndOfLease>,
    ) {
        let Some(mut machine) = machine else {
            return;
        };
        let manager = &self.shared.manager;
        let driver = manager.driver_over(&manager.nodes_for_release());
        let reopening = manager.is_closed().then(|| Arc::clone(manager));
        let caller_queues = Arc::clone(&self.shared.manager.caller_queues);
        // Those that wait in the nodes' queues are called by the nodes, in their order.
        let was_queued = self.shared.lock().life.was_queued();
        if was_queued {
            caller_queues.contention.note(&self.shared.claim.resources, clock::now());
        }
        let mut is_known = false;
        self.end_notes();
        let work = async move {
            if let Some((_, waiter)) = &told_to {
                waiter.start_polling();
            }
            if let Some(manager) = reopening {
                // Boxed: few releases come after a close.
                Box::pin(manager.settle_reopened(&driver.nodes)).await;
            }
            driver
                .run(&mut machine, |machine| {
                    votes.set(machine.votes());
                    if is_known {
                        return;
                    }
                    let Some(outcome) = machine.outcome() else {
                        return;
                    };
                    is_known = true;
                    let resources = &machine.claim().resources;
                    if was_queued {
                        caller_queues.contention.prolong(resources, clock::now());
                    } else {
                        caller_queues.tell_free(resources);
                    }
                    if let Some(end) = end.take() {
                        end.tell(machine.claim(), outcome);
                    }
                    if let Some((told, waiter)) = told_to.take() {
                        waiter.keep_polling();
                        let _ = told.send(outcome);
                    }
                })
                .await;
        };
        self.shared.manager.background(work);
    }

    /// Tells other clients that the lock has ended, whatever keys are left of it; a least hold
    /// expires by itself.
    fn end_notes(&self) {
        let mut state = self.shared.lock();
        let notes = state.extras.as_mut().map(|extras| std::mem::take(&mut extras.notes));
        let leaves_keys = !state.life.policy().min_hold().is_zero();
        drop(state);
        if !leaves_keys {
            notes.into_iter().flatten().for_each(LongLockNote::finish);
        }
    }
}
