//! The inspect machine: one round that reads what the nodes hold for a claim, and changes no lock
//! key. For a client that takes a lease over it also finds a fencing token, and writes it to a
//! quorum. Owns what the answers prove about the lease.

use std::sync::Arc;
use std::time::Duration;

use crate::acquire::token::{granted_token, join_raise};
use crate::command::{Action, Answer, Reply, Ticket};
use crate::fault::Fault;
use crate::identity::{Claim, FencingToken, NodeId};
use crate::lease::Lease;
use crate::machine::{Environment, Machine, Output};
use crate::policy::Policy;
use crate::quorum::{Quorum, Verdict};
use crate::round::{Round, RoundReport, Window};
use crate::time::{Moment, Ttl};

/// Asks every node whether it holds the keys of a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspect {
    policy: Policy,
    quorum: Quorum,
    round: Round,
    wants_token: bool,
    raising: Option<Raising>,
    finished: bool,
}

/// The token that was found, and the round that writes it to the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Raising {
    token: FencingToken,
    round: Round,
}

/// What the nodes say about a claim.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inspection {
    /// Whether the claim is held.
    pub standing: Standing,
    /// Whether enough nodes have another holder's key to keep everybody else from the lock now.
    pub held_by_another: bool,
    /// Whether a quorum of nodes has neither a key of the claim nor one of another.
    pub is_free: bool,
    /// The votes.
    pub report: RoundReport,
}

/// Whether a claim is held. There are three answers, because missing replies prove nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// A quorum holds it, for as long as the lease says.
    Held(Lease),
    /// Too few nodes hold it to keep another from the lock.
    NotHeld,
    /// Too few nodes answered to tell.
    Unknown,
}

impl Inspect {
    /// Starts to ask about `claim`.
    pub fn new(now: Moment, claim: &Arc<Claim>, policy: Policy, quorum: Quorum) -> Self {
        let window = Window { start: now, deadline: now + policy.node_timeout() };
        let round = Round::new(Ticket(0), claim, Action::Inspect, window, quorum);
        Self { policy, quorum, round, wants_token: false, raising: None, finished: false }
    }

    /// Also finds a fencing token, for a lease that is taken over: the highest fence that a quorum
    /// of the nodes with its keys knows. At least one of them was told the token of the acquisition
    /// and every token found before, so that it is no lower than those. It is written to a quorum
    /// of them before it is returned, so that every later holder's token is higher. If that fails,
    /// the lease is returned without a token.
    #[must_use]
    pub const fn with_token(mut self) -> Self {
        self.wants_token = true;
        self
    }

    /// Missing replies are waited for until the deadline while they could still decide: faults
    /// prove nothing.
    fn judge(&mut self, env: &dyn Environment) {
        let tally = self.round.tally();
        let others = self.others();
        let stands = tally.granted >= self.quorum.size();
        if stands && self.wants_token && self.raising.is_none() {
            self.raising = self.raise(env);
        }
        let is_raising = self.raising.as_ref().map(|it| it.round.verdict(self.quorum));
        if is_raising == Some(Verdict::Pending) {
            return;
        }
        let standing_is_certain = stands || self.quorum.is_blocked_by(tally.refused);
        let others_are_certain =
            self.quorum.is_blocked_by(others) || !self.quorum.is_blocked_by(others + tally.missing);
        self.finished = tally.missing == 0 || (standing_is_certain && others_are_certain);
    }

    /// How many nodes have another holder's key.
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

    /// Writes the highest fence of the nodes that hold the claim to a quorum of them. (It does no
    /// harm if a late grant, or another resource in the same bucket, has raised it further: tokens
    /// may only grow.)
    ///
    /// A node without a fence forgot it so long ago that the nodes' clocks have overtaken the
    /// token.
    fn raise(&self, env: &dyn Environment) -> Option<Raising> {
        let fences = || self.round.answers().filter_map(|(_, answer)| granted_token(answer));
        let highest = fences().max()?;
        let has_forgotten = fences().any(|token| token == FencingToken::default());
        let token =
            if has_forgotten { highest.max(FencingToken(env.nodes_micros()?)) } else { highest };
        let now = env.now();
        let action = Action::RaiseFence { token, retention: self.policy.fence_retention() };
        let window = Window { start: now, deadline: now + self.policy.node_timeout() };
        let mut round =
            Round::asking_none(Ticket(1), self.round.claim(), action, window, self.quorum);
        for (node, answer) in self.round.answers() {
            join(&mut round, node, answer, token);
        }
        Some(Raising { token, round })
    }

