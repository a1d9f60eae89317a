//! The rounds of an extension. Owns how one begins, is won or fails, and how the extension ends.

use std::sync::Arc;
use std::time::Duration;

use super::{Extend, ExtendOutcome, LastRound, State};
use crate::backoff;
use crate::command::{Action, Answer, Ticket};
use crate::error::ErrorKind;
use crate::heal::heal;
use crate::lease::Lease;
use crate::machine::Environment;
use crate::round::{Round, RoundReport, Window};
use crate::time::Moment;

impl Extend {
    pub(super) fn begin_round(&mut self, now: Moment) {
        if now >= self.until {
            return self.finish_over(now, ErrorKind::LeaseLost, RoundReport::empty(now));
        }
        let deadline = (now + self.policy.node_timeout()).min(self.until);
        let window = Window { start: now, deadline };
        let action = Action::Extend { key_ttl: self.policy.key_ttl(), may_shorten: None };
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.expect_keys_of(deadline);
        self.state = State::Voting(Round::new(ticket, &self.claim, action, window, self.quorum));
    }

    pub(super) fn win(&mut self, now: Moment, round: Round) {
        let until = self.end_of(&round);
        // The verdict came after the old validity: the lease was over in between.
        if now >= self.until {
            return self.finish_over(now, ErrorKind::LeaseLost, round.report());
        }
        self.until = until;
        let by = until.min(now + self.policy.node_timeout());
        self.expect_keys_of(by);
        let lease = Lease {
            claim: Arc::clone(&self.claim),
            fencing_token: self.fencing_token,
            ttl: self.policy.ttl,
            key_ttl: self.policy.key_ttl(),
            until,
            keys_expire_by: self.keys_expire_by,
            fence_retention: self.policy.fence_retention(),
            unsent: Vec::new(),
        };
        self.sends.extend(
            round
                .answers()
                .filter_map(|(node, answer)| matches!(answer, Ok(Answer::Absent)).then_some(node))
                .flat_map(|node| heal(node, &lease, by)),
        );
        self.finish(now, Ok(lease), LastRound::Counting(round));
    }

    /// The end of the validity that the round proves if it is won.
    pub(super) fn end_of(&self, round: &Round) -> Moment {
        self.policy.drift.end_of(self.policy.ttl, round.started())
    }

    /// Nodes are asked to keep the keys, at `asked` at the latest.
    pub(super) fn expect_keys_of(&mut self, asked: Moment) {
        let keys_expire_by = self.policy.drift.keys_expire_by(self.policy.key_ttl(), asked);
        self.keys_expire_by = self.keys_expire_by.max(keys_expire_by);
    }

    /// Too many faults: nothing is proved either way, so try again while the validity lasts.
    pub(super) fn fail(&mut self, env: &mut dyn Environment, report: RoundReport) {
        let now = env.now();
        if now >= self.until {
            return self.finish_over(now, ErrorKind::LeaseLost, report);
        }
        if now >= self.give_up {
            return self.finish_over(now, ErrorKind::QuorumUnreachable, report);
        }
        let delay = backoff::doubled(FIRST_RETRY, self.failures, LONGEST_RETRY);
        let delay = backoff::jittered(delay, delay / 2, backoff::fraction(env.random()));
        self.failures += 1;
        // Nodes may be back before the validity is over: there is another try in what is left of it.
        let delay = delay.min((self.until.since(now) / 2).max(FIRST_RETRY));
        let until = (now + delay).min(self.until).min(self.give_up);
        self.state = State::BackingOff { until, report };
    }

    pub(super) fn finish_over(&mut self, now: Moment, kind: ErrorKind, report: RoundReport) {
        self.finish(now, Err(kind), LastRound::Over(report));
    }

    pub(super) fn finish(
        &mut self,
        now: Moment,
        result: Result<Lease, ErrorKind>,
        last: LastRound,
    ) {
        let attempts = self.failures + 1;
        let elapsed = now.since(self.started);
        let until = self.until;
        let outcome = ExtendOutcome { result, until, attempts, elapsed, last };
        self.state = State::Finished(Box::new(outcome));
    }

    pub(super) fn finish_cancelled(&mut self, now: Moment) {
        let report = match &self.state {
            State::Voting(round) => round.report(),
            State::BackingOff { report, .. } => report.clone(),
            State::Idle | State::Finished(_) => RoundReport::empty(now),
        };
        self.finish_over(now, ErrorKind::Cancelled, report);
    }
}

const FIRST_RETRY: Duration = Duration::from_millis(20);
const LONGEST_RETRY: Duration = Duration::from_millis(500);
