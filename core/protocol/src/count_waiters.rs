//! Asks every node how many callers wait for a lock. Owns how the answers become one number; it is a hint, as queues change.

use std::sync::Arc;

use crate::command::{Action, Answer, Reply, Ticket};
use crate::error::ErrorKind;
use crate::identity::{Claim, NodeId};
use crate::machine::{Environment, Machine, Output};
use crate::quorum::Quorum;
use crate::round::{Round, RoundReport, Window};

/// Counts the places in the nodes' queues.
#[derive(Clone, Debug)]
pub struct CountWaiters {
    round: Round,
    quorum: Quorum,
    counts: Vec<u32>,
}

/// How a count ended.
#[derive(Clone, Debug)]
pub struct WaitersCounted {
    /// The middle one of the nodes' counts; the higher one of two.
    pub result: Result<u32, ErrorKind>,
    /// What every node did.
    pub report: RoundReport,
}

impl CountWaiters {
    /// Starts to count who waits for `claim`'s resources, with the time that one node may take.
    pub fn new(
        now: crate::Moment,
        claim: &Arc<Claim>,
        policy: &crate::Policy,
        quorum: Quorum,
    ) -> Self {
        let window = Window { start: now, deadline: now + policy.node_timeout() };
        let round = Round::new(Ticket(0), claim, Action::CountWaiters, window, quorum);
        Self { round, quorum, counts: Vec::new() }
    }

    fn outcome(&mut self) -> WaitersCounted {
        self.counts.sort_unstable();
        let enough = self.counts.len() >= self.quorum.size();
        let middle = self.counts.get(self.counts.len() / 2).copied().filter(|_| enough);
        WaitersCounted {
            result: middle.ok_or(ErrorKind::QuorumUnreachable),
            report: self.round.report(),
        }
    }
}

impl Machine for CountWaiters {
    type Outcome = WaitersCounted;

    fn poll(&mut self, _env: &mut dyn Environment) -> Output<WaitersCounted> {
        if let Some((node, command)) = self.round.poll_send() {
            return Output::Send(node, command);
        }
        let tally = self.round.tally();
        if tally.missing == 0 || self.counts.len() >= self.quorum.size() {
            return Output::Done(self.outcome());
        }
        Output::WakeAt(self.round.deadline())
    }

    fn handle_reply(&mut self, env: &mut dyn Environment, node: NodeId, reply: Reply) {
        let answer = reply.answer.clone();
        if self.round.handle_reply(env.now(), node, reply)
            && let Ok(Answer::Waiters(count)) = answer
        {
            self.counts.push(count);
        }
    }

    fn handle_timeout(&mut self, env: &mut dyn Environment) {
        self.round.handle_timeout(env.now());
    }

    fn cancel(&mut self, _env: &mut dyn Environment) {}
}
