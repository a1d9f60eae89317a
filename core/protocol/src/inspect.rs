//! The inspect machine: one round that only looks, to tell what the nodes say of a claim now.

use std::sync::Arc;
use std::time::Duration;

use crate::command::{Action, Answer, Reply, Ticket};
use crate::fault::Fault;
use crate::identity::{Claim, FencingToken, NodeId};
use crate::lease::Lease;
use crate::machine::{Machine, Output, Surroundings};
use crate::policy::Policy;
use crate::quorum::Quorum;
use crate::round::{Round, RoundReport, Window};
use crate::time::{Moment, Ttl};

/// Asks every node who holds the resources.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspect {
    policy: Policy,
    quorum: Quorum,
    round: Round,
    finished: bool,
}

/// What the nodes say of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspection {
    /// Whether the claim is held.
    pub standing: Standing,
    /// Whether so many nodes have a key of another that nobody else could get the lock now.
    pub held_by_another: bool,
    /// Whether a quorum of nodes has neither a key of the claim nor one of another.
    pub is_free: bool,
    /// The votes.
    pub report: RoundReport,
}

/// Whether a claim is held: three-valued, because silence proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// A quorum holds it, for as long as the lease says.
    Held(Lease),
    /// So many nodes do not hold it that another may have the lock.
    NotHeld,
    /// Too few nodes answered to tell.
    Unknown,
}

impl Inspect {
    /// Starts to look at `claim`.
    pub fn new(now: Moment, claim: &Arc<Claim>, policy: Policy, quorum: Quorum) -> Self {
        let window = Window { start: now, deadline: now + policy.node_timeout() };
        let round = Round::new(Ticket(0), claim, Action::Inspect, window, quorum);
        Self { policy, quorum, round, finished: false }
    }

    /// Silence is waited for until the deadline, as long as it could still tell: faults prove nothing.
    fn judge(&mut self) {
        let tally = self.round.tally();
        let others = self.others();
        let is_held = tally.granted >= self.quorum.size() && self.token_is_certain();
        let standing_is_certain = is_held || self.quorum.is_blocked_by(tally.refused);
        let others_are_certain =
            self.quorum.is_blocked_by(others) || !self.quorum.is_blocked_by(others + tally.missing);
        self.finished = tally.missing == 0 || (standing_is_certain && others_are_certain);
    }

    /// How many nodes have a key of another.
    fn others(&self) -> usize {
        let is_other = |answer: &Result<Answer, Fault>| matches!(answer, Ok(Answer::Theirs { .. }));
        self.round.answers().filter(|(_, answer)| is_other(answer)).count()
    }

    fn inspection(&self) -> Inspection {
        let report = self.round.report();
        let tally = report.tally();
        let standing = if self.quorum.is_blocked_by(tally.refused) {
            Standing::NotHeld
        } else {
            self.held().map_or(Standing::Unknown, Standing::Held)
        };
        let held_by_another = self.quorum.is_blocked_by(self.others());
        let is_free = tally.refused - self.others() >= self.quorum.size();
        Inspection { standing, held_by_another, is_free, report }
    }

    /// The fences of the nodes that hold the claim, highest first.
    fn fences(&self) -> Vec<Option<FencingToken>> {
        let ours = self.round.answers().filter_map(|(_, answer)| match answer {
            Ok(Answer::Ours { token, .. }) => Some(*token),
            _ => None,
        });
        let mut fences: Vec<_> = ours.collect();
        fences.sort_by(|a, b| b.cmp(a));
        fences
    }

    /// Whether a quorum knows the highest token seen.
    fn token_is_certain(&self) -> bool {
        let fences = self.fences();
        fences.get(self.quorum.size() - 1) == fences.first()
    }

    /// The lease that the answers prove: it lasts as long as a quorum's keys do, but for the lock-delay.
    fn held(&self) -> Option<Lease> {
        let mut left: Vec<Duration> = Vec::new();
        for (_, answer) in self.round.answers() {
            if let Ok(Answer::Ours { remaining, .. }) = answer {
                left.push(remaining.unwrap_or_default());
            }
        }
        left.sort_by(|a, b| b.cmp(a));
        let remaining = *left.get(self.quorum.size() - 1)?;
        let kept = Ttl::from_duration(remaining).ok()?;
        let ttl = kept.without(self.policy.lock_delay);
        let longest = Ttl::from_duration(*left.first()?).ok()?;
        Some(Lease {
            claim: Arc::clone(self.round.claim()),
            // A fence may have been raised by others since, who were refused or whose round came to nothing.
            // The next holder could get less than a single one; what a quorum knows, it cannot.
            fencing_token: self.fences().get(self.quorum.size() - 1).copied().flatten(),
            ttl,
            kept,
            until: self.policy.drift.end_of(ttl, self.round.started()),
            forgotten: self.policy.drift.forgotten_by(longest, self.round.deadline()),
            fence_retention: self.policy.fence_retention(),
            unsent: Vec::new(),
        })
    }
}

impl Machine for Inspect {
    type Outcome = Inspection;

    fn poll(&mut self, _env: &mut dyn Surroundings) -> Output<Inspection> {
        if let Some((node, command)) = self.round.poll_send() {
            Output::Send(node, command)
        } else if self.finished {
            Output::Done(self.inspection())
        } else {
            Output::WakeAt(self.round.deadline())
        }
    }

    fn handle_reply(&mut self, env: &mut dyn Surroundings, node: NodeId, reply: Reply) {
        self.round.handle_reply(env.now(), node, reply);
        self.judge();
    }

    fn handle_timeout(&mut self, env: &mut dyn Surroundings) {
        self.round.handle_timeout(env.now());
        self.judge();
    }

    fn cancel(&mut self, _env: &mut dyn Surroundings) {
        self.finished = true;
    }
}

/// The moment after which nothing that an inspection proved may be trusted.
impl Inspection {
    /// Until when the claim is proved to be held.
    pub const fn until(&self) -> Option<Moment> {
        match &self.standing {
            Standing::Held(lease) => Some(lease.until()),
            Standing::NotHeld | Standing::Unknown => None,
        }
    }
}
