//! The acquire machine: rounds until one is won, each lost one withdrawn, with a delay in between.
//!
//! ```text
//!          ┌────────────────── time has passed ─────────────────┐
//!          ▼                                                    │
//!        Idle ──grant to all──▶ Voting ──lost──▶ (withdraw) ─▶ BackingOff
//!                                 │                  ▲          │
//!                                 │ quorum           │ lost     │ no more tries
//!                                 ▼                  │          ▼
//!                      tokens differ? ──yes──▶ Raising ──▶ Finished
//!                                 └──no────────────────────────▲
//! ```
//!
//! A round draws a fresh holder id. Revokes of lost rounds are sent at once and go on beside the
//! later rounds; what is left of them at the end is handed to the caller.

use std::sync::Arc;
use std::time::Duration;

use crate::command::{Action, Fence, Reply, Ticket};
use crate::error::ErrorKind;
use crate::identity::{Claim, FencingToken, HolderId, NodeId, Resources};
use crate::lease::Lease;
use crate::machine::{Environment, Machine, Output};
use crate::policy::Policy;
use crate::quorum::{Quorum, Verdict};
use crate::round::{Round, RoundReport, Window};
use crate::time::Moment;
use crate::withdraw::Withdraw;

mod loss;
mod lost_round;
mod progress;
pub(crate) mod token;
mod won_round;

use token::{join_raise, proposal};

/// Acquires a lease.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Acquire {
    resources: Resources,
    policy: Policy,
    quorum: Quorum,
    started: Moment,
    give_up: Moment,
    known: FencingToken,
    next_ticket: u32,
    attempts: u32,
    /// Rounds of these that are no tries,
    uncounted: u32,
    /// and of those the ones that this process was too late for.
    void: u32,
    /// What is waited for may have become free while a round was under way.
    is_freed: bool,
    state: State,
    withdrawals: Vec<Withdraw>,
    reports: Vec<RoundReport>,
    last_loss: Option<ErrorKind>,
    stuck_since: Option<Moment>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Idle,
    Voting(Round),
    Raising { grant: Round, raise: Round, token: FencingToken },
    BackingOff { until: Moment },
    Finished(Result<Won, ErrorKind>),
}

/// A round that was won.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Won {
    /// What it gives.
    pub lease: Lease,
    /// The round, which still takes late votes.
    pub round: Round,
}

/// How an acquisition ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcquireOutcome {
    /// The lease, or why there is none.
    pub result: Result<Won, ErrorKind>,
    /// How many rounds were begun.
    pub attempts: u32,
    /// How long it took, by the lease clock.
    pub elapsed: Duration,
    /// The latest rounds that were lost, oldest first.
    pub lost_rounds: Vec<RoundReport>,
    /// Keys that are still to be taken back from nodes that have not answered.
    pub withdrawals: Vec<Withdraw>,
}

impl Acquire {
    /// Starts to acquire `resources` at `now`. `known` is the highest fencing token that the client
    /// has seen, as a hint.
    pub fn new(
        now: Moment,
        resources: Resources,
        policy: Policy,
        quorum: Quorum,
        known: FencingToken,
    ) -> Self {
        Self {
            resources,
            policy,
            quorum,
            started: now,
            give_up: policy.timeout.map_or(Moment::FAR_FUTURE, |timeout| now + timeout),
            known,
            next_ticket: 0,
            attempts: 0,
            uncounted: 0,
            void: 0,
            is_freed: false,
            state: State::Idle,
            withdrawals: Vec::new(),
            reports: Vec::new(),
            last_loss: None,
            stuck_since: None,
        }
    }

    /// Another caller has just tried, and this is what it came to: it says more than a round that the caller's timeout
    /// cuts off.
    #[must_use]
    pub const fn after(mut self, loss: ErrorKind) -> Self {
        self.last_loss = Some(loss);
        self
    }

    fn begin_round(&mut self, env: &mut dyn Environment) {
        let start = env.now();
        let holder = HolderId::fresh(env.random());
        let claim = Arc::new(Claim { resources: self.resources.clone(), holder });
        let fence = self.policy.fencing.then(|| Fence {
            proposal: proposal(env, self.known),
            retention: self.policy.fence_retention(),
        });
        let action = Action::Grant { key_ttl: self.policy.key_ttl(), fence };
        let window = self.window(start);
        self.attempts = self.attempts.saturating_add(1);
        let ticket = self.ticket();
        self.state = State::Voting(Round::new(ticket, &claim, action, window, self.quorum));
    }

