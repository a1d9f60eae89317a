//! Decides which memory a node has (its keys since it last lost some): whether it is the one that its
//! canary names, and how long ago it may have forgotten locks. Owns what the canary key is to contain;
//! knows no clock step.

use std::sync::Arc;
use std::time::Duration;

use super::canary::Canary;
use super::checkup::{CanaryKey, Checkup, Ruling, Writing};
use super::holdings::Holdings;
use super::notes::SightingNote;
use super::quarantine::QuarantineReason;
use super::{
    AGES_AGO, BEAT_EVERY, FIRST_CONTACT, FIRST_CONTACT_IF_IDLE, FLOOR, Guards, IDLE,
    NOT_ASKED_WITHIN, NodeRecord,
};
use crate::identity::NodeId;
use crate::machine::Environment;
use crate::time::Moment;

/// A memory of a node, as this client knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Memory {
    pub(super) id: u64,
    /// When this client first saw it.
    pub(super) found: Moment,
    /// The canary at the last look.
    pub(super) canary: Canary,
    /// Its age at least, and when it had that age.
    age: (Duration, Moment),
    /// Whether this client has known another memory of the node.
    had_another: bool,
    /// For how long this client has looked at it since; of a pause of the client, a second counts.
    pub(super) watched: Duration,
}

impl Memory {
    /// Within this time no lock was asked for that the memory does not know.
    ///
    /// A client that saw no other memory of the node may have concluded that the cluster is new and
    /// has forgotten nothing. A client that did see another one counts from the beginning of this
    /// memory.
    pub(super) fn age(&self, now: Moment) -> Duration {
        let age = self.whole_age(now);
        if self.had_another { age.checked_sub(AGES_AGO).unwrap_or(age) } else { age }
    }

    /// How long ago a founder began this memory, if one did.
    pub(super) fn since_founding(&self, now: Moment) -> Option<Duration> {
        self.whole_age(now).checked_sub(AGES_AGO)
    }

    /// The age as all clients tell it to each other.
    pub(super) fn whole_age(&self, now: Moment) -> Duration {
        let (age, then) = self.age;
        age.saturating_add(now.since(then))
    }

    /// Records that no lock was asked for within `age` that the memory does not know.
    fn is_at_least(&mut self, age: Duration, now: Moment) {
        if self.whole_age(now) < age {
            self.age = (age, now);
        }
    }
}

/// One look at one node.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) node: NodeId,
    pub(super) checkup: &'a Checkup,
}

impl Guards {
    pub(super) fn rule_memory(&mut self, env: &mut dyn Environment, look: Look<'_>) -> Ruling {
        let now = env.now();
        let canary = match &look.checkup.canary {
            CanaryKey::Absent => return self.rule_without_canary(env, look),
            CanaryKey::Unreadable(_) => {
                return self.begin_memory(env, look, QuarantineReason::Forgot);
            }
            CanaryKey::Present(canary) => canary,
        };
        let sent = look.checkup.clock.sent;
        if canary.count < self.counts.of(canary.id) && self.counts.are_newer(canary.id, sent) {
            // A beat may have fallen between this look and that note: the next look decides.
            self.records[look.node.index()].recheck = true;
            self.has_news = true;
            return Ruling::Undecided(now);
        }
        self.counts.settle(canary.id, sent);
        if let Some(reason) = self.mistrusts(look, canary) {
            return self.begin_memory(env, look, reason);
        }
        self.learn(env, look, canary);
        if let Some(until) = self.clock_undecided(now, look.node) {
            return match self.records[look.node.index()].alarm {
                Some(_) => self.begin_memory(env, look, QuarantineReason::ClockStepped),
                None => Ruling::Undecided(until),
            };
        }
        let (longer, shorter) = canary.since_beat(look.checkup.clock.micros, env.wall_micros());
        if shorter > IDLE && !self.note_idle(look) {
            return Ruling::Undecided(now + FIRST_CONTACT_IF_IDLE);
        }
        self.judge_idle(now);
        let wall = env.wall_micros();
        if longer < BEAT_EVERY && !self.has_news_for(look, canary, wall, now) {
            return self.rule_gate(look.node, now);
        }
        if !self.has_tried_all() && !self.has_waited(FIRST_CONTACT, sent) {
            // A node that was not asked yet may know that this is an older state of the memory:
            // after one more beat nobody could tell.
            return Ruling::Undecided(now + FIRST_CONTACT);
        }
        self.beat(look, canary, wall, now)
    }

