//! Gives a node a new memory: after it has forgotten, and where it is empty and no cluster is being
//! founded. Owns what the first canary of a memory says.

use std::time::Duration;

use super::canary::Canary;
use super::checkup::{CanaryKey, Checkup, Ruling};
use super::founding::SETTING_UP;
use super::memory::{Look, differ};
use super::quarantine::QuarantineReason;
use super::{AGES_AGO, Guards};
use crate::machine::Environment;
use crate::time::Moment;

impl Guards {
    /// What to do about a node that has no canary.
    pub(super) fn rule_without_canary(
        &mut self,
        env: &mut dyn Environment,
        look: Look<'_>,
    ) -> Ruling {
        let now = env.now();
        let record = &mut self.records[look.node.index()];
        if let Some(known) = &record.memory {
            let is_same = !differ(known.canary.run.as_ref(), look.checkup.run.as_ref());
            let reason =
                if is_same { QuarantineReason::Forgot } else { QuarantineReason::Restarted };
            return self.begin_memory(env, look, reason);
        }
        record.forgot.get_or_insert(look.checkup.clock.received);
        let since = *record.empty_since.get_or_insert(now);
        if let Some(ruling) = self.found(env, look) {
            return ruling;
        }
        let unchanged = look.checkup.clock.sent.since(since.max(self.contact_changed));
        if self.is_not_founded(unchanged, now) {
            return self.begin_memory(env, look, QuarantineReason::NoHistory);
        }
        Ruling::Undecided(now + SETTING_UP / 16)
    }

    /// Whether it is certain that no client is founding the cluster now, given that nothing has
    /// changed for the time `unchanged`.
    fn is_not_founded(&self, unchanged: Duration, now: Moment) -> bool {
        let memories = self.records.iter().filter_map(|record| record.memory.as_ref());
        let begun: Vec<_> = memories
            .map(|memory| memory.whole_age(now))
            .map(|age| age.checked_sub(AGES_AGO).unwrap_or(age))
            .collect();
        let is_odd = begun.iter().any(|age| *age > 3 * SETTING_UP);
        is_odd || (begun.is_empty() && unchanged >= SETTING_UP)
    }

    /// Records that the node has a new memory from now on: it may have forgotten everything asked
    /// of it before.
    pub(super) fn begin_memory(
        &mut self,
        env: &mut dyn Environment,
        look: Look<'_>,
        reason: QuarantineReason,
    ) -> Ruling {
        let now = env.now();
        if let CanaryKey::Present(canary) = &look.checkup.canary {
            self.counts.end(canary.id, now);
        }
        if let Some(memory) = &self.records[look.node.index()].memory {
            self.counts.end(memory.id, now);
        }
        let received = look.checkup.clock.received;
        self.look_around(received);
        let canary = self.first_canary(env, look.checkup, reason, Duration::ZERO);
        let record = &mut self.records[look.node.index()];
        (record.forgot, record.begun) = (Some(received), Some(canary.id));
        look.write(&canary)
    }

    pub(super) fn first_canary(
        &self,
        env: &mut dyn Environment,
        checkup: &Checkup,
        reason: QuarantineReason,
        age: Duration,
    ) -> Canary {
        Canary {
            id: number(env),
            run: checkup.run.clone(),
            lineage: checkup.lineage.clone(),
            durable: checkup.durable,
            count: 1,
            floor: self.floor,
            age,
            reason,
            wall_micros: env.wall_micros(),
            node_micros: 0,
        }
    }
}

/// A random number: the name of a memory, or of an entry.
pub(super) fn number(env: &mut dyn Environment) -> u64 {
    let random = env.random();
    u64::from_be_bytes(std::array::from_fn(|index| random[index]))
}
