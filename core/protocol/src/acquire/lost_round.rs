//! Decides what follows a lost round: its keys are taken back, and the acquisition tries again, at once or later, or
//! gives up. How it waits in queues is in `waiting`.

use std::sync::Arc;
use std::time::Duration;

use super::loss::Loss;
use super::{Acquire, State};
use crate::backoff;
use crate::command::Ticket;
use crate::error::ErrorKind;
use crate::machine::Environment;
use crate::round::{Round, RoundReport};
use crate::time::Moment;
use crate::withdraw::{Withdraw, Withdrawal};

impl Acquire {
    /// The round is lost: take its keys back from every node, then wait or give up.
    pub(super) fn lose_round(&mut self, env: &mut dyn Environment) {
        let Some(report) = self.withdraw(env) else {
            return;
        };
        let now = env.now();
        let loss = Loss::of(&report, self.quorum);
        let cut_short = now >= self.give_up;
        self.known = self.known.max(loss.floor);
        // A round that the caller's timeout cut off says less than the whole rounds before it.
        let kind = match self.last_loss {
            Some(earlier) if cut_short && loss.unanswered > 0 => earlier,
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
        let delay = self.retry_delay(env);
        let delay = loss
            .frees_in
            .map_or(delay, |frees_in| delay.min(frees_in.saturating_add(EXPIRY_GRAIN)));
        if self.waiter.is_some() && loss.kind == ErrorKind::NotAcquired {
            return self.wait_in_queue(env, delay, Some(&loss));
        }
        self.state = State::BackingOff { until: self.before_the_end(now, now + delay) };
    }

    pub(super) fn retry_delay(&self, env: &mut dyn Environment) -> Duration {
        let random = backoff::fraction(env.random());
        backoff::jittered(self.policy.retry_delay, self.policy.retry_jitter, random)
    }

    pub(super) fn try_again_uncounted(&mut self) {
        self.uncounted += 1;
        self.state = State::Idle;
    }

    /// A delay that would outlast the caller's timeout leaves room for one last try.
    pub(super) fn before_the_end(&self, now: Moment, until: Moment) -> Moment {
        if until < self.give_up {
            return until;
        }
        let last_try = self.give_up.before(LAST_TRY);
        if last_try > now { last_try } else { self.give_up }
    }

    pub(super) fn is_out_of_tries(&self) -> bool {
        let counted = self.attempts - self.uncounted - self.pushed;
        // Releases that others win again and again are no reason to try for ever.
        let is_over = |limit| counted > limit || self.uncounted > limit.saturating_add(MOST_VOID);
        self.policy.retry_limit.is_some_and(is_over)
    }

    fn is_out_of_patience(&self, now: Moment) -> bool {
        now >= self.patience_ends()
    }

    /// Waiting without any limit does not mean waiting for what will not come by itself: that ends then.
    pub(super) fn patience_ends(&self) -> Moment {
        let unlimited = self.policy.timeout.is_none() && self.policy.retry_limit.is_none();
        let since = self.stuck_since.filter(|_| unlimited);
        since.map_or(Moment::FAR_FUTURE, |since| since + self.policy.unreachable_timeout)
    }

    pub(super) fn finish(&mut self, kind: ErrorKind) {
        let timed_out = kind == ErrorKind::NotAcquired && self.policy.timeout.is_some();
        let kind = if timed_out { ErrorKind::AcquireTimedOut } else { kind };
        self.state = State::Finished(Err(kind));
    }

    /// Takes the keys of the round under way back. Every node is asked, also one that refused; only
    /// a node to which the grant never went is left out.
    pub(super) fn withdraw(&mut self, env: &mut dyn Environment) -> Option<RoundReport> {
        let grant = match &self.state {
            State::Voting(grant) | State::Raising { grant, .. } => grant,
            State::Finished(Ok(won)) => &won.round,
            State::Idle
            | State::BackingOff { .. }
            | State::Waiting(_)
            | State::Finished(Err(_)) => return None,
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
        )
        .calling(self.was_queued());
        let report = grant.report();
        self.next_ticket += 1;
        self.withdrawals.retain(|withdraw| !withdraw.is_done());
        self.withdrawals.push(withdraw);
        Some(report)
    }

    pub(super) fn keys_expire_by(&self, grant: &Round) -> Moment {
        let policy = &self.policy;
        policy.drift.keys_expire_by(policy.key_ttl(), grant.deadline())
    }

    pub(super) fn remember(&mut self, report: RoundReport) {
        if self.reports.len() == KEPT_REPORTS {
            self.reports.remove(0);
        }
        self.reports.push(report);
    }
}

/// Nodes expire at a grain of 1 ms; a try right at the edge would be refused once more.
const EXPIRY_GRAIN: Duration = Duration::from_millis(2);
/// How long before the caller's timeout the last try is made.
const LAST_TRY: Duration = Duration::from_millis(20);
/// How many rounds that this process was too late for are begun again at once: it may be too busy for any.
const MOST_VOID: u32 = 3;
/// How many lost rounds are kept for the report of a long wait.
const KEPT_REPORTS: usize = 16;