    /// The token that a quorum knows by now.
    fn token(&self) -> Option<FencingToken> {
        let raising = self.raising.as_ref()?;
        (raising.round.verdict(self.quorum) == Verdict::Won).then_some(raising.token)
    }

    /// The lease that the answers prove: it lasts as long as a quorum's keys do, less the
    /// lock-delay.
    fn held(&self) -> Option<Lease> {
        let mut left: Vec<Duration> = Vec::new();
        for (_, answer) in self.round.answers() {
            if let Ok(Answer::Ours { remaining, .. }) = answer {
                // A key without an end stands until somebody deletes it, and an extension gives it one.
                left.push(remaining.unwrap_or(self.policy.key_ttl().as_duration()));
            }
        }
        left.sort_by(|a, b| b.cmp(a));
        let remaining = *left.get(self.quorum.size() - 1)?;
        let key_ttl = Ttl::from_duration(remaining).ok()?;
        let ttl = key_ttl.without(self.policy.lock_delay);
        let longest = Ttl::from_duration(*left.first()?).ok()?;
        Some(Lease {
            claim: Arc::clone(self.round.claim()),
            fencing_token: self.token(),
            ttl,
            key_ttl,
            until: self.policy.drift.end_of(ttl, self.round.started()),
            keys_expire_by: self.policy.drift.keys_expire_by(longest, self.round.deadline()),
            fence_retention: self.policy.fence_retention(),
            unsent: Vec::new(),
        })
    }
}

impl Machine for Inspect {
    type Outcome = Inspection;

    fn poll(&mut self, _env: &mut dyn Environment) -> Output<Inspection> {
        let raise = self.raising.as_mut().map(|it| &mut it.round);
        let send = self.round.poll_send().or_else(|| raise?.poll_send());
        if let Some((node, command)) = send {
            Output::Send(node, command)
        } else if self.finished {
            Output::Done(self.inspection())
        } else {
            Output::WakeAt(self.raising.as_ref().map_or(&self.round, |it| &it.round).deadline())
        }
    }

    fn handle_reply(&mut self, env: &mut dyn Environment, node: NodeId, reply: Reply) {
        let now = env.now();
        let answer = reply.answer.clone();
        let is_look = self.round.handle_reply(now, node, reply.clone());
        if let Some(raising) = &mut self.raising {
            if is_look {
                join(&mut raising.round, node, &answer, raising.token);
            } else {
                raising.round.handle_reply(now, node, reply);
            }
        }
        self.judge(env);
    }

    fn handle_timeout(&mut self, env: &mut dyn Environment) {
        let now = env.now();
        self.round.handle_timeout(now);
        if let Some(raising) = &mut self.raising {
            raising.round.handle_timeout(now);
        }
        self.judge(env);
    }

    fn cancel(&mut self, _env: &mut dyn Environment) {
        self.finished = true;
    }
}

/// Writes the token to a node that holds the claim. For several resources a node tells only the
/// highest fence, which says nothing of the others: then it is asked in any case.
fn join<F>(round: &mut Round, node: NodeId, answer: &Result<Answer, F>, token: FencingToken) {
    if round.claim().resources.as_slice().len() == 1 {
        join_raise(round, node, answer, token);
    } else if granted_token(answer).is_some() {
        round.ask(node);
    }
}

/// The end of what an inspection proved.
impl Inspection {
    /// Until when the claim is proved to be held.
    pub const fn until(&self) -> Option<Moment> {
        match &self.standing {
            Standing::Held(lease) => Some(lease.until()),
            Standing::NotHeld | Standing::Unknown => None,
        }
    }
}
