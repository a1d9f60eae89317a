//! The votes of a decided round: late ones are still recorded, and all are stored compactly. They decide nothing.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use quorlock_protocol::{Answer, FencingToken, NodeVote, Round, Vote};

use super::Arrival;

/// The votes of a decided round, of which some may still come.
pub(crate) struct LateVotes {
    log: Mutex<VoteLog>,
}

enum VoteLog {
    /// Some nodes have not answered, or may answer again.
    Open(Box<Round>),
    Closed(CompactVotes),
}

/// What every node did in a complete round.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CompactVotes {
    /// All granted, with the same token, after this many microseconds each.
    Granted(Option<FencingToken>, Box<[u32]>),
    Mixed(Box<[NodeVote]>),
}

impl LateVotes {
    pub(crate) fn new(round: Round) -> Self {
        Self { log: Mutex::new(VoteLog::of(Box::new(round))) }
    }

    /// Records one more vote.
    pub(crate) fn record(&self, arrival: Arrival) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let VoteLog::Open(round) = &mut *log
            && round.handle_reply(arrival.at, arrival.node, arrival.reply)
            && round.is_complete()
        {
            *log = VoteLog::Closed(CompactVotes::of(round.votes()));
        }
    }

    /// What is known by now.
    pub(crate) fn now(&self) -> Vec<NodeVote> {
        match &*self.log.lock().unwrap_or_else(PoisonError::into_inner) {
            VoteLog::Open(round) => round.votes().collect(),
            VoteLog::Closed(votes) => votes.votes(),
        }
    }
}

impl VoteLog {
    fn of(round: Box<Round>) -> Self {
        if round.is_complete() {
            Self::Closed(CompactVotes::of(round.votes()))
        } else {
            Self::Open(round)
        }
    }
}

impl CompactVotes {
    pub(crate) fn of(votes: impl Iterator<Item = NodeVote> + Clone) -> Self {
        let token = |vote: NodeVote| match vote.answer {
            Some(Ok(Answer::Ours { token, remaining: None })) => Some(token),
            _ => None,
        };
        match votes.clone().next().and_then(token) {
            Some(first) if votes.clone().all(|vote| token(vote) == Some(first)) => {
                let micros =
                    |vote: NodeVote| u32::try_from(vote.took.as_micros()).unwrap_or(u32::MAX);
                Self::Granted(first, votes.map(micros).collect())
            }
            _ => Self::Mixed(votes.collect()),
        }
    }

    pub(crate) fn votes(&self) -> Vec<NodeVote> {
        match self {
            Self::Granted(token, times) => {
                let answer = Ok(Answer::Ours { token: *token, remaining: None });
                let vote = |micros: &u32| NodeVote {
                    vote: Vote::Granted,
                    answer: Some(answer.clone()),
                    took: Duration::from_micros((*micros).into()),
                };
                times.iter().map(vote).collect()
            }
            Self::Mixed(votes) => votes.to_vec(),
        }
    }
}

impl Default for CompactVotes {
    fn default() -> Self {
        Self::Mixed(Box::default())
    }
}

#[cfg(test)]
mod tests {
    use quorlock_protocol::{Fault, FaultKind};

    use super::*;

    fn vote(vote: Vote, answer: Result<Answer, Fault>) -> NodeVote {
        NodeVote { vote, answer: Some(answer), took: Duration::from_micros(120) }
    }

    fn granted(token: Option<u64>, remaining: Option<Duration>) -> NodeVote {
        let token = token.map(FencingToken);
        vote(Vote::Granted, Ok(Answer::Ours { token, remaining }))
    }

    #[test]
    fn votes_come_out_as_they_went_in() {
        let fault = vote(Vote::Failed, Err(Fault::new(FaultKind::Broken, "gone")));
        let missing = NodeVote { vote: Vote::Missing, answer: None, took: Duration::ZERO };
        let rounds = [
            vec![],
            vec![granted(None, None), granted(None, None)],
            vec![granted(Some(7), None), granted(Some(7), None)],
            vec![granted(Some(7), None), granted(Some(8), None)],
            vec![granted(Some(7), Some(Duration::from_secs(1))), granted(Some(7), None)],
            vec![granted(Some(7), None), fault, missing],
        ];
        for votes in rounds {
            assert_eq!(CompactVotes::of(votes.iter().cloned()).votes(), votes);
        }
        let votes = CompactVotes::of([granted(Some(7), None), granted(Some(7), None)].into_iter());
        assert!(matches!(votes, CompactVotes::Granted(..)), "equal grants are stored compactly");
    }
}
