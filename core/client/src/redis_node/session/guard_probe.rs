//! A session's part in the guards, which find nodes that may have forgotten locks: when it probes its
//! node (reads the canary, the notes and the clock), what the probes have shown, and which grants
//! count after that. Owns the gate; sends nothing itself.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    Answer, ClockReading, Fault, FaultKind, Fence, Guards, Moment, Relied, Ruling, Writing,
};
use redis::{Cmd, Value};

use super::batch::Batch;
use super::facts::Facts;
use super::gate::{self, Gate};
use super::request::Request;
use crate::clock::ToldClock;
use crate::guards::GuardedNode;

/// The guards' part of a session.
pub(crate) struct GuardProbe {
    /// `None` for a node that belongs to no manager.
    guarded_node: Option<GuardedNode>,
    gate: Gate,
    /// When the node must be probed again.
    probe_at: Moment,
    state: State,
    /// How many times in a row the canary was written.
    writings: u8,
    /// When the last probe with a known ruling was sent.
    probed_at: Option<Moment>,
    clock: Option<Clock>,
    /// Where other threads read it.
    told_clock: Arc<ToldClock>,
}

/// How far a node's clock is at least ahead of the lease clock, in microseconds, and when it was
/// read.
#[derive(Clone, Copy)]
struct Clock {
    ahead: i64,
    read_at: Moment,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Resting,
    /// A probe is in flight. There is one at a time: the next must see what the last one wrote.
    Probing,
    /// Another probe was asked for meanwhile.
    ProbingAgain,
}

impl GuardProbe {
    pub(crate) fn new(guarded_node: Option<GuardedNode>, told_clock: Arc<ToldClock>) -> Self {
        let looks = guarded_node.as_ref().is_some_and(GuardedNode::looks);
        let gate = if looks { Gate::Undecided } else { Gate::unguarded() };
        let (probe_at, state) = (Moment::FAR_FUTURE, State::Resting);
        Self {
            guarded_node,
            gate,
            probe_at,
            state,
            writings: 0,
            probed_at: None,
            clock: None,
            told_clock,
        }
    }

    /// Whether the node is probed at all.
    fn looks(&self) -> bool {
        self.guarded_node.as_ref().is_some_and(GuardedNode::looks)
    }

    /// Whether the server's identity matters.
    pub(super) fn is_on(&self) -> bool {
        self.guarded_node.is_some()
    }

    /// The server has said who it is.
    pub(super) fn handle_facts(&self, facts: &Facts) {
        if let Some(guarded_node) = &self.guarded_node {
            guarded_node.handle_identity(facts.identity());
        }
    }

    /// Why the node has no vote; `None` if it has one.
    pub(super) fn dependence(&self) -> Option<Fault> {
        self.guarded_node.as_ref()?.dependence()
    }

    /// Why a command is not sent; `None` if it is.
    pub(super) fn refusal(&self, batch: &Batch, now: Moment) -> Option<Fault> {
        let kept = batch.requests().iter().filter_map(Request::grant_keeps).max();
        // One server behind two addresses would vote twice, also on an extension.
        self.dependence().or_else(|| self.gate.refusal(kept?, now))
    }

    /// Whether a probe must be sent before `batch`, which takes or prolongs locks: these count only
    /// if the node knows what other clients must know of them.
    pub(super) fn wants_probe_ahead(&self, batch: &Batch, now: Moment) -> bool {
        self.looks()
            && !self.is_probing()
            && batch.requests().iter().any(|it| !self.vouches(it, (now, now)))
    }

    /// Whether the node was probed lately, and knows of locks as long as the one in a command sent
    /// at `sent`.
    fn vouches(&self, request: &Request, (sent, now): (Moment, Moment)) -> bool {
        let Some(key_ttl) = request.keeps().filter(|_| self.looks()) else {
            return true;
        };
        let is_recent = self.probed_at.is_some_and(|at| sent.since(at) < PROBED_WITHIN);
        let guarded_node = self.guarded_node.as_ref();
        is_recent
            && (key_ttl <= Guards::FLOOR || guarded_node.is_some_and(|it| it.covers(key_ttl, now)))
    }

    pub(super) fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What must stand in the canary key for a grant; `None` if nothing is guarded.
    pub(super) fn relied(&self) -> Option<&Relied> {
        self.gate.relied().filter(|_| self.looks())
    }

    /// Whether the token `micros` is near the node's clock, as far as that is known: a client whose
    /// clock is far ahead must not raise a fence for ever.
    pub(super) fn allows(&self, micros: u64, now: Moment) -> bool {
        self.clock.filter(|clock| now.since(clock.read_at) < CLOCK_GOOD_FOR).is_some_and(|clock| {
            ToldClock::ahead(micros, now).abs_diff(clock.ahead) <= Fence::SLACK_MICROS
        })
    }

    /// The node's clock has shown `micros`. A delayed reply is less exact than an earlier one that
    /// came quickly.
    pub(super) fn note_clock(&mut self, micros: u64, read_at: Moment) {
        let ahead = ToldClock::ahead(micros, read_at);
        let is_worse = |known: Clock| {
            (1..LATE_MICROS).contains(&known.ahead.saturating_sub(ahead))
                && read_at.since(known.read_at) < CLOCK_BEST_FOR
        };
        if !self.clock.is_some_and(is_worse) {
            self.clock = Some(Clock { ahead, read_at });
            self.told_clock.tell(ahead);
        }
    }

