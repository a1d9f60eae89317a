//! Reads from the votes of a lost round what the acquisition must know before the next one. Decides nothing.

use std::time::Duration;

use crate::command::{Answer, Frees};
use crate::error::ErrorKind;
use crate::fault::FaultKind;
use crate::identity::FencingToken;
use crate::quorum::{Quorum, Vote};
use crate::round::{NodeVote, RoundReport};

/// What a lost round says about the next one.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Loss {
    pub(super) kind: ErrorKind,
    /// Nodes that have not answered, or that the command did not come to.
    pub(super) unanswered: usize,
    pub(super) permanent: bool,
    /// This process stood still, so it may not have sent its commands or read the replies: says nothing about the nodes.
    pub(super) void: bool,
    /// Some nodes granted.
    pub(super) was_split: bool,
    endless: bool,
    /// It ends by itself: nodes are held back that may have forgotten locks.
    passes: bool,
    pub(super) floor: FencingToken,
    /// When each node may be free, if the holders neither release nor extend. One that has not answered may be free now.
    pub(super) ends: Vec<Option<Duration>>,
    /// When a quorum may be, so that another round could be won.
    pub(super) frees_in: Option<Duration>,
}

/// When the node may be free.
fn frees_in(vote: &NodeVote) -> Option<Duration> {
    match (&vote.answer, vote.vote) {
        (Some(Ok(Answer::Theirs { frees: Frees::In(time), .. })), _) => Some(*time),
        (_, Vote::Granted | Vote::Missing) => Some(Duration::ZERO),
        (_, Vote::Refused | Vote::Failed) => None,
    }
}

impl Loss {
    pub(super) fn of(report: &RoundReport, quorum: Quorum) -> Self {
        let tally = report.tally();
        let (mut permanent, mut never, mut quarantined, mut unsent, mut late) = (0, 0, 0, 0, 0);
        let stood_still = !report.stood_still.is_zero();
        let mut floor = FencingToken::default();
        for answer in report.votes.iter().filter_map(|vote| vote.answer.as_ref()) {
            match answer {
                Err(fault) if fault.kind().is_permanent() => permanent += 1,
                Err(fault) if fault.kind() == FaultKind::Quarantined => quarantined += 1,
                Err(fault) if fault.kind() == FaultKind::Late => late += 1,
                Err(fault) if stood_still && fault.kind() == FaultKind::TimedOut => late += 1,
                Err(fault) if fault.kind() == FaultKind::NotSent => unsent += 1,
                Ok(Answer::Theirs { floor: own, frees }) => {
                    floor = floor.max(own.unwrap_or_default());
                    never += usize::from(*frees == Frees::Never);
                }
                _ => {}
            }
        }
        let ends: Vec<_> = report.votes.iter().map(frees_in).collect();
        // A quorum that granted and was lost all the same was too slow, for the ttl or for its fence.
        let too_slow = tally.granted >= quorum.size();
        // A node that is only slower than the verdict is no sign of trouble; where votes have not decided,
        // it is.
        let is_undecided = !quorum.is_blocked_by(tally.refused + tally.failed);
        let broken = too_slow || is_undecided || quorum.is_blocked_by(tally.failed);
        Self {
            kind: if broken { ErrorKind::QuorumUnreachable } else { ErrorKind::NotAcquired },
            unanswered: tally.missing + unsent + late,
            permanent: quorum.is_blocked_by(permanent),
            void: late > 0 && !quorum.is_blocked_by(tally.refused + tally.failed - late),
            was_split: tally.granted > 0,
            endless: never > 0 && quorum.is_blocked_by(never + tally.failed),
            passes: quarantined > 0 && !quorum.is_blocked_by(tally.failed - quarantined),
            floor,
            frees_in: quorum.earliest(&ends).filter(|_| !too_slow && !is_undecided),
            ends,
        }
    }

    pub(super) fn is_stuck(&self) -> bool {
        self.endless || (self.kind == ErrorKind::QuorumUnreachable && !self.passes)
    }
}
