//! Counts votes and decides what they add up to. Owns the arithmetic of majorities; knows nothing
//! of time.

use crate::command::Answer;
use crate::fault::Fault;

/// How many of N nodes must agree: more than half, so that any two quorums share a node.
///
/// ```
/// use quorlock_protocol::Quorum;
///
/// assert_eq!(Quorum::of(5).size(), 3);
/// assert_eq!(Quorum::of(4).size(), 3);
/// assert_eq!(Quorum::of(1).size(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quorum {
    nodes: usize,
}

impl Quorum {
    /// The quorum of `nodes` nodes.
    pub const fn of(nodes: usize) -> Self {
        Self { nodes }
    }

    /// How many votes make it: `floor(N/2) + 1`.
    pub const fn size(self) -> usize {
        self.nodes / 2 + 1
    }

    /// N.
    pub const fn nodes(self) -> usize {
        self.nodes
    }

    /// Whether this many votes against make a quorum in favour impossible.
    pub const fn is_blocked_by(self, against: usize) -> bool {
        against + self.size() > self.nodes
    }

    /// When a quorum is ready, given when each node is.
    pub(crate) fn earliest<T: Copy + Ord>(self, nodes: &[Option<T>]) -> Option<T> {
        let mut ready: Vec<_> = nodes.iter().flatten().copied().collect();
        ready.sort_unstable();
        ready.get(self.size() - 1).copied()
    }
}

/// One node's part in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Vote {
    /// No reply yet.
    Missing,
    /// The keys are the claim's.
    Granted,
    /// The keys are another's, or gone.
    Refused,
    /// The node failed.
    Failed,
}

impl Vote {
    /// The vote that a reply amounts to.
    pub const fn of(answer: Option<&Result<Answer, Fault>>) -> Self {
        match answer {
            None => Self::Missing,
            Some(Ok(Answer::Ours { .. })) => Self::Granted,
            // A queue casts no vote.
            Some(Ok(
                Answer::Absent
                | Answer::Theirs { .. }
                | Answer::Queued { .. }
                | Answer::Done
                | Answer::Waiters(_),
            )) => Self::Refused,
            Some(Err(_)) => Self::Failed,
        }
    }

    /// The word for it: `missing`, `granted`, `refused` or `failed`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Granted => "granted",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// What the votes so far add up to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It can still go either way.
    Pending,
    /// A quorum granted.
    Won,
    /// A quorum can no longer be reached.
    Lost,
}

/// A count of votes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tally {
    /// Nodes that granted.
    pub granted: usize,
    /// Nodes that refused.
    pub refused: usize,
    /// Nodes that failed.
    pub failed: usize,
    /// Nodes that have not answered.
    pub missing: usize,
}

impl Tally {
    /// Counts `votes`.
    pub fn of(votes: impl IntoIterator<Item = Vote>) -> Self {
        let mut tally = Self::default();
        for vote in votes {
            match vote {
                Vote::Granted => tally.granted += 1,
                Vote::Refused => tally.refused += 1,
                Vote::Failed => tally.failed += 1,
                Vote::Missing => tally.missing += 1,
            }
        }
        tally
    }

    /// The verdict, as soon as it is certain.
    pub const fn verdict(self, quorum: Quorum) -> Verdict {
        if self.granted >= quorum.size() {
            Verdict::Won
        } else if quorum.is_blocked_by(self.refused + self.failed) {
            Verdict::Lost
        } else {
            Verdict::Pending
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_two_quorums_share_a_node(nodes in 1_usize..=255) {
            let size = Quorum::of(nodes).size();
            prop_assert!(2 * size > nodes);
            prop_assert!(size <= nodes);
        }

        #[test]
        fn a_verdict_never_changes_once_it_is_certain(
            votes in prop::collection::vec(0_u8..3, 1..12), seen in 0_usize..12,
        ) {
            let cast = |value: &u8| [Vote::Granted, Vote::Refused, Vote::Failed][usize::from(*value)];
            let quorum = Quorum::of(votes.len());
            let early = Tally::of(votes.iter().enumerate().map(|(index, value)| {
                if index < seen { cast(value) } else { Vote::Missing }
            }));
            let all = Tally::of(votes.iter().map(cast));
            prop_assert_ne!(all.verdict(quorum), Verdict::Pending);
            if early.verdict(quorum) != Verdict::Pending {
                prop_assert_eq!(early.verdict(quorum), all.verdict(quorum));
            }
        }
    }

    #[test]
    fn a_split_vote_of_an_even_number_of_nodes_is_lost() {
        let tally = Tally { granted: 2, refused: 2, ..Tally::default() };
        assert_eq!(tally.verdict(Quorum::of(4)), Verdict::Lost);
    }
}
