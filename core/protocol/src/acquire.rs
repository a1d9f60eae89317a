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

use crate::backoff;
use crate::command::{Action, Fence, Reply, Ticket};
use crate::error::ErrorKind;
use crate::identity::{Claim, FencingToken, HolderId, NodeId, Resources};
use crate::lease::Lease;
use crate::machine::{Environment, Machine, Output};
use crate::policy::Policy;
use crate::quorum::{Quorum, Verdict};
use crate::round::{Round, RoundReport, Window};
use crate::time::Moment;
use crate::withdraw::{Withdraw, Withdrawal};

mod loss;
pub(crate) mod token;

use loss::Loss;
use token::{granted_token, join_raise, proposal};

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

    /// A quorum granted: the token must be known to a quorum before the lease is handed out.
    fn settle_token(&mut self, env: &mut dyn Environment) {
        let State::Voting(grant) = &self.state else {
            return;
        };
        let granted = || grant.answers().filter_map(|(_, answer)| granted_token(answer));
        let token = granted().max().unwrap_or_default();
        let is_known = granted().filter(|own| *own == token).count() >= self.quorum.size();
        if !self.policy.fencing || is_known {
            return self.accept(env);
        }
        let action = Action::RaiseFence { token, retention: self.policy.fence_retention() };
        let window = self.window(env.now());
        let ticket = Ticket(self.next_ticket);
        let mut raise = Round::silent(ticket, grant.claim(), action, window, self.quorum);
        for (node, answer) in grant.answers() {
            join_raise(&mut raise, node, answer, token);
        }
        if let Some(grant) = self.take_grant() {
            self.next_ticket += 1;
            self.state = State::Raising { grant, raise, token };
        }
    }

    fn accept(&mut self, env: &mut dyn Environment) {
        let (State::Voting(grant) | State::Raising { grant, .. }) = &self.state else {
            return;
        };
        let until = self.policy.drift.end_of(self.policy.ttl, grant.started());
        if env.now() >= until {
            return self.lose_round(env);
        }
        let granted = || grant.answers().filter_map(|(_, answer)| granted_token(answer));
        let lease = Lease {
            claim: Arc::clone(grant.claim()),
            fencing_token: match &self.state {
                State::Raising { token, .. } => Some(*token),
                _ if self.policy.fencing => granted().max(),
                _ => None,
            },
            ttl: self.policy.ttl,
            key_ttl: self.policy.key_ttl(),
            until,
            keys_expire_by: self.keys_expire_by(grant),
            fence_retention: self.policy.fence_retention(),
            unsent: grant.unsent(),
        };
        if let Some(round) = self.take_grant() {
            self.state = State::Finished(Ok(Won { lease, round }));
        }
    }

    /// Takes the grant under way out, for another state to hold; `None` if none is under way.
    fn take_grant(&mut self) -> Option<Round> {
        match std::mem::replace(&mut self.state, State::Idle) {
            State::Voting(grant) | State::Raising { grant, .. } => Some(grant),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// The round is lost: take its keys back from every node, then wait or give up.
    fn lose_round(&mut self, env: &mut dyn Environment) {
        let Some(report) = self.withdraw(env) else {
            return;
        };
        let now = env.now();
        let loss = Loss::of(&report, self.quorum);
        let cut_short = now >= self.give_up;
        self.known = self.known.max(loss.floor);
        // A round that the caller's timeout cut off says less than the whole rounds before it.
        let kind = match self.last_loss {
            Some(earlier) if cut_short && loss.unheard > 0 => earlier,
            _ => {
                self.remember(report);
                loss.kind
            }
        };
        self.last_loss = Some(kind);
        if loss.void && !cut_short && self.void < MOST_VOID {
            self.void += 1;
            return self.try_again_uncounted();
        }
        self.stuck_since = loss.is_stuck().then(|| self.stuck_since.unwrap_or(now));
        if cut_short || loss.permanent || self.is_out_of_tries() || self.is_out_of_patience(now) {
            return self.finish(kind);
        }
        if std::mem::take(&mut self.is_freed) {
            return self.try_again_uncounted();
        }
        let random = backoff::fraction(env.random());
        let delay = backoff::jittered(self.policy.retry_delay, self.policy.retry_jitter, random);
        let delay = loss
            .frees_in
            .map_or(delay, |frees_in| delay.min(frees_in.saturating_add(EXPIRY_GRAIN)));
        self.state = State::BackingOff { until: self.before_the_end(now, now + delay) };
    }

    fn try_again_uncounted(&mut self) {
        self.uncounted += 1;
        self.state = State::Idle;
    }

    /// A delay that would outlast the caller's timeout leaves room for one last try.
    fn before_the_end(&self, now: Moment, until: Moment) -> Moment {
        if until < self.give_up {
            return until;
        }
        let last_try = self.give_up.before(LAST_TRY);
        if last_try > now { last_try } else { self.give_up }
    }

    fn is_out_of_tries(&self) -> bool {
        let counted = self.attempts - self.uncounted;
        // Somebody who frees the lock for others again and again is no reason to try for ever.
        let is_over = |limit| counted > limit || self.uncounted > limit.saturating_add(MOST_VOID);
        self.policy.retry_limit.is_some_and(is_over)
    }

    /// Waiting without any limit does not mean waiting for what will not come by itself.
    fn is_out_of_patience(&self, now: Moment) -> bool {
        let unlimited = self.policy.timeout.is_none() && self.policy.retry_limit.is_none();
        let patience = self.policy.unreachable_timeout;
        unlimited && self.stuck_since.is_some_and(|since| now.since(since) >= patience)
    }

    fn finish(&mut self, kind: ErrorKind) {
        let timed_out = kind == ErrorKind::NotAcquired && self.policy.timeout.is_some();
        let kind = if timed_out { ErrorKind::AcquireTimedOut } else { kind };
        self.state = State::Finished(Err(kind));
    }

    /// Takes the keys of the round under way back. Every node is asked, also one that refused; only
    /// a node to which the grant never went is left out.
    fn withdraw(&mut self, env: &mut dyn Environment) -> Option<RoundReport> {
        let grant = match &self.state {
            State::Voting(grant) | State::Raising { grant, .. } => grant,
            State::Finished(Ok(won)) => &won.round,
            State::Idle | State::BackingOff { .. } | State::Finished(Err(_)) => return None,
        };
        let withdraw = Withdraw::new(
            env.now(),
            Withdrawal {
                ticket: Ticket(self.next_ticket),
                claim: Arc::clone(grant.claim()),
                quorum: self.quorum,
                keys_expire_by: self.keys_expire_by(grant),
                unsent: grant.unsent(),
                node_timeout: self.policy.node_timeout(),
            },
        );
        let report = grant.report();
        self.next_ticket += 1;
        self.withdrawals.retain(|withdraw| !withdraw.is_done());
        self.withdrawals.push(withdraw);
        Some(report)
    }

    fn keys_expire_by(&self, grant: &Round) -> Moment {
        let policy = &self.policy;
        policy.drift.keys_expire_by(policy.key_ttl(), grant.deadline())
    }

    fn remember(&mut self, report: RoundReport) {
        if self.reports.len() == KEPT_REPORTS {
            self.reports.remove(0);
        }
        self.reports.push(report);
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

/// Nodes expire at a grain of 1 ms; a try right at the edge would be refused once more.
const EXPIRY_GRAIN: Duration = Duration::from_millis(2);
/// How long before the caller's timeout the last try is made.
const LAST_TRY: Duration = Duration::from_millis(20);
/// How many rounds are begun anew at once that this process was too late for: it may be too busy for any.
const MOST_VOID: u32 = 3;
/// How many lost rounds are kept for the report of a long wait.
const KEPT_REPORTS: usize = 16;
