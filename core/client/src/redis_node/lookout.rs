//! What a connection does for the guards: when its node is looked at, what the looks have shown, and
//! which grants that lets through. Owns the gate; the calls are sent by the link.

use quorlock_protocol::{Answer, ClockReading, Fault, FaultKind, Moment, Ruling};
use redis::{Cmd, Value};

use super::facts::Facts;
use super::gate::{self, Gate, Writing};
use super::wire;
use crate::clock;
use crate::sentry::Sentry;

/// The guards' side of a connection.
pub(super) struct Lookout {
    /// `None` if nothing is guarded.
    sentry: Option<Sentry>,
    gate: Gate,
    /// When the node is to be looked at again.
    look_at: Moment,
    state: State,
    /// How often in a row the canary was written.
    writings: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Resting,
    /// A look is out; one at a time, as what the last one wrote is to be seen first.
    Looking,
    /// Another was asked for meanwhile.
    LookingAgain,
}

impl Lookout {
    pub(super) fn new(sentry: Option<Sentry>) -> Self {
        let gate = if sentry.is_some() { Gate::Undecided } else { Gate::Open("".into()) };
        Self { sentry, gate, look_at: Moment::FAR_FUTURE, state: State::Resting, writings: 0 }
    }

    pub(super) fn is_on(&self) -> bool {
        self.sentry.is_some()
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What must stand in the canary key for a grant; `None` if nothing is guarded.
    pub(super) fn canary(&self) -> Option<&str> {
        self.sentry.as_ref().map(|_| self.gate.canary())
    }

    /// Whether a look is out.
    pub(super) fn is_looking(&self) -> bool {
        self.state != State::Resting
    }

    /// When to look again, if nothing happens before.
    pub(super) fn look_at(&self) -> Moment {
        if self.is_looking() { Moment::FAR_FUTURE } else { self.look_at }
    }

    /// Nothing is known of the node any more until it is looked at again.
    pub(super) fn forget(&mut self) {
        if self.is_on() {
            self.gate = Gate::Undecided;
        }
    }

    /// The call of a look, unless one is out.
    pub(super) fn look(&mut self) -> Option<Cmd> {
        if self.is_looking() {
            self.state = State::LookingAgain;
            return None;
        }
        self.write(None)
    }

    fn write(&mut self, writing: Option<&Writing>) -> Option<Cmd> {
        let notes = self.sentry.as_ref()?.notes();
        self.state = State::Looking;
        Some(gate::call(notes, writing))
    }

    /// Applies what a look has shown that was sent at `sent`; tells the next one, if there is one at once.
    pub(super) fn handle_look(
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
            Ok(checkup) => match sentry.handle_checkup(&checkup) {
                Ruling::Write { expected, canary } if self.writings < MOST_WRITINGS => {
                    self.writings += 1;
                    // What was trusted is no longer; the next look tells what is.
                    self.gate = Gate::Undecided;
                    return self.write(Some(&Writing { expected, canary }));
                }
                ruling => Gate::from(ruling),
            },
        };
        self.writings = 0;
        self.look_at = self.gate.look_at(clock::now());
        match std::mem::replace(&mut self.state, State::Resting) {
            State::LookingAgain => self.look(),
            State::Looking | State::Resting => None,
        }
    }

    /// Holds the answer to a grant against what the guards know; tells the look that is due then.
    pub(super) fn inspect(
        &mut self,
        sent: Moment,
        value: &Value,
        answer: &mut Result<Answer, Fault>,
    ) -> Option<Cmd> {
        let sentry = self.sentry.as_ref()?;
        let reading = |micros| ClockReading { sent, received: clock::now(), micros };
        let is_steady = wire::time_in(value).is_none_or(|time| sentry.handle_clock(reading(time)));
        let has_forgotten = matches!(answer, Err(fault) if fault.kind() == FaultKind::Quarantined);
        if is_steady && !has_forgotten {
            return None;
        }
        self.gate = Gate::Undecided;
        if matches!(answer, Ok(Answer::Ours { .. }))
            && let Some(fault) = self.gate.refusal()
        {
            *answer = Err(fault);
        }
        self.look()
    }
}

/// A canary that others change again and again is left to them.
const MOST_WRITINGS: u8 = 8;
