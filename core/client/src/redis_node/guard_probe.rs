//! What a connection does for the guards: when its node is looked at, what the looks have shown, and
//! which grants that lets through. Owns the gate; the calls are sent by the link.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    Answer, ClockReading, Fault, FaultKind, Fence, Guards, Moment, Relied, Ruling, Writing,
};
use redis::{Cmd, Value};

use super::batch::{Batch, Request};
use super::facts::Facts;
use super::gate::{self, Gate};
use crate::clock::{self, ToldClock};
use crate::sentry::Sentry;

/// The guards' side of a connection.
pub(super) struct GuardProbe {
    /// `None` for a node of its own, without a manager.
    sentry: Option<Sentry>,
    gate: Gate,
    /// When the node is to be looked at again.
    probe_at: Moment,
    state: State,
    /// How often in a row the canary was written.
    writings: u8,
    /// When the last look was sent whose ruling is known.
    probed_at: Option<Moment>,
    clock: Option<Clock>,
    /// Where it is told.
    told_clock: Arc<ToldClock>,
}

/// How far a node's clock lies ahead of the lease clock, in microseconds, at least, and when that was heard.
#[derive(Clone, Copy)]
struct Clock {
    ahead: i64,
    heard: Moment,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Resting,
    /// A look is out; one at a time, as what the last one wrote is to be seen first.
    Probing,
    /// Another was asked for meanwhile.
    ProbingAgain,
}

impl GuardProbe {
    pub(super) fn new(sentry: Option<Sentry>, told_clock: Arc<ToldClock>) -> Self {
        let looks = sentry.as_ref().is_some_and(Sentry::looks);
        let gate = if looks { Gate::Undecided } else { Gate::unguarded() };
        let (probe_at, state) = (Moment::FAR_FUTURE, State::Resting);
        Self {
            sentry,
            gate,
            probe_at,
            state,
            writings: 0,
            probed_at: None,
            clock: None,
            told_clock,
        }
    }

    /// Whether the node is looked at, now and then.
    fn looks(&self) -> bool {
        self.sentry.as_ref().is_some_and(Sentry::looks)
    }

    /// Whether it matters who the server is.
    pub(super) fn is_on(&self) -> bool {
        self.sentry.is_some()
    }

    /// The server has said who it is.
    pub(super) fn handle_facts(&self, facts: &Facts) {
        if let Some(sentry) = &self.sentry {
            sentry.handle_identity(facts.identity());
        }
    }

    /// Why the node has no vote of its own; `None` if it has.
    pub(super) fn dependence(&self) -> Option<Fault> {
        self.sentry.as_ref()?.dependence()
    }

    /// Why a command is not sent; `None` if it is.
    pub(super) fn refusal(&self, batch: &Batch) -> Option<Fault> {
        let kept = batch.requests().iter().filter_map(Request::grant_keeps).max();
        // A double would say of an extension, too, what the other address says: one server, two votes.
        self.dependence().or_else(|| self.gate.refusal(kept?))
    }

    /// Whether the node is to be looked at ahead of commands that take or prolong locks, as they count only if the
    /// node knows what other clients must know of them.
    pub(super) fn wants_probe_ahead(&self, batch: &Batch) -> bool {
        self.looks()
            && !self.is_probing()
            && batch.requests().iter().any(|it| !self.vouches(it, clock::now()))
    }

