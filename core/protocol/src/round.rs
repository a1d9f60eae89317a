//! One command to all nodes, and the votes that come back. Owns each node's deadline; knows no
//! retry and no validity.

use std::sync::Arc;
use std::time::Duration;

use crate::command::{Action, Answer, Command, Reply, Ticket};
use crate::fault::{Fault, FaultKind};
use crate::identity::{Claim, NodeId};
use crate::quorum::{Quorum, Tally, Verdict, Vote};
use crate::time::Moment;

/// One command sent to many nodes at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Round {
    ticket: Ticket,
    claim: Arc<Claim>,
    action: Action,
    started: Moment,
    deadline: Moment,
    /// How long this process was paused at least, as far as the round could tell.
    stood_still: Duration,
    ballots: Vec<Ballot>,
}

/// What one node has done in a round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Ballot {
    wanted: bool,
    answer: Option<Result<Answer, Fault>>,
    took: Duration,
}

/// When a round starts, and when a node without an answer counts as failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Window {
    pub(crate) start: Moment,
    pub(crate) deadline: Moment,
}

impl Round {
    /// A round that asks every node.
    pub(crate) fn new(
        ticket: Ticket,
        claim: &Arc<Claim>,
        action: Action,
        window: Window,
        quorum: Quorum,
    ) -> Self {
        let mut round = Self::asking_none(ticket, claim, action, window, quorum);
        for ballot in &mut round.ballots {
            ballot.wanted = true;
        }
        round
    }

    /// A round that asks no node until [`Self::ask`] names it.
    pub(crate) fn asking_none(
        ticket: Ticket,
        claim: &Arc<Claim>,
        action: Action,
        window: Window,
        quorum: Quorum,
    ) -> Self {
        Self {
            ticket,
            claim: Arc::clone(claim),
            action,
            started: window.start,
            deadline: window.deadline,
            stood_still: Duration::ZERO,
            ballots: vec![Ballot::default(); quorum.nodes()],
        }
    }

    /// Asks one more node.
    pub(crate) fn ask(&mut self, node: NodeId) {
        self.ballots[node.index()].wanted = true;
    }

    /// Records a node's known answer without asking the node.
    pub(crate) fn settle(&mut self, node: NodeId, answer: Answer) {
        self.ballots[node.index()].answer = Some(Ok(answer));
    }

    /// The next command to send, if any is left.
    pub(crate) fn poll_send(&mut self) -> Option<(NodeId, Command)> {
        let index = self.ballots.iter().position(|ballot| ballot.wanted)?;
        self.ballots[index].wanted = false;
        let node = NodeId::all(self.ballots.len()).nth(index)?;
        let command = Command {
            ticket: self.ticket,
            claim: Arc::clone(&self.claim),
            action: self.action,
            not_after: self.deadline,
        };
        Some((node, command))
    }

    /// Counts a reply. A late answer replaces the fault that stood for it; a second one is ignored.
    pub fn handle_reply(&mut self, now: Moment, node: NodeId, reply: Reply) -> bool {
        let Some(ballot) = self.ballots.get_mut(node.index()) else {
            return false;
        };
        if reply.ticket != self.ticket || matches!(ballot.answer, Some(Ok(_))) {
            return false;
        }
        ballot.took = now.since(self.started);
        if reply.answer.as_ref().is_err_and(|fault| fault.kind() == FaultKind::Late) {
            self.stood_still = self.stood_still.max(ballot.took);
        }
        ballot.answer = Some(reply.answer);
        true
    }

    /// Counts every node without an answer as failed, if the deadline has come. If this process was
    /// paused, the replies that arrived meanwhile are read first.
    pub(crate) fn handle_timeout(&mut self, now: Moment) {
        if now < self.deadline {
            return;
        }
        if self.note_standstill(now, self.deadline) {
            self.deadline = now + TO_READ;
            return;
        }
        let waited = self.deadline.since(self.started);
        for ballot in &mut self.ballots {
            if ballot.answer.is_none() {
                ballot.took = waited;
                ballot.answer = Some(Err(no_answer_in(waited)));
            }
        }
    }

