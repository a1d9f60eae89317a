//! The acquire machine: rounds until one is won, each lost one withdrawn, with a delay in between. Owns when a round
//! begins and how the acquisition ends; knows no node's transport.
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
//! Instead of backing off, an acquisition with a name for the nodes' queues waits in them ([`waiting`]).
//!
//! A round draws a fresh holder id. Revokes of lost rounds are sent at once and go on beside the
//! later rounds; what is left of them at the end is handed to the caller.

use crate::command::Reply;
use crate::error::ErrorKind;
use crate::identity::{FencingToken, NodeId, Resources};
use crate::machine::{Environment, Machine, Output};
use crate::place::Waiter;
use crate::policy::Policy;
use crate::queue::{News, WakeCause};
use crate::quorum::{Quorum, Verdict};
use crate::round::{Round, RoundReport};
use crate::time::Moment;
use crate::withdraw::Withdraw;

mod begin;
mod loss;
mod lost_round;
mod outcome;
mod progress;
pub(crate) mod token;
mod waiting;
mod won_round;

pub use outcome::{AcquireOutcome, Won};
use token::join_raise;
use waiting::{Places, Waiting};

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
    /// Rounds that are not counted as tries.
    uncounted: u32,
    /// Those of the uncounted rounds that this process was too late for.
    void: u32,
    /// The lock may have become free while a round was under way.
    is_freed: bool,
    /// Rounds that nodes' news led to, which a limit of tries does not count.
    pushed: u32,
    /// When the next counted round is due.
    next_counted: Moment,
    /// Its name in the nodes' queues; `None` if it does not wait in them.
    waiter: Option<Waiter>,
    queues_first: bool,
    /// What ended the last wait.
    woken_by: WakeCause,
    places: Option<Box<Places>>,
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
    Raising {
        grant: Round,
        raise: Round,
        token: FencingToken,
    },
    BackingOff {
        until: Moment,
    },
    /// In a box: most acquisitions never wait.
    Waiting(Box<Waiting>),
    Finished(Result<Won, ErrorKind>),
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
            pushed: 0,
            next_counted: now,
            waiter: None,
            queues_first: policy.fair,
            woken_by: WakeCause::Timer,
            places: None,
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
        self.queue_first()
    }

    /// Takes a place in the nodes' queues before the first round (with [`Self::queued_as`]): others are likely to wait.
    #[must_use]
    pub const fn queue_first(mut self) -> Self {
        self.queues_first = true;
        self
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
            State::Waiting(_) => self.judge_wait(env.now()),
            State::Idle | State::BackingOff { .. } | State::Finished(_) => {}
        }
    }

    fn wake_at(&self) -> Moment {
        let own = match &self.state {
            State::Voting(round) | State::Raising { raise: round, .. } => round.deadline(),
            State::BackingOff { until } => *until,
            State::Waiting(waiting) => self.wait_ends(waiting),
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
            was_waited_for: self.places.is_some(),
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
            if self.begins_in_queue() {
                let delay = self.retry_delay(env);
                self.wait_in_queue(env, delay, None);
            } else {
                self.begin_round(env);
            }
        }
        if let Some((node, command)) =
            self.withdrawals.iter_mut().find_map(|each| each.poll_send(now))
        {
            return Output::Send(node, command);
        }
        let send = match &mut self.state {
            State::Voting(round) | State::Raising { raise: round, .. } => round.poll_send(),
            State::Waiting(waiting) => {
                self.places.as_mut().and_then(|places| waiting.poll_send(places))
            }
            State::Finished(result) => {
                if let Some((node, command)) =
                    self.places.as_mut().and_then(|places| places.poll_leave(self.next_ticket))
                {
                    return Output::Send(node, command);
                }
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
            State::Waiting(_) => self.handle_look(now, node, &reply),
            State::Idle | State::BackingOff { .. } | State::Finished(_) => {}
        }
    }

    fn handle_news(&mut self, env: &mut dyn Environment, node: NodeId, news: News) {
        self.take_news(env, node, news);
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
                self.woken_by = WakeCause::Timer;
                if now >= self.give_up {
                    self.finish(self.last_loss.unwrap_or(ErrorKind::NotAcquired));
                } else {
                    self.state = State::Idle;
                }
            }
            State::Waiting(_) => self.handle_wait_timeout(env),
            State::Idle | State::BackingOff { .. } | State::Finished(_) => {}
        }
    }

    /// Ends a wait, and lets a round that may have come too early be followed at once.
    fn handle_freed(&mut self) {
        match self.state {
            State::BackingOff { .. } | State::Waiting(_) => {
                self.woken_by = WakeCause::Push;
                self.try_again_uncounted();
            }
            State::Voting(_) | State::Raising { .. } => self.is_freed = true,
            State::Idle | State::Finished(_) => {}
        }
    }

    fn cancel(&mut self, env: &mut dyn Environment) {
        self.withdraw(env);
        self.state = State::Finished(Err(ErrorKind::Cancelled));
    }
}
