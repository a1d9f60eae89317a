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
        if self.seats[node.index()].alarm.is_some() {
            if !look.tells_of_step(env) {
                return self.hold_back(env, &look, QuarantineReason::ClockStepped);
            }
            // How long that is ago is for the canary to say: it may be of a later step or restart.
            self.seats[node.index()].alarm = None;
        }
        match &checkup.canary {
            CanaryKey::Absent => self.rule_without_canary(env, &look),
            CanaryKey::Unreadable(_) => self.hold_back(env, &look, QuarantineReason::Forgot),
            CanaryKey::Present(canary) => match canary.state {
                CanaryState::Waiting { .. } => self.rule_waiting(env, &look, canary),
                CanaryState::Trusted { waited, durable, node_micros } => {
                    self.seats[node.index()].born = node_micros;
                    self.rule_trusted(env, &look, canary, (waited, durable, node_micros))
                }
            },
        }
    }

    fn rule_trusted(
        &mut self,
        env: &mut dyn Surroundings,
        look: &Look<'_>,
        canary: &Canary,
        (waited, was_durable, node_micros): (Duration, bool, u64),
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
            let state = CanaryState::Trusted { waited, durable: checkup.durable, node_micros };
            return look.write(&Canary { state, ..canary.clone() });
        }
        let term = self.term();
        let seat = &mut self.seats[look.node.index()];
        // Another client has waited since this one looked last; long enough for all that is known?
        let is_another = seat.memory.is_some_and(|known| known != canary.memory);
        if is_another && waited < term {
            return self.hold_back(env, look, QuarantineReason::Forgot);
        }
        seat.memory = Some(canary.memory);
        (seat.waits, seat.founded) = (None, None);
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
        let is_new = reason == QuarantineReason::NoHistory;
        if is_new && self.founds(look.node, now) {
            return look.write(&look.canary(env, Duration::ZERO));
        }
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
        if is_new && now.since(waits.since) < SETTING_UP {
            // Another client may be setting the cluster up this very moment.
            return Ruling::Undecided(now + SETTING_UP / 16);
        }
        let until = self.end_of(waits.since, length);
        // A client that has asked for no lock and heard of none does not know how long they may last.
        if now < until || length.is_zero() {
            return Ruling::Quarantined(Quarantine { until, reason });
        }
        if !self.has_asked_around(look.node, until, now) {
            return Ruling::Undecided(now + LOOK_AGAIN);
        }
        // What is noted of its clock from now on is true again.
        self.seats[look.node.index()].waits = None;
        look.write(&look.canary(env, length))
    }

    /// Whether every other node that can be reached was looked at since `until`, so that a lock that
    /// lasts longer than any before and that was noted there meanwhile is known. A node that hangs is not
    /// waited for.
    fn has_asked_around(&mut self, node: NodeId, until: Moment, now: Moment) -> bool {
        let asked = self.asks_around.map_or(now, |since| if since < until { now } else { since });
        let mut others = NodeId::all(self.quorum.nodes()).filter(|other| *other != node);
        let all_told = others.all(|other| {
            let seat = &self.seats[other.index()];
            seat.contact != Contact::Heard || seat.looked_at >= until
        });
        let is_done = all_told || now.since(asked) >= LOOK_AGAIN;
        self.has_news |= !is_done && self.asks_around != Some(asked);
        self.asks_around = (!is_done).then_some(asked);
        is_done
    }

    /// Whether this client is setting the node up right now, as a part of a new cluster.
    fn founds(&self, node: NodeId, now: Moment) -> bool {
        let founded = self.seats[node.index()].founded;
        founded.is_some_and(|since| now.since(since) < SETTING_UP)
    }

    fn rule_without_canary(&mut self, env: &mut dyn Surroundings, look: &Look<'_>) -> Ruling {
        let now = env.now();
        let seat = &self.seats[look.node.index()];
        if seat.memory.is_some() || seat.waits.is_some() {
            let same_run = seat.run.as_ref() == Some(&look.checkup.run);
            let reason =
                if same_run { QuarantineReason::Forgot } else { QuarantineReason::Restarted };
            return self.hold_back(env, look, reason);
        }
        if self.founds(look.node, now) {
            return look.write(&look.canary(env, Duration::ZERO));
        }
        let is_odd = self.seats.iter().any(|seat| seat.has_history);
        if self.restart == RestartGuard::Strict || is_odd {
            return self.hold_back(env, look, QuarantineReason::NoHistory);
        }
        let heard = self.seats.iter().filter(|seat| seat.contact == Contact::Heard).count();
        if !self.all_contacted() || heard < self.quorum.size() {
            return Ruling::Undecided(now + LOOK_AGAIN);
        }
        for seat in self.seats.iter_mut().filter(|seat| seat.contact == Contact::Heard) {
            seat.founded = Some(now);
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
    /// Whether the canary says that the clock was stepped, and was written after the step: since then the
    /// node's clock has gone on like any other.
    fn tells_of_step(&self, env: &mut dyn Surroundings) -> bool {
        let CanaryKey::Present(canary) = &self.checkup.canary else {
            return false;
        };
        let CanaryState::Waiting { node_micros, wall_micros, reason, .. } = canary.state else {
            return false;
        };
        let by_node = self.checkup.clock.micros.saturating_sub(node_micros);
        let by_wall = env.wall_micros().saturating_sub(wall_micros);
        reason == QuarantineReason::ClockStepped
            && canary.is_of_run(&self.checkup.run)
            && by_node.abs_diff(by_wall) < STEP_GRAIN_MICROS
    }

    fn write(&self, canary: &Canary) -> Ruling {
        let expected = self.checkup.canary.text();
        Ruling::Write { expected, canary: canary.to_string().into() }
    }

    /// A canary for a memory that begins now.
    fn canary(&self, env: &mut dyn Surroundings, waited: Duration) -> Canary {
        let (durable, node_micros) = (self.checkup.durable, self.checkup.clock.micros);
        let state = CanaryState::Trusted { waited, durable, node_micros };
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