    /// Notes that the process was to wake at `due` and wakes at `now`; tells whether that is the
    /// first pause of the round.
    pub(crate) fn note_standstill(&mut self, now: Moment, due: Moment) -> bool {
        let late = now.since(due);
        let is_first = self.stood_still.is_zero() && late >= STANDSTILL;
        if is_first {
            self.stood_still = late;
        }
        is_first
    }

    /// Whether every node has answered, so that nothing more can come of the round.
    pub fn is_complete(&self) -> bool {
        self.ballots.iter().all(|ballot| matches!(ballot.answer, Some(Ok(_))))
    }

    /// The claim that the round is about.
    pub fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    pub(crate) const fn started(&self) -> Moment {
        self.started
    }

    pub(crate) const fn deadline(&self) -> Moment {
        self.deadline
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally::of(self.ballots.iter().map(|ballot| Vote::of(ballot.answer.as_ref())))
    }

    pub(crate) fn verdict(&self, quorum: Quorum) -> Verdict {
        self.tally().verdict(quorum)
    }

    /// The answers so far, by node.
    pub(crate) fn answers(&self) -> impl Iterator<Item = (NodeId, &Result<Answer, Fault>)> {
        NodeId::all(self.ballots.len())
            .zip(&self.ballots)
            .filter_map(|(node, ballot)| Some((node, ballot.answer.as_ref()?)))
    }

    /// The nodes to which the command was never sent.
    pub(crate) fn unsent(&self) -> Vec<NodeId> {
        let is_unsent = |answer: &Result<Answer, Fault>| {
            answer.as_ref().is_err_and(|fault| fault.kind().is_unsent())
        };
        self.answers().filter(|(_, answer)| is_unsent(answer)).map(|(node, _)| node).collect()
    }

    /// What every node did.
    pub fn votes(&self) -> impl Iterator<Item = NodeVote> + Clone {
        self.ballots.iter().map(|ballot| NodeVote {
            vote: Vote::of(ballot.answer.as_ref()),
            answer: ballot.answer.clone(),
            took: ballot.took,
        })
    }

    /// The same, for people and statistics.
    pub fn report(&self) -> RoundReport {
        let (started, stood_still) = (self.started, self.stood_still);
        RoundReport { started, stood_still, votes: self.votes().collect() }
    }
}

/// The votes of one round, in the order of the nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RoundReport {
    /// When the round started, by the lease clock.
    pub started: Moment,
    /// How long this process was paused or too busy meanwhile; zero if the round did not notice any
    /// of that.
    pub stood_still: Duration,
    /// One entry a node.
    pub votes: Vec<NodeVote>,
}

/// One node's vote.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeVote {
    /// The vote.
    pub vote: Vote,
    /// The answer or fault behind it; `None` while missing.
    pub answer: Option<Result<Answer, Fault>>,
    /// The time from the start of the round to the answer; zero while missing.
    pub took: Duration,
}

impl RoundReport {
    /// The report of a round that was never begun.
    pub(crate) const fn empty(now: Moment) -> Self {
        Self { started: now, stood_still: Duration::ZERO, votes: Vec::new() }
    }

    /// A count of the votes.
    pub fn tally(&self) -> Tally {
        Tally::of(self.votes.iter().map(|vote| vote.vote))
    }
}

/// A process that wakes this much later than planned was paused.
const STANDSTILL: Duration = Duration::from_millis(10);
/// How long it then takes to read the replies that have arrived.
const TO_READ: Duration = Duration::from_millis(5);

fn no_answer_in(waited: Duration) -> Fault {
    Fault::new(FaultKind::TimedOut, format!("no answer within {} ms", waited.as_millis()))
}