    fn judge(&mut self, env: &mut dyn Environment) {
        match &self.state {
            State::Voting(round) => match round.verdict(self.quorum) {
                Verdict::Pending => {}
                Verdict::Lost => self.lose_round(env),
                Verdict::Won => self.settle_token(env),
            },
            State::Raising { raise, .. } => match raise.verdict(self.quorum) {
                Verdict::Pending => {}
                Verdict::Lost => self.lose_round(env),
                Verdict::Won => self.accept(env),
            },
            State::Idle | State::BackingOff { .. } | State::Finished(_) => {}
        }
    }

    fn window(&self, start: Moment) -> Window {
        let deadline = (start + self.policy.node_timeout()).min(self.give_up);
        Window { start, deadline }
    }

    const fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket - 1)
    }

    fn wake_at(&self) -> Moment {
        let own = match &self.state {
            State::Voting(round) | State::Raising { raise: round, .. } => round.deadline(),
            State::BackingOff { until } => *until,
            State::Idle | State::Finished(_) => Moment::FAR_FUTURE,
        };
        self.withdrawals.iter().map(Withdraw::wake_at).fold(own, Moment::min)
    }

    fn outcome(&mut self, now: Moment, result: Result<Won, ErrorKind>) -> AcquireOutcome {
        self.withdrawals.retain(|withdraw| !withdraw.is_done());
        AcquireOutcome {
            result,
            attempts: self.attempts,
            elapsed: now.since(self.started),
            lost_rounds: std::mem::take(&mut self.reports),
            withdrawals: std::mem::take(&mut self.withdrawals),
        }
    }
}

impl Machine for Acquire {
    type Outcome = AcquireOutcome;

    fn poll(&mut self, env: &mut dyn Environment) -> Output<AcquireOutcome> {
        let now = env.now();
        // Judged here and not at each reply: votes that came together count together.
        self.judge(env);
        if matches!(self.state, State::Idle) {
            self.begin_round(env);
        }
        if let Some((node, command)) =
            self.withdrawals.iter_mut().find_map(|each| each.poll_send(now))
        {
            return Output::Send(node, command);
        }
        let send = match &mut self.state {
            State::Voting(round) | State::Raising { raise: round, .. } => round.poll_send(),
            State::Finished(result) => {
                let result = std::mem::replace(result, Err(ErrorKind::Closed));
                return Output::Done(self.outcome(now, result));
            }
            State::Idle | State::BackingOff { .. } => None,
        };
        send.map_or_else(
            || Output::WakeAt(self.wake_at()),
            |(node, command)| Output::Send(node, command),
        )
    }

    fn handle_reply(&mut self, env: &mut dyn Environment, node: NodeId, reply: Reply) {
        let now = env.now();
        if let Some(withdraw) =
            self.withdrawals.iter_mut().find(|each| each.ticket() == reply.ticket)
        {
            return withdraw.reply(now, node, reply);
        }
        match &mut self.state {
            State::Voting(round) => {
                round.handle_reply(now, node, reply);
            }
            State::Raising { grant, raise, token } => {
                let answer = reply.answer.clone();
                if grant.handle_reply(now, node, reply.clone()) {
                    join_raise(raise, node, &answer, *token);
                } else {
                    raise.handle_reply(now, node, reply);
                }
            }
            State::Idle | State::BackingOff { .. } | State::Finished(_) => {}
        }
    }

    fn handle_timeout(&mut self, env: &mut dyn Environment) {
        let now = env.now();
        for withdraw in &mut self.withdrawals {
            withdraw.expire(now);
        }
        match &mut self.state {
            State::Voting(round) | State::Raising { raise: round, .. } => {
                if now >= self.give_up {
                    round.note_standstill(now, self.give_up);
                    return self.lose_round(env);
                }
                round.handle_timeout(now);
                self.judge(env);
            }
            State::BackingOff { until } if now >= *until => {
                if now >= self.give_up {
                    self.finish(self.last_loss.unwrap_or(ErrorKind::NotAcquired));
                } else {
                    self.state = State::Idle;
                }
            }
            State::Idle | State::BackingOff { .. } | State::Finished(_) => {}
        }
    }

    /// Ends a wait, and lets a round that may have come too early be followed at once.
    fn handle_freed(&mut self) {
        match self.state {
            State::BackingOff { .. } => self.try_again_uncounted(),
            State::Voting(_) | State::Raising { .. } => self.is_freed = true,
            State::Idle | State::Finished(_) => {}
        }
    }

    fn cancel(&mut self, env: &mut dyn Environment) {
        self.withdraw(env);
        self.state = State::Finished(Err(ErrorKind::Cancelled));
    }
}
