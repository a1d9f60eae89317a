//! Whether a node remembers: reads its canary, and says what is to stand there. Knows no clock step.

use std::sync::Arc;
use std::time::Duration;

use super::canary::{Canary, CanaryState};
use super::checkup::{CanaryKey, Checkup, Quarantine, QuarantineReason, Ruling};
use super::{Contact, Guards, LOOK_AGAIN, Notice, Waits};
use crate::guard::RestartGuard;
use crate::identity::NodeId;
use crate::machine::Surroundings;
use crate::time::Moment;

/// One look at one node.
struct Look<'a> {
    node: NodeId,
    checkup: &'a Checkup,
}

impl Guards {
    pub(super) fn rule_memory(
        &mut self,
        env: &mut dyn Surroundings,
        node: NodeId,
        checkup: &Checkup,
    ) -> Ruling {
        let look = Look { node, checkup };
        if let Some(since) = self.seats[node.index()].alarm {
            let Some(memory) = look.tells_of_step(env) else {
                return self.hold_back(env, &look, QuarantineReason::ClockStepped);
            };
            let seat = &mut self.seats[node.index()];
            (seat.alarm, seat.waits) = (None, Some(Waits { memory, since }));
            self.notices.push(Notice::Quarantined(node, QuarantineReason::ClockStepped));
        }
        match &checkup.canary {
            CanaryKey::Absent => self.rule_without_canary(env, &look),
            CanaryKey::Unreadable(_) => self.hold_back(env, &look, QuarantineReason::Forgot),
            CanaryKey::Present(canary) => match canary.state {
                CanaryState::Waiting { .. } => self.rule_waiting(env, &look, canary),
                CanaryState::Trusted { waited, durable } => {
                    self.rule_trusted(env, &look, canary, (waited, durable))
                }
            },
        }
    }

    fn rule_trusted(
        &mut self,
        env: &mut dyn Surroundings,
        look: &Look<'_>,
        canary: &Canary,
        (waited, was_durable): (Duration, bool),
    ) -> Ruling {
        let checkup = look.checkup;
        if !canary.is_of_run(&checkup.run) {
            if !(was_durable && checkup.durable) {
                return self.hold_back(env, look, QuarantineReason::Restarted);
            }
            // It has every key that it ever confirmed: the same memory, in a new run.
            return look.write(&Canary { run: Arc::clone(&checkup.run), ..canary.clone() });
        }
        if was_durable != checkup.durable {
            let state = CanaryState::Trusted { waited, durable: checkup.durable };
            return look.write(&Canary { state, ..canary.clone() });
        }
        let longest = self.own_term();
        let seat = &mut self.seats[look.node.index()];
        // Another client has waited since this one looked last; long enough for this one's locks?
        let is_another = seat.memory.is_some_and(|known| known != canary.memory);
        if is_another && waited < longest {
            return self.hold_back(env, look, QuarantineReason::Forgot);
        }
        seat.memory = Some(canary.memory);
        (seat.waits, seat.odd_since, seat.is_founder) = (None, None, false);
        Ruling::Trusted(canary.to_string().into())
    }

    fn rule_waiting(
        &mut self,
        env: &mut dyn Surroundings,
        look: &Look<'_>,
        canary: &Canary,
    ) -> Ruling {
        let CanaryState::Waiting { node_micros, wall_micros, length, reason } = canary.state else {
            return Ruling::Undecided(env.now());
        };
        if !canary.is_of_run(&look.checkup.run) {
            return self.hold_back(env, look, QuarantineReason::Restarted);
        }
        let now = env.now();
        let seat = &mut self.seats[look.node.index()];
        let waits = seat.waits.filter(|waits| waits.memory == canary.memory).unwrap_or_else(|| {
            // Neither the node's clock nor any wall clock is trusted alone.
            let by_node = look.checkup.clock.micros.saturating_sub(node_micros);
            let by_wall = env.wall_micros().saturating_sub(wall_micros);
            let passed = Duration::from_micros(by_node.min(by_wall));
            self.notices.push(Notice::Quarantined(look.node, reason));
            Waits { memory: canary.memory, since: now.before(passed) }
        });
        seat.waits = Some(waits);
        let term = self.term();
        if term > length {
            let state = CanaryState::Waiting { node_micros, wall_micros, length: term, reason };
            return look.write(&Canary { state, ..canary.clone() });
        }
        let until = self.end_of(waits.since, length);
        // A client that has asked for no lock and heard of none does not know how long they may last.
        if now < until || length.is_zero() {
            return Ruling::Quarantined(Quarantine { until, reason });
        }
        look.write(&look.canary(env, length))
    }

