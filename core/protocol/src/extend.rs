//! The extend machine: prolongs a lease by a quorum, before its validity ends, or says what is known.
//!
//! ```text
//!   Idle ──extend to all──▶ Voting ──quorum──────────▶ Finished (prolonged, gaps healed)
//!    ▲                        │ ├──refused by so many──▶ Finished (lost)
//!    │                        │ └──too many faults──▶ BackingOff ──validity over──▶ Finished (lost)
//!    └───── time has passed ──────────────────────────────┘   └──out of patience──▶ Finished (unknown)
//! ```
//!
//! Extending never makes a key. A node that has lost it says so, and is given it again (healed) only
//! after a quorum has proved that the lease never ended; so no later round can count a key that was
//! made while others may have held the lock.

mod rounds;

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::command::{Command, Reply};
use crate::error::ErrorKind;
use crate::identity::{Claim, FencingToken, NodeId};
use crate::lease::Lease;
use crate::machine::{Environment, Machine, Output};
use crate::policy::Policy;
use crate::quorum::{Quorum, Verdict};
use crate::round::{Round, RoundReport};
use crate::time::Moment;

/// Prolongs a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Extend {
    claim: Arc<Claim>,
    fencing_token: Option<FencingToken>,
    policy: Arc<Policy>,
    quorum: Quorum,
    started: Moment,
    /// The end of what is proven; no round starts or wins after it.
    until: Moment,
    /// When the last node will have forgotten the keys, whatever becomes of the rounds.
    keys_expire_by: Moment,
    give_up: Moment,
    next_ticket: u32,
    failures: u32,
    sends: VecDeque<(NodeId, Command)>,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Idle,
    Voting(Round),
    BackingOff {
        until: Moment,
        report: RoundReport,
    },
    /// Boxed, as it is larger than all the rest.
    Finished(Box<ExtendOutcome>),
}

/// How an extension ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExtendOutcome {
    /// The prolonged lease, or why there is none: [`ErrorKind::LeaseLost`] if the lease is proved to
    /// be over, [`ErrorKind::QuorumUnreachable`] if too few nodes answered to tell (what is left of
    /// the validity stays good).
    pub result: Result<Lease, ErrorKind>,
    /// Until when the lease may be trusted now; as before if it was not prolonged.
    pub until: Moment,
    /// How many rounds were begun.
    pub attempts: u32,
    /// How long it took.
    pub elapsed: Duration,
    /// The last round.
    pub last: LastRound,
}

/// The round that decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LastRound {
    /// It was won, or lost to refusals, and still takes late votes.
    Counting(Round),
    /// It has ended, and takes no more votes.
    Over(RoundReport),
}

impl LastRound {
    /// Its votes so far.
    pub fn report(self) -> RoundReport {
        match self {
            Self::Counting(round) => round.report(),
            Self::Over(report) => report,
        }
    }
}

/// What is to be prolonged.
#[derive(Clone, Debug)]
pub struct Extension {
    /// Whose keys.
    pub claim: Arc<Claim>,
    /// The token of the acquisition, kept.
    pub fencing_token: Option<FencingToken>,
    /// The end of the validity so far; [`Moment::FAR_FUTURE`] for a lease that is being taken over and
    /// about which nothing is known but what the nodes say.
    pub until: Moment,
    /// How long to go on when too few nodes answer; never beyond `until`.
    pub patience: Duration,
    /// The first of the tickets that the machine may use.
    pub first_ticket: u32,
}

impl Extend {
    /// Starts to prolong a lease by the ttl of `policy`, counted from now.
    pub fn new(
        now: Moment,
        extension: Extension,
        policy: impl Into<Arc<Policy>>,
        quorum: Quorum,
    ) -> Self {
        Self {
            claim: extension.claim,
            fencing_token: extension.fencing_token,
            policy: policy.into(),
            quorum,
            started: now,
            until: extension.until,
            keys_expire_by: now,
            give_up: now + extension.patience,
            next_ticket: extension.first_ticket,
            failures: 0,
            sends: VecDeque::new(),
            state: State::Idle,
        }
    }

    /// Until when the lease may be trusted while the machine is at work.
    pub const fn until(&self) -> Moment {
        self.until
    }

    /// Says that nodes may keep the keys until `keys_expire_by` because of what they were asked before:
    /// an extension by a shorter ttl does not change that.
    #[must_use]
    pub const fn outlasting(mut self, keys_expire_by: Moment) -> Self {
        self.keys_expire_by = keys_expire_by;
        self
    }

