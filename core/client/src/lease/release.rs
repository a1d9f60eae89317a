//! Giving a lease back. Owns the ways in which it ends by its user's will, and what each leaves on the nodes.

use std::sync::Arc;

use quorlock_protocol::{LossReason, ReleaseOutcome, Ticket, Withdraw, Withdrawal};
use tokio::sync::oneshot;

use super::{Lease, ReleaseVotes, Stage};
use crate::engine::WaiterGuard;
use crate::error::LockError;
use crate::sentry::Keeping;

/// How a lease comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Its user has had it: `min_hold` counts.
    GivenBack,
    /// It was lost, or never reached its user.
    Withdrawn,
}

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
        let was_over = self.is_over();
        if let Stage::Lost(_) = self.begin_release()? {
            self.end_delay();
            return Ok((ReleaseOutcome::Expired, votes));
        }
        self.shared.lock().release = Some(votes.clone());
        let (send, told) = oneshot::channel();
        let told_to = Some((send, self.engine().register_waiter()));
        self.revoke(self.withdrawal(Ending::GivenBack), told_to, votes.clone());
        let outcome = match told.await.unwrap_or(ReleaseOutcome::Unknown) {
            // Its validity was over, whatever keys still stood: one truth for whoever asks the lease.
            ReleaseOutcome::Released | ReleaseOutcome::Unknown if was_over => {
                ReleaseOutcome::Expired
            }
            outcome => outcome,
        };
        Ok((outcome, votes))
    }

    /// The error that an outcome of [`Self::release`] amounts to, for those who want one: the lease
    /// was over before it was released. Its votes are those of the release, or the last that were cast
    /// if no node was asked any more.
    pub fn loss(&self, outcome: ReleaseOutcome) -> Option<LockError> {
        let state = self.shared.lock();
        let (lost, release) = (state.lost, state.release.clone());
        drop(state);
        if let Some(reason) = lost {
            return Some(self.lost_error(reason));
        }
        let votes = release.map(|votes| votes.now()).unwrap_or_default();
        LockError::of_outcome(outcome, &self.shared.claim.resources, votes)
    }

    /// Gives the lease back as [`Self::release`] does, without waiting for the outcome.
    pub(crate) fn give_back(&self) {
        match self.begin_release() {
            Ok(Stage::Held) => self.take_back(Ending::GivenBack),
            Ok(Stage::Lost(_)) => self.end_delay(),
            Ok(Stage::Released) | Err(_) => {}
        }
    }

    /// Takes the lease back as if it had never been won, without waiting for the outcome: nobody has worked
    /// under it, so that `min_hold` does not count. Does nothing if it is over already.
    pub fn withdraw(&self) {
        if matches!(self.begin_release(), Ok(Stage::Held)) {
            self.take_back(Ending::Withdrawn);
        }
    }

    /// The work under a lost lease has ended: what was left of its keys is of no use any more.
    fn end_delay(&self) {
        let state = self.shared.lock();
        let left = !state.policy.lock_delay().is_zero() || state.lost == Some(LossReason::Gone);
        drop(state);
        if left {
            self.take_back(Ending::GivenBack);
        }
    }

    fn take_back(&self, ending: Ending) {
        self.revoke(self.withdrawal(ending), None, ReleaseVotes::default());
    }

    fn begin_release(&self) -> Result<Stage, LockError> {
        let mut state = self.shared.lock();
        if state.stage == Stage::Released {
            drop(state);
            return Err(self.not_held());
        }
        state.stop(&self.shared.manager.keeper);
        Ok(std::mem::replace(&mut state.stage, Stage::Released))
    }

    fn revoke(
        &self,
        mut machine: Withdraw,
        mut told_to: Option<(oneshot::Sender<ReleaseOutcome>, WaiterGuard)>,
        votes: ReleaseVotes,
    ) {
        let driver = self.shared.manager.driver();
        let turnstile = Arc::clone(&self.shared.manager.turnstile);
        let mut is_told_free = false;
        self.end_keeping();
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
    fn end_keeping(&self) {
        let mut state = self.shared.lock();
        let keeping = state.extras.as_mut().map(|extras| std::mem::take(&mut extras.keeping));
        let leaves_keys = !state.policy.min_hold().is_zero();
        drop(state);
        if !leaves_keys {
            keeping.into_iter().flatten().for_each(Keeping::finish);
        }
    }

    /// A machine that takes the lease's keys back.
    pub(super) fn withdrawal(&self, ending: Ending) -> Withdraw {
        let state = self.shared.lock();
        let now = self.shared.manager.clock.now();
        let facts = state.facts();
        let (forgotten, valid_until) = match facts {
            Some(facts) => (facts.forgotten(), facts.kept_until(state.policy.drift())),
            None => (now + state.policy.kept().as_duration(), now),
        };
        let withdrawal = Withdrawal {
            ticket: Ticket(0),
            claim: Arc::clone(&self.shared.claim),
            quorum: self.shared.manager.quorum,
            // At least one try, also for a lease that is long over.
            forgotten: forgotten.max(now + state.policy.node_timeout()),
            unsent: facts.map(|facts| facts.unsent().to_vec()).unwrap_or_default(),
            node_timeout: state.policy.node_timeout(),
        };
        let machine = Withdraw::new(now, withdrawal).valid_until(valid_until);
        match ending {
            Ending::GivenBack => {
                machine.keeping(state.held_since + state.policy.min_hold(), state.policy.drift())
            }
            Ending::Withdrawn => machine,
        }
    }
}