    /// Whether the node was looked at lately, and knows of locks as long as that of a command sent at `sent`.
    fn vouches(&self, request: &Request, sent: Moment) -> bool {
        let Some(keep) = request.keeps().filter(|_| self.looks()) else {
            return true;
        };
        let is_recent = self.probed_at.is_some_and(|at| sent.since(at) < PROBED_WITHIN);
        let sentry = self.sentry.as_ref();
        is_recent && (keep <= Guards::FLOOR || sentry.is_some_and(|it| it.covers(keep)))
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What must stand in the canary key for a grant; `None` if nothing is guarded.
    pub(super) fn relied(&self) -> Option<&Relied> {
        self.gate.relied().filter(|_| self.looks())
    }

    /// Whether the node would grant `micros` as it is proposed, by its own clock, as far as that is known: who is far
    /// ahead must not raise a fence for ever.
    pub(super) fn allows(&self, micros: u64) -> bool {
        let now = clock::now();
        self.clock.filter(|clock| now.since(clock.heard) < CLOCK_GOOD_FOR).is_some_and(|clock| {
            ToldClock::ahead(micros, now).abs_diff(clock.ahead) <= Fence::SLACK_MICROS
        })
    }

    /// The node's clock has shown `micros`. What comes late says less than what was heard shortly before.
    pub(super) fn note_clock(&mut self, micros: u64) {
        let heard = clock::now();
        let ahead = ToldClock::ahead(micros, heard);
        let is_worse = |known: Clock| {
            (1..LATE_MICROS).contains(&known.ahead.saturating_sub(ahead))
                && heard.since(known.heard) < CLOCK_BEST_FOR
        };
        if !self.clock.is_some_and(is_worse) {
            self.clock = Some(Clock { ahead, heard });
            self.told_clock.tell(ahead);
        }
    }

    /// The canary that stood behind a grant was beaten so often.
    pub(super) fn note_count(&mut self, count: u64) {
        self.gate.note_count(count);
    }

    /// Whether a look is out.
    pub(super) fn is_probing(&self) -> bool {
        self.state != State::Resting
    }

    /// When to look again, if nothing happens before.
    pub(super) fn probe_at(&self) -> Moment {
        if self.is_probing() { Moment::FAR_FUTURE } else { self.probe_at }
    }

    /// Nothing is known of the node any more until it is looked at again.
    pub(super) fn forget(&mut self) {
        (self.clock, self.probed_at) = (None, None);
        if self.looks() {
            self.gate = Gate::Undecided;
        }
    }

    /// The call of a look, unless one is out.
    pub(super) fn probe(&mut self) -> Option<Cmd> {
        if self.is_probing() {
            self.state = State::ProbingAgain;
            return None;
        }
        self.write(None)
    }

    /// A node that is another's double is left alone: its canary is the other's.
    fn write(&mut self, writing: Option<&Writing>) -> Option<Cmd> {
        let sentry = self.sentry.as_ref().filter(|it| it.looks() && it.dependence().is_none());
        let Some(notes) = sentry.map(Sentry::notes) else {
            self.state = State::Resting;
            self.probe_at = clock::now() + gate::PROBE_EVERY;
            return None;
        };
        self.state = State::Probing;
        Some(gate::call(&notes, writing))
    }

    /// Applies what a look has shown that was sent at `sent`; tells the next one, if there is one at once.
    pub(super) fn handle_probe(
        &mut self,
        sent: Moment,
        value: &Value,
        facts: &Facts,
    ) -> Option<Cmd> {
        let sentry = self.sentry.as_ref()?;
        self.gate = match gate::read(value, sent, facts) {
            Err(fault) => {
                sentry.handle_down();
                Gate::Broken(fault)
            }
            Ok(checkup) => {
                let ruling = sentry.handle_checkup(&checkup);
                self.note_clock(checkup.clock.micros);
                match ruling {
                    Ruling::Write(writing) if self.writings < MOST_WRITINGS => {
                        self.writings += 1;
                        return self.write(Some(&writing));
                    }
                    ruling => {
                        self.probed_at = Some(sent);
                        Gate::from(ruling)
                    }
                }
            }
        };
        self.writings = 0;
        self.probe_at = self.gate.probe_at(clock::now());
        match std::mem::replace(&mut self.state, State::Resting) {
            State::ProbingAgain => self.probe(),
            State::Probing | State::Resting => None,
        }
    }

    /// Holds the answers to a call of grants against what the guards know, and `time`, which the node's clock
    /// said; tells the look that is due then.
    pub(super) fn inspect(
        &mut self,
        sent: Moment,
        time: Option<u64>,
        answers: &mut [Result<Answer, Fault>],
        batch: &Batch,
    ) -> Option<Cmd> {
        if let Some(time) = time {
            self.note_clock(time);
        }
        let sentry = self.sentry.as_ref()?;
        let reading = |micros| ClockReading { sent, received: clock::now(), micros };
        let is_steady = time.is_none_or(|time| sentry.handle_clock(reading(time)));
        let has_forgotten = |answer: &Result<Answer, Fault>| {
            answer.as_ref().is_err_and(|fault| fault.kind() == FaultKind::Quarantined)
        };
        if is_steady && !answers.iter().any(has_forgotten) {
            self.require_vouched(sent, answers, batch);
            return None;
        }
        self.gate = Gate::Undecided;
        hold_back(answers);
        self.probe()
    }

    /// Lets the answers to commands count that were sent at `sent` only if other clients know what they must.
    pub(super) fn require_vouched(
        &self,
        sent: Moment,
        answers: &mut [Result<Answer, Fault>],
        batch: &Batch,
    ) {
        if !batch.requests().iter().all(|request| self.vouches(request, sent)) {
            hold_back(answers);
        }
    }
}

fn hold_back(answers: &mut [Result<Answer, Fault>]) {
    for answer in answers.iter_mut().filter(|it| matches!(it, Ok(Answer::Ours { .. }))) {
        *answer = Err(gate::undecided());
    }
}

/// A command that takes or prolongs a lock counts only if the node was looked at within this time.
const PROBED_WITHIN: Duration = Duration::from_secs(20);
/// A canary that others change again and again is left to them.
const MOST_WRITINGS: u8 = 8;
/// How long what a node's clock said is gone by,
const CLOCK_GOOD_FOR: Duration = Duration::from_secs(60);
/// and for how long it is better than what comes later by less than so many microseconds.
const CLOCK_BEST_FOR: Duration = Duration::from_secs(10);
const LATE_MICROS: i64 = 100_000;