    /// When the last node will have forgotten the keys by itself, whatever becomes of the extension.
    pub const fn keys_expire_by(&self) -> Moment {
        self.keys_expire_by
    }

    /// A ticket that the machine has not used.
    pub(crate) const fn next_ticket(&self) -> u32 {
        self.next_ticket
    }

    /// The votes of the last round, between its end and the beginning of the next one.
    pub(crate) const fn failed_round(&self) -> Option<&RoundReport> {
        match &self.state {
            State::BackingOff { report, .. } => Some(report),
            State::Idle | State::Voting(_) | State::Finished(_) => None,
        }
    }

    pub(crate) const fn failures(&self) -> u32 {
        self.failures
    }

    /// The outcome, once nothing is left to send: what [`Machine::poll`] gives is a copy. The machine must
    /// not be used any more then.
    pub(crate) fn take_outcome(&mut self, env: &mut dyn Environment) -> Option<ExtendOutcome> {
        self.judge(env);
        match mem::replace(&mut self.state, State::Idle) {
            State::Finished(outcome) if self.sends.is_empty() => Some(*outcome),
            unfinished => {
                self.state = unfinished;
                None
            }
        }
    }

    pub(crate) const fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// The settings that it prolongs the lease by.
    pub(crate) fn into_policy(self) -> Arc<Policy> {
        self.policy
    }

    /// Gives up at once; nothing more is sent.
    pub(crate) fn cut_short(mut self, now: Moment) -> ExtendOutcome {
        self.finish_cancelled(now);
        match self.state {
            State::Finished(outcome) => *outcome,
            _ => unreachable!("it has finished"),
        }
    }

    fn judge(&mut self, env: &mut dyn Environment) {
        let State::Voting(round) = &self.state else {
            return;
        };
        let verdict = round.verdict(self.quorum);
        if verdict == Verdict::Pending {
            return;
        }
        let State::Voting(round) = mem::replace(&mut self.state, State::Idle) else {
            return;
        };
        let now = env.now();
        // A shorter ttl may be over although the lease is not: that round has proved nothing.
        let is_of_use = now < self.end_of(&round) || now >= self.until;
        if verdict == Verdict::Won && is_of_use {
            self.win(now, round);
        } else if self.quorum.is_blocked_by(round.tally().refused) {
            self.finish(now, Err(ErrorKind::LeaseLost), LastRound::Counting(round));
        } else {
            self.fail(env, round.report());
        }
    }
}

impl Machine for Extend {
    type Outcome = ExtendOutcome;

    fn poll(&mut self, env: &mut dyn Environment) -> Output<ExtendOutcome> {
        // Judged here and not at each reply: votes that came together count together.
        self.judge(env);
        if matches!(self.state, State::Idle) {
            self.begin_round(env.now());
        }
        if let Some((node, command)) = self.sends.pop_front() {
            return Output::Send(node, command);
        }
        match &mut self.state {
            State::Voting(round) => round.poll_send().map_or_else(
                || Output::WakeAt(round.deadline()),
                |(node, command)| Output::Send(node, command),
            ),
            State::BackingOff { until, .. } => Output::WakeAt(*until),
            State::Finished(outcome) => Output::Done((**outcome).clone()),
            State::Idle => Output::WakeAt(env.now()),
        }
    }

    fn handle_reply(&mut self, env: &mut dyn Environment, node: NodeId, reply: Reply) {
        if let State::Voting(round) = &mut self.state {
            round.handle_reply(env.now(), node, reply);
        }
    }

    fn handle_timeout(&mut self, env: &mut dyn Environment) {
        let now = env.now();
        match &mut self.state {
            State::Voting(round) => {
                round.handle_timeout(now);
                self.judge(env);
            }
            State::BackingOff { until, report } if now >= *until => {
                let report = report.clone();
                if now >= self.until {
                    self.finish_over(now, ErrorKind::LeaseLost, report);
                } else if now >= self.give_up {
                    self.finish_over(now, ErrorKind::QuorumUnreachable, report);
                } else {
                    self.state = State::Idle;
                }
            }
            State::Idle | State::BackingOff { .. } | State::Finished(_) => {}
        }
    }

    fn cancel(&mut self, env: &mut dyn Environment) {
        self.finish_cancelled(env.now());
    }
}