    /// The canary that was read with a grant has had `count` beats.
    pub(super) fn note_count(&mut self, count: u64) {
        self.gate.note_count(count);
    }

    /// Whether a probe is in flight.
    pub(super) fn is_probing(&self) -> bool {
        self.state != State::Resting
    }

    /// When the node must be probed again, if nothing happens before.
    pub(super) fn probe_at(&self) -> Moment {
        if self.is_probing() { Moment::FAR_FUTURE } else { self.probe_at }
    }

    /// Drops what is known of the node, until it is probed again.
    pub(super) fn forget(&mut self) {
        (self.clock, self.probed_at) = (None, None);
        if self.looks() {
            self.gate = Gate::Undecided;
        }
    }

    /// The call of a probe, unless one is in flight.
    pub(super) fn probe(&mut self, now: Moment) -> Option<Cmd> {
        if self.is_probing() {
            self.state = State::ProbingAgain;
            return None;
        }
        self.write(None, now)
    }

    /// A node whose server is that of another node is left alone: the canary is the other's.
    fn write(&mut self, writing: Option<&Writing>, now: Moment) -> Option<Cmd> {
        let guarded_node =
            self.guarded_node.as_ref().filter(|it| it.looks() && it.dependence().is_none());
        let Some(notes) = guarded_node.map(|guarded_node| guarded_node.notes(now)) else {
            self.state = State::Resting;
            self.probe_at = now + gate::PROBE_EVERY;
            return None;
        };
        self.state = State::Probing;
        Some(gate::call(&notes, writing))
    }

    /// Applies the result of a probe that was sent at `sent`; returns the next call, if one must
    /// follow at once.
    pub(super) fn handle_probe(
        &mut self,
        (sent, now): (Moment, Moment),
        value: &Value,
        facts: &Facts,
    ) -> Option<Cmd> {
        let guarded_node = self.guarded_node.as_ref()?;
        self.gate = match gate::read(value, (sent, now), facts) {
            Err(fault) => {
                guarded_node.handle_down(now);
                Gate::Broken(fault)
            }
            Ok(checkup) => {
                let ruling = guarded_node.handle_checkup(&checkup, now);
                self.note_clock(checkup.clock.micros, now);
                match ruling {
                    Ruling::Write(writing) if self.writings < MOST_WRITINGS => {
                        self.writings += 1;
                        return self.write(Some(&writing), now);
                    }
                    ruling => {
                        self.probed_at = Some(sent);
                        Gate::from(ruling)
                    }
                }
            }
        };
        self.writings = 0;
        self.probe_at = self.gate.probe_at(now);
        match std::mem::replace(&mut self.state, State::Resting) {
            State::ProbingAgain => self.probe(now),
            State::Probing | State::Resting => None,
        }
    }

    /// Compares the answers to grants, and `time` of the node's clock, with what the guards know;
    /// returns the call of a probe if one must follow.
    pub(super) fn inspect(
        &mut self,
        (sent, now): (Moment, Moment),
        time: Option<u64>,
        answers: &mut [Result<Answer, Fault>],
        batch: &Batch,
    ) -> Option<Cmd> {
        if let Some(time) = time {
            self.note_clock(time, now);
        }
        let guarded_node = self.guarded_node.as_ref()?;
        let reading = |micros| ClockReading { sent, received: now, micros };
        let is_steady = time.is_none_or(|time| guarded_node.handle_clock(reading(time)));
        let has_forgotten = |answer: &Result<Answer, Fault>| {
            answer.as_ref().is_err_and(|fault| fault.kind() == FaultKind::Quarantined)
        };
        if is_steady && !answers.iter().any(has_forgotten) {
            self.require_vouched((sent, now), answers, batch);
            return None;
        }
        self.gate = Gate::Undecided;
        self.hold_back(answers);
        self.probe(now)
    }

    /// Replaces the answers to commands that were sent at `sent` by faults, unless other clients
    /// know what they must.
    pub(super) fn require_vouched(
        &self,
        (sent, now): (Moment, Moment),
        answers: &mut [Result<Answer, Fault>],
        batch: &Batch,
    ) {
        if !batch.requests().iter().all(|request| self.vouches(request, (sent, now))) {
            self.hold_back(answers);
        }
    }

    /// What does not count is told with the reason: after a probe that has failed, its fault.
    fn hold_back(&self, answers: &mut [Result<Answer, Fault>]) {
        let fault = match &self.gate {
            Gate::Broken(fault) => fault.clone(),
            Gate::Open(_) | Gate::Quarantined(_) | Gate::Undecided => gate::undecided(),
        };
        for answer in answers.iter_mut().filter(|it| matches!(it, Ok(Answer::Ours { .. }))) {
            *answer = Err(fault.clone());
        }
    }
}

/// A command that takes or prolongs a lock counts only if the node was probed within this time.
const PROBED_WITHIN: Duration = Duration::from_secs(20);
/// A canary that other clients keep changing is left to them after this many writes.
const MOST_WRITINGS: u8 = 8;
/// How long a reading of a node's clock is used,
const CLOCK_GOOD_FOR: Duration = Duration::from_secs(60);
/// and how long it is preferred to one that seems later by less than [`LATE_MICROS`].
const CLOCK_BEST_FOR: Duration = Duration::from_secs(10);
const LATE_MICROS: i64 = 100_000;
