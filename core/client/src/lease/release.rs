//! Giving a lease back. Owns the tasks that take its keys back, and who is told of what comes of it.

use std::sync::Arc;

use quorlock_protocol::{Release, ReleaseOutcome, Withdraw};
use tokio::sync::oneshot;

use super::{Lease, ReleaseVotes};
use crate::engine::WaiterGuard;
use crate::error::LockError;
use crate::node_guards::LongLockNote;

impl Lease {
    /// Takes the keys back and tells what became of the lease, as soon as a quorum has spoken.
    ///
    /// The rest goes on in the background, also when the future is dropped; nodes that cannot be
    /// reached are tried again until they have forgotten the keys by themselves. A lease that had
    /// expired is no error here: it is an outcome. It is [`ReleaseOutcome::Expired`] whenever the validity
    /// was over at the call, also if the keys still stood on a quorum. Where too few nodes answer for a lease
    /// that was valid, it is [`ReleaseOutcome::Unknown`].
    ///
    /// Where a lock-delay or a loss before the end of the validity left the keys of a lost lease, they are
    /// taken back now: the work under it has ended. Earlier than `min_hold` after the acquisition the
    /// nodes are told to keep the keys until then; for the caller the lease is over all the same, and
    /// `Released` the outcome.
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
        let (withdraw, was_over) = match self.begin_release(Some(&votes)) {
            Release::NotHeld => return Err(self.not_held()),
            Release::Lost(left) => {
                self.revoke(left, None, ReleaseVotes::default());
                return Ok((ReleaseOutcome::Expired, votes));
            }
            Release::Asked { withdraw, was_over } => (withdraw, was_over),
        };
        let (send, told) = oneshot::channel();
        let told_to = Some((send, self.engine().register_waiter()));
        self.revoke(Some(withdraw), told_to, votes.clone());
        let outcome = told.await.unwrap_or(ReleaseOutcome::Unknown);
        Ok((outcome.seen(was_over), votes))
    }

    /// The error that an outcome of [`Self::release`] amounts to, for those who want one: the lease
    /// was over before it was released. Its votes are those of the release, or the last that were cast
    /// if no node was asked any more.
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

    /// Gives the lease back as [`Self::release`] does, without waiting for the outcome.
    pub(crate) fn give_back(&self) {
        match self.begin_release(None) {
            Release::Asked { withdraw, .. } | Release::Lost(Some(withdraw)) => {
                self.revoke(Some(withdraw), None, ReleaseVotes::default());
            }
            Release::Lost(None) | Release::NotHeld => {}
        }
    }

    /// Takes the lease back as if it had never been won, without waiting for the outcome: nobody has worked
    /// under it, so that `min_hold` does not count. Does nothing if it is over already.
    pub fn withdraw(&self) {
        let mut state = self.shared.lock();
        let withdraw = state.life.withdraw(self.shared.now());
        state.settle(&self.shared.manager.renewals);
        drop(state);
        self.revoke(withdraw, None, ReleaseVotes::default());
    }

    /// The user lets go of the lease; `votes` are to be what the nodes say to that.
    fn begin_release(&self, votes: Option<&ReleaseVotes>) -> Release {
        let mut state = self.shared.lock();
        let release = state.life.release(self.shared.now());
        state.settle(&self.shared.manager.renewals);
        if matches!(release, Release::Asked { .. }) {
            state.release = votes.cloned();
        }
        release
    }

    fn revoke(
        &self,
        machine: Option<Withdraw>,
        mut told_to: Option<(oneshot::Sender<ReleaseOutcome>, WaiterGuard)>,
        votes: ReleaseVotes,
    ) {
        let Some(mut machine) = machine else {
            return;
        };
        let driver = self.shared.manager.driver();
        let turnstile = Arc::clone(&self.shared.manager.turnstile);
        let mut is_told_free = false;
        self.end_notes();
        let work = async move {
            if let Some((_, awaited)) = &told_to {
                awaited.start_polling();
            }
            driver
                .run(&mut machine, |machine| {
                    votes.set(machine.votes());
                    if !is_told_free && machine.outcome().is_some() {
                        is_told_free = true;
                        turnstile.tell_free(&machine.claim().resources);
                    }
                    if let Some(outcome) = machine.outcome()
                        && let Some((told, awaited)) = told_to.take()
                    {
                        awaited.keep_polling();
                        let _ = told.send(outcome);
                    }
                })
                .await;
        };
        self.shared.manager.engine.background(work);
    }

    /// Has other clients know that the lock has ended, whatever keys are left of it; a least hold runs out by itself.
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
