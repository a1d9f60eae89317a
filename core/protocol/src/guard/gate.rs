//! Decides from when on a node's grants count. Owns the arithmetic of waiting. It stores no flag:
//! each look computes the answer anew from the ages of memories and the locks that may still be
//! held.

use std::time::Duration;

use super::canary::Relied;
use super::checkup::{Pass, Ruling};
use super::holdings::Holding;
use super::notes::GRAIN;
use super::quarantine::Quarantine;
use super::{
    Contact, Guards, LONG_WAIT, LONGEST_FORGOTTEN, LOOK_AGAIN, NodeRecord, Notice, RestartGuard,
    UNREACHABLE_AFTER,
};
use crate::identity::NodeId;
use crate::time::{Moment, Ttl};

impl Guards {
    /// Whether grants count at a node whose memory is known.
    pub(super) fn rule_gate(&mut self, node: NodeId, now: Moment) -> Ruling {
        let heard = self.records.iter().filter(|record| record.is_heard()).count();
        let Some(memory) = self.records[node.index()].memory.as_ref() else {
            return Ruling::Undecided(now + LOOK_AGAIN);
        };
        if heard < self.quorum.size() {
            // Too few nodes to tell from each other's notes whether this node's clock is right.
            return Ruling::Undecided(now + LOOK_AGAIN);
        }
        let reason = memory.canary.reason;
        // A strict client does not believe a founder that the cluster was new (it may have
        // forgotten as a whole).
        let is_strict = self.restart == RestartGuard::Strict;
        let founded = memory.since_founding(now).filter(|_| is_strict);
        let age = founded.unwrap_or_else(|| memory.age(now));
        let relied =
            Relied { prefix: memory.canary.prefix().into(), count: self.counts.of(memory.id) };
        // No other client can know more than the founder did.
        let others_remember =
            founded.is_some() || self.remembering_beside(node, now) >= self.quorum.size();
        let until = self.opens_at(age, others_remember, now);
        if now < until {
            self.tell_quarantine(node, Quarantine { until, reason }, now);
            return Ruling::Quarantined(Quarantine { until, reason });
        }
        if !others_remember && !self.is_old(age) && !self.has_asked_others(node) {
            return Ruling::Undecided(now + LOOK_AGAIN);
        }
        let record = &mut self.records[node.index()];
        record.is_vouched |= others_remember;
        // A client that uses long locks expects that others used them, too, and no node is left
        // that could tell.
        let knows_all = record.is_vouched || self.is_old(age);
        let longest =
            if knows_all { Duration::MAX } else { self.without_drift(age).max(self.floor) };
        Ruling::Open(Pass { relied, longest })
    }

    /// How many other nodes certainly know every long lock that a node with this memory may have
    /// forgotten.
    fn remembering_beside(&self, node: NodeId, now: Moment) -> usize {
        let found = self.records[node.index()].memory.as_ref().map(|memory| memory.found);
        let remembers = |record: &NodeRecord| {
            let is_asked = found.is_some_and(|found| record.looked_at >= found);
            let is_old = record.memory.as_ref().is_some_and(|it| self.is_old(it.age(now)));
            record.is_heard() && record.alarm.is_none() && is_asked && (record.is_vouched || is_old)
        };
        self.others(node).filter(|record| remembers(record)).count()
    }

    /// Whether every other node has told which long locks it knows, since this client found the memory of
    /// `node`, or could not be reached since. A node of which neither is true is not waited for beyond the floor.
    fn has_asked_others(&self, node: NodeId) -> bool {
        let Some(memory) = &self.records[node.index()].memory else {
            return false;
        };
        let has_told = |other: &NodeRecord| match other.contact {
            Contact::Unknown => false,
            Contact::Down => other.failed_at >= memory.found + UNREACHABLE_AFTER,
            Contact::Heard => other.looked_at >= memory.found,
        };
        self.others(node).all(has_told) || memory.watched >= self.floor
    }

    /// When grants begin to count at a node whose memory has this age.
    fn opens_at(&self, age: Duration, others_remember: bool, now: Moment) -> Moment {
        let mut required = self.floor;
        if !others_remember {
            let unknown = match self.restart {
                RestartGuard::Strict => LONGEST_FORGOTTEN,
                RestartGuard::Auto | RestartGuard::Off => Duration::ZERO,
            };
            required = required.max(self.limit.unwrap_or(unknown));
        }
        let by_age = now + self.with_drift(required).saturating_sub(age);
        self.longest_wait(age, now).map_or(by_age, |until| by_age.max(until))
    }

    /// Until when a node whose memory has this age is held back for long locks that it may have forgotten; `None` if
    /// there are none.
    pub(super) fn longest_wait(&self, age: Duration, now: Moment) -> Option<Moment> {
        let most = self.longest_forgotten();
        let ends = |entry: Holding| {
            let is_known_to_it = entry.began > now.before(age) + SAME_MOMENT;
            let kept = now + self.with_drift(entry.key_ttl.min(most)).saturating_sub(age);
            (!is_known_to_it).then(|| kept.min(entry.until)).filter(|until| *until > now)
        };
        self.holdings.all().filter_map(ends).max()
    }

    fn tell_quarantine(&mut self, node: NodeId, quarantine: Quarantine, now: Moment) {
        let record = &mut self.records[node.index()];
        let left = quarantine.until.since(now);
        if !std::mem::replace(&mut record.is_told, true) {
            self.notices.push(Notice::Quarantined(node, quarantine.reason, left));
        }
        if left > LONG_WAIT && !std::mem::replace(&mut record.is_told_long, true) {
            self.notices.push(Notice::LongWait(node, left));
        }
    }

    /// The longest lock that is waited for.
    fn longest_forgotten(&self) -> Duration {
        self.limit.unwrap_or(Duration::ZERO).max(LONGEST_FORGOTTEN)
    }

    /// Whether a memory of this age knows of every lock that is waited for.
    pub(super) fn is_old(&self, age: Duration) -> bool {
        age >= self.old_age()
    }

    pub(super) fn old_age(&self) -> Duration {
        self.with_drift(self.longest_forgotten())
    }

    /// The time that the slowest permitted clock takes to show `time`.
    pub(super) fn with_drift(&self, time: Duration) -> Duration {
        Ttl::from_duration(time).map_or(time, |ttl| time.saturating_add(self.drift.of(ttl)))
    }

    /// The longest time that has certainly passed when the fastest permitted clock shows `age`.
    fn without_drift(&self, age: Duration) -> Duration {
        Ttl::from_duration(age).map_or(Duration::ZERO, |ttl| age.saturating_sub(self.drift.of(ttl)))
    }
}

/// If a lock was asked for and a memory began within this time, nobody knows which came first.
const SAME_MOMENT: Duration = Duration::from_secs(1).saturating_add(GRAIN);
