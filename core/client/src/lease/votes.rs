//! The nodes' votes about a lease, including those that come late. Owns the votes; decides nothing
//! by them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quorlock_protocol::{Moment, NodeVote, Round, RoundReport, Vote};

use crate::error::{NodeReport, name_votes};
use crate::inbox::Inbox;
use crate::inbox::{CompactVotes, LateVotes};

/// The last round's votes.
pub(super) enum LastVotes {
    /// Late votes are still added.
    Late(Arc<LateVotes>),
    Closed(CompactVotes),
}

impl LastVotes {
    /// The votes of a round that is decided; replies that still come to `inbox` are added.
    pub(super) fn of(round: Round, inbox: &Inbox) -> Self {
        let late = Arc::new(LateVotes::new(round));
        inbox.leave_to(&late);
        Self::Late(late)
    }

    /// The votes of a round to which nothing is added any more.
    pub(super) fn over(report: &RoundReport) -> Self {
        Self::Closed(CompactVotes::of(report.votes.iter().cloned()))
    }

    pub(super) fn now(&self) -> Vec<NodeVote> {
        match self {
            Self::Late(late) => late.now(),
            Self::Closed(compact) => compact.votes(),
        }
    }
}

/// The rounds of renewal, each of which is reported once.
#[derive(Default)]
pub(super) struct Renewals {
    /// When the last round that was reported began.
    told: Option<Moment>,
    /// Not reported yet: some nodes may still answer.
    open: Option<RoundReport>,
}

impl Renewals {
    /// Takes the last round that has ended; `None` while the next one has only begun. Returns the
    /// round to report now, if there is one: every node has answered, or the remaining answers are
    /// not waited for.
    pub(super) fn see(&mut self, round: Option<RoundReport>) -> Option<RoundReport> {
        if round.as_ref().is_some_and(|round| self.told == Some(round.started)) {
            return None;
        }
        let is_open = |round: &RoundReport| round.votes.iter().any(|it| it.vote == Vote::Missing);
        let last = self.open.take();
        if round.as_ref().is_some_and(is_open) {
            self.open = round;
            return None;
        }
        let told = round.or(last)?;
        self.told = Some(told.started);
        Some(told)
    }
}

/// Every node's answer to a release; those that were missing when its outcome was certain are added
/// later.
#[derive(Clone, Default)]
pub struct ReleaseVotes {
    votes: Arc<Mutex<Vec<NodeVote>>>,
    addresses: Arc<[Arc<str>]>,
}

impl ReleaseVotes {
    pub(super) fn new(addresses: &Arc<[Arc<str>]>) -> Self {
        Self { votes: Arc::default(), addresses: Arc::clone(addresses) }
    }

    pub(super) fn set(&self, votes: impl Iterator<Item = NodeVote>) {
        let mut own = self.lock();
        own.clear();
        own.extend(votes);
    }

    /// The answers so far; empty if the lease was known to have ended, because no node is asked
    /// then.
    pub fn now(&self) -> Vec<NodeReport> {
        name_votes(&self.lock(), &self.addresses)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<NodeVote>> {
        self.votes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(started: u64, votes: [Vote; 2]) -> RoundReport {
        let vote = |vote| NodeVote { vote, answer: None, took: std::time::Duration::ZERO };
        let started = Moment::from_millis(started);
        RoundReport { started, votes: votes.map(vote).to_vec(), ..RoundReport::default() }
    }

    #[test]
    fn a_round_is_told_once_and_when_it_is_complete() {
        let mut renewals = Renewals::default();
        assert_eq!(renewals.see(None), None, "before the first");
        let open = round(1, [Vote::Failed, Vote::Missing]);
        assert_eq!(renewals.see(Some(open)), None, "one may still answer");
        let complete = round(1, [Vote::Failed, Vote::Granted]);
        assert_eq!(renewals.see(Some(complete.clone())), Some(complete.clone()));
        assert_eq!(renewals.see(Some(complete)), None, "told before");
        assert_eq!(renewals.see(None), None, "told before");
    }

    #[test]
    fn a_round_that_nobody_waits_for_any_more_is_told_as_it_is() {
        let mut renewals = Renewals::default();
        let open = round(1, [Vote::Failed, Vote::Missing]);
        assert_eq!(renewals.see(Some(open.clone())), None);
        assert_eq!(renewals.see(None), Some(open));
        assert_eq!(renewals.see(None), None, "told before");
        let next = round(2, [Vote::Granted, Vote::Granted]);
        assert_eq!(renewals.see(Some(next.clone())), Some(next));
    }
}