    fn rule_without_canary(&mut self, env: &mut dyn Surroundings, look: &Look<'_>) -> Ruling {
        let now = env.now();
        let seat = &self.seats[look.node.index()];
        if seat.memory.is_some() {
            let same_run = seat.run.as_ref() == Some(&look.checkup.run);
            let reason =
                if same_run { QuarantineReason::Forgot } else { QuarantineReason::Restarted };
            return self.hold_back(env, look, reason);
        }
        if seat.is_founder {
            return look.write(&look.canary(env, Duration::ZERO));
        }
        if self.restart == RestartGuard::Strict {
            return self.hold_back(env, look, QuarantineReason::NoHistory);
        }
        if self.seats.iter().any(|seat| seat.has_history && !seat.is_founder) {
            // Another client may be setting the cluster up this very moment.
            let seat = &mut self.seats[look.node.index()];
            let since = *seat.odd_since.get_or_insert(now);
            if now.since(since) < SETTING_UP {
                return Ruling::Undecided(now + SETTING_UP / 16);
            }
            return self.hold_back(env, look, QuarantineReason::NoHistory);
        }
        let heard = self.seats.iter().filter(|seat| seat.contact == Contact::Heard).count();
        if !self.all_contacted() || heard < self.quorum.size() {
            return Ruling::Undecided(now + LOOK_AGAIN);
        }
        for seat in self.seats.iter_mut().filter(|seat| seat.contact == Contact::Heard) {
            seat.is_founder = true;
        }
        look.write(&look.canary(env, Duration::ZERO))
    }

    /// Writes down that the node's grants are held back from now on.
    fn hold_back(
        &self,
        env: &mut dyn Surroundings,
        look: &Look<'_>,
        reason: QuarantineReason,
    ) -> Ruling {
        let state = CanaryState::Waiting {
            node_micros: look.checkup.clock.micros,
            wall_micros: env.wall_micros(),
            length: self.term(),
            reason,
        };
        look.write(&Canary { run: Arc::clone(&look.checkup.run), memory: number(env), state })
    }

    /// Without canaries a clock step is this client's own affair.
    pub(super) fn rule_alarm(&mut self, env: &mut dyn Surroundings, node: NodeId) -> Ruling {
        let term = self.term();
        let Some(since) = self.seats[node.index()].alarm else {
            return Ruling::Trusted("".into());
        };
        let until: Moment = self.end_of(since, term);
        if env.now() < until {
            let reason = QuarantineReason::ClockStepped;
            return Ruling::Quarantined(Quarantine { until, reason });
        }
        self.seats[node.index()].alarm = None;
        Ruling::Trusted("".into())
    }
}

impl Look<'_> {
    /// The memory number of a canary that says that the clock was stepped, written after the step: since
    /// then the node's clock has gone on like any other.
    fn tells_of_step(&self, env: &mut dyn Surroundings) -> Option<u64> {
        let CanaryKey::Present(canary) = &self.checkup.canary else {
            return None;
        };
        let CanaryState::Waiting { node_micros, wall_micros, reason, .. } = canary.state else {
            return None;
        };
        let by_node = self.checkup.clock.micros.saturating_sub(node_micros);
        let by_wall = env.wall_micros().saturating_sub(wall_micros);
        let is_told = reason == QuarantineReason::ClockStepped
            && canary.is_of_run(&self.checkup.run)
            && by_node.abs_diff(by_wall) < STEP_GRAIN_MICROS;
        is_told.then_some(canary.memory)
    }

    fn write(&self, canary: &Canary) -> Ruling {
        let expected = self.checkup.canary.text();
        Ruling::Write { expected, canary: canary.to_string().into() }
    }

    /// A canary for a memory that begins now.
    fn canary(&self, env: &mut dyn Surroundings, waited: Duration) -> Canary {
        let state = CanaryState::Trusted { waited, durable: self.checkup.durable };
        Canary { run: Arc::clone(&self.checkup.run), memory: number(env), state }
    }
}

fn number(env: &mut dyn Surroundings) -> u64 {
    let random = env.random();
    u64::from_be_bytes(std::array::from_fn(|index| random[index]))
}

/// How long it may take another client to set up a new cluster.
const SETTING_UP: Duration = Duration::from_secs(1);
/// Two clocks that went on together differ by less than this.
const STEP_GRAIN_MICROS: u64 = 1_000_000;