    /// Records that nobody, this client included, has used the node for a while. Returns `false` if
    /// the node is to stay idle for now, until it is known whether any other node has forgotten, and
    /// since when.
    fn note_idle(&mut self, look: Look<'_>) -> bool {
        let sent = look.checkup.clock.sent;
        self.records[look.node.index()].idle = Some(sent);
        let forgot = self.records.iter().filter_map(|record| record.forgot).max();
        let all_have_memories =
            self.records.iter().all(|record| record.memory.is_some() || !record.is_heard());
        let is_known = all_have_memories && self.has_tried_all();
        (is_known || self.has_waited(FIRST_CONTACT_IF_IDLE, sent))
            && forgot.is_none_or(|forgot| sent > forgot)
    }

    /// Nodes that forgot while nobody used the cluster have forgotten no lock of the last moments:
    /// each lock was asked for at a quorum, and one node of that quorum would have had a beat
    /// shortly before. That node may itself have forgotten longer locks, so nothing is concluded
    /// about those.
    fn judge_idle(&mut self, now: Moment) {
        for node in NodeId::all(self.records.len()) {
            let record = &self.records[node.index()];
            let (Some(forgot), Some(memory)) = (record.forgot, &record.memory) else {
                continue;
            };
            let is_idle = |other: &NodeRecord| other.idle.is_some_and(|idle| idle > forgot);
            let idle = self.others(node).filter(|other| is_idle(other)).count();
            if memory.age(now) >= NOT_ASKED_WITHIN || idle < self.quorum.size() {
                continue;
            }
            let record = &mut self.records[node.index()];
            record.recheck = true;
            self.has_news = true;
            if let Some(memory) = &mut record.memory {
                memory.is_at_least(NOT_ASKED_WITHIN, now);
            }
        }
    }

    /// Why the canary does not belong to the memory that it names; `None` if it does.
    fn mistrusts(&self, look: Look<'_>, canary: &Canary) -> Option<QuarantineReason> {
        let Checkup { run, lineage, durable, .. } = look.checkup;
        let known = self.records[look.node.index()].memory.as_ref().map(|memory| &memory.canary);
        // Each beat has exactly one text: another text with this count comes from an older state
        // that some client continued.
        let is_forked = known.is_some_and(|known| {
            known.id == canary.id && known.count == canary.count && known != canary
        });
        if canary.count < self.counts.of(canary.id) || is_forked {
            return Some(QuarantineReason::Forgot);
        }
        if differ(run.as_ref(), canary.run.as_ref()) {
            // The server has every key that it ever confirmed: the same memory, in a new run.
            return (!(canary.durable && *durable)).then_some(QuarantineReason::Restarted);
        }
        let lineages = lineage.as_ref().zip(canary.lineage.as_ref());
        let is_replaced = lineages.is_some_and(|(lineage, noted)| !is_same_lineage(lineage, noted));
        is_replaced.then_some(QuarantineReason::Forgot)
    }

    fn learn(&mut self, env: &mut dyn Environment, look: Look<'_>, canary: &Canary) {
        let now = env.now();
        let clock = look.checkup.clock;
        let (oldest, since_beat) = canary.since_beat(clock.micros, env.wall_micros());
        let (told, old_age) = (canary.age.saturating_add(since_beat), self.old_age());
        let record = &mut self.records[look.node.index()];
        let is_alarming = record.alarm.is_some_and(|alarm| alarm.memory == Some(canary.id));
        let is_own_answer = record.begun == Some(canary.id) && !is_alarming;
        let age = canary.age.saturating_add(oldest);
        let is_of_a_step = canary.reason == QuarantineReason::ClockStepped;
        if is_own_answer || (is_of_a_step && record.is_alarm_answered(canary.id, age, now)) {
            record.alarm = None;
        }
        let known = record.memory.take();
        let memory = match known {
            Some(known) if known.id == canary.id => {
                let age = known.whole_age(now).max(told);
                Memory { age: (age, now), canary: canary.clone(), ..known }
            }
            another => {
                let had_another = another.as_ref().is_some_and(|it| it.id != canary.id);
                if let Some(another) = &another {
                    self.counts.end(another.id, now);
                }
                let found = clock.received;
                self.has_new_clock = true;
                (record.is_vouched, record.is_told) = (false, false);
                let memory = Memory {
                    id: canary.id,
                    found,
                    canary: canary.clone(),
                    age: (told, now),
                    had_another: had_another || another.is_some_and(|it| it.had_another),
                    watched: Duration::ZERO,
                };
                let is_young = memory.age(now) < old_age;
                if record.begun != Some(canary.id) {
                    record.forgot = is_young.then_some(found);
                }
                if is_young {
                    self.look_around(found);
                }
                memory
            }
        };
        self.floor = self.floor.max(canary.floor.min(FLOOR));
        self.counts.raise(canary.id, canary.count, clock.sent);
        self.records[look.node.index()].memory = Some(memory);
        self.learn_memory(look.node, canary.id);
    }

    /// Whether the node must be told of something at once.
    fn has_news_for(&self, look: Look<'_>, canary: &Canary, wall: u64, now: Moment) -> bool {
        let Checkup { run, lineage, durable, notes, clock, .. } = look.checkup;
        let Some(memory) = &self.records[look.node.index()].memory else {
            return false;
        };
        let (_, since_beat) = canary.since_beat(clock.micros, wall);
        let told = canary.age.saturating_add(since_beat);
        let known = Holdings::read_sure(&notes.holdings, *clock);
        let has_ended = |id: u64| {
            notes.sightings.iter().any(|it| it.id == id && it.count == SightingNote::ENDED)
        };
        (run.is_some() && canary.run != *run)
            || (lineage.is_some() && canary.lineage != *lineage)
            || canary.durable != *durable
            || canary.floor < self.floor
            || (told < NOT_ASKED_WITHIN && memory.whole_age(now) >= NOT_ASKED_WITHIN)
            || !self.holdings.missing_in(&known, now).is_empty()
            || self.counts.ended().iter().any(|id| !has_ended(*id))
    }

    /// Writes the canary anew with one more beat, together with all that the node is to know.
    fn beat(&mut self, look: Look<'_>, canary: &Canary, wall: u64, now: Moment) -> Ruling {
        let Checkup { run, lineage, durable, .. } = look.checkup;
        let age = match &self.records[look.node.index()].memory {
            Some(memory) => memory.whole_age(now),
            None => canary.age,
        };
        look.write(&Canary {
            run: run.clone().or_else(|| canary.run.clone()),
            lineage: lineage.clone().or_else(|| canary.lineage.clone()),
            durable: *durable,
            count: canary.count + 1,
            floor: self.floor,
            age,
            wall_micros: wall,
            ..canary.clone()
        })
    }
}

impl Look<'_> {
    pub(super) fn write(&self, canary: &Canary) -> Ruling {
        let expected = self.checkup.canary.text();
        Ruling::Write(Writing { expected, canary: canary.text_to_write().into() })
    }
}

/// Whether both are known and differ.
pub(super) fn differ(one: Option<&Arc<str>>, other: Option<&Arc<str>>) -> bool {
    one.zip(other).is_some_and(|(one, other)| one != other)
}

/// `master_replid2:rdb_last_load_keys_loaded`: the first becomes zero again when a master without
/// replicas forgets its former master.
fn is_same_lineage(lineage: &str, noted: &str) -> bool {
    let parts =
        |text: &str| text.split_once(':').map(|(one, two)| (one.to_owned(), two.to_owned()));
    match (parts(lineage), parts(noted)) {
        (Some((followed, loaded)), Some((noted, noted_loaded))) => {
            (followed == "0" || followed == noted) && loaded == noted_loaded
        }
        _ => lineage == noted,
    }
}
