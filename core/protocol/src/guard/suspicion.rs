//! Decides, after clocks disagree, whether a node's clock was stepped or this client was paused.
//! Knows no canary.

use std::time::Duration;

use super::clocks::{ClockReading, Lead, Offset, Step, micros};
use super::notes::{LeadNote, SightingNote};
use super::{FIRST_CONTACT, Guards, LOOK_AGAIN, Leads, NodeRecord, Notice};
use crate::identity::NodeId;
use crate::time::Moment;

/// Some clock jumped ahead: what all nodes' clocks have shown since.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Suspicion {
    since: Moment,
    /// The memories that the nodes had at that time.
    memories: Vec<Option<u64>>,
    /// The readings that raised it: only later readings can tell whether this client was paused.
    signs: Vec<Option<Shown>>,
    shown: Vec<Option<Shown>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Shown {
    step: Step,
    offset: Offset,
}

impl Shown {
    const fn lead(self) -> Option<Lead> {
        match self.step {
            Step::Ahead(by) => Some(by),
            Step::Steady | Step::Behind(_) => None,
        }
    }
}

/// A clock was stepped forward, and no new memory has begun since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Alarm {
    /// The memory that the node had.
    pub(super) memory: Option<u64>,
    /// When the clock was last seen to be right.
    pub(super) steady: Moment,
    /// When it was seen to be ahead.
    pub(super) since: Moment,
}

impl Guards {
    /// Takes the time that a node told. Tells whether its clock may show that, so that its grant
    /// counts.
    pub fn handle_clock(&mut self, node: NodeId, reading: ClockReading) -> bool {
        if !self.watches_clocks {
            return true;
        }
        if self.spans_pause(reading) {
            return false;
        }
        let (step, offset) = self.clocks.compare(node, reading, self.allowance());
        let shown = Shown { step, offset };
        match step {
            Step::Steady => self.clocks.accept(node, offset),
            Step::Behind(by) => {
                self.clocks.begin_anew(node, offset);
                self.notices.push(Notice::ClockSetBack(node, by));
                // Compared with its clock, all others seem to have moved ahead.
                let record = &mut self.records[node.index()];
                (record.leads, record.notes_anew) = (Leads::default(), true);
            }
            Step::Ahead(_) => self.suspect(node, shown, reading.received),
        }
        if let Some(suspicion) = &mut self.suspicion {
            if reading.sent >= suspicion.since {
                suspicion.shown[node.index()] = Some(shown);
            }
            self.judge(reading.received);
        }
        shown.lead().is_none()
    }

    /// Whether the node was asked before this client was found to have been paused. The node may
    /// then have answered before that, and its clock would seem to have been set back.
    pub(super) fn spans_pause(&self, reading: ClockReading) -> bool {
        self.watches_clocks && reading.sent < self.paused_until
    }

    /// The time that this client's leases have lost since the last call because it was paused:
    /// the lease clock is to be set forward by it, the clock of the guards is not.
    pub fn take_lost_time(&mut self) -> Duration {
        std::mem::take(&mut self.lost_time)
    }

    /// When to look again at a node whose clock is undecided; `None` if nothing is wrong with it.
    pub(super) fn clock_undecided(&mut self, now: Moment, node: NodeId) -> Option<Moment> {
        self.judge(now);
        self.compare_pairs(now);
        if self.records[node.index()].alarm.is_some() {
            return Some(now);
        }
        let suspicion = self.suspicion.as_ref()?;
        let is_ahead = suspicion.latest(node).is_some_and(|shown| shown.lead().is_some());
        is_ahead.then(|| suspicion.since + LOOK_AGAIN)
    }

    /// How far the clocks of other nodes are ahead of the clock of `node`, for clients that start
    /// later.
    pub(super) fn sightings_for(&self, node: NodeId, now: Moment) -> Vec<SightingNote> {
        let anew = self.records[node.index()].notes_anew;
        let others = NodeId::all(self.quorum.nodes()).filter(|other| *other != node);
        let seen = others.filter_map(|other| {
            let memory = self.records[other.index()].memory.as_ref()?;
            let lead = self.lead(other, node, now).map(|lead| LeadNote {
                most_micros: lead.high,
                age_micros: 0,
                anew,
            });
            Some(SightingNote { id: memory.id, count: self.counts.of(memory.id), lead })
        });
        let ended = self.counts.ended().iter();
        let ended =
            ended.map(|id| SightingNote { id: *id, count: SightingNote::ENDED, lead: None });
        seen.filter(|sighting| sighting.count != SightingNote::ENDED).chain(ended).collect()
    }

    /// Requests one more look at nodes whose notes lack a clock that this client knows by now: at
    /// the first looks most clocks were unknown.
    pub(super) fn spread_leads(&mut self, now: Moment) {
        let all_are_known = self.has_tried_all() || self.has_waited(FIRST_CONTACT, now);
        if !self.has_new_clock || !self.watches_clocks || !all_are_known {
            return;
        }
        self.has_new_clock = false;
        for node in NodeId::all(self.quorum.nodes()) {
            let is_lacking = self.sightings_for(node, now).iter().any(|sighting| {
                let told = &self.records[node.index()].leads;
                sighting.lead.is_some() && told.most(sighting.id, now).is_none()
            });
            let record = &mut self.records[node.index()];
            if is_lacking && record.is_heard() && record.memory.is_some() {
                record.recheck = true;
                self.has_news = true;
            }
        }
    }

    /// How far one node's clock is ahead of another's, if both were read just now and nothing is
    /// wrong with them.
    fn lead(&self, node: NodeId, other: NodeId, now: Moment) -> Option<Offset> {
        if self.suspicion.is_some() {
            return None;
        }
        let steady = |node: NodeId| {
            let is_fresh = |offset: &Offset| now.since(offset.at) < FRESH;
            let offset = self.clocks.offset(node).filter(is_fresh)?;
            self.records[node.index()].alarm.is_none().then(|| offset.aged(now))
        };
        Some(steady(node)?.over(steady(other)?))
    }

    /// Compares the distances between every two clocks with those noted on the nodes: so a client
    /// that starts later finds a step that it has not seen itself.
    fn compare_pairs(&mut self, now: Moment) {
        let allowance = micros(self.allowance());
        let all = || NodeId::all(self.quorum.nodes());
        let pairs = all().flat_map(|node| all().map(move |other| (node, other)));
        let is_ahead = |&(node, other): &(NodeId, NodeId)| {
            let record = &self.records[node.index()];
            let known = record.memory.as_ref().filter(|_| node != other && record.is_heard());
            let most =
                known.and_then(|memory| self.records[other.index()].leads.most(memory.id, now));
            let lead = self.lead(node, other, now);
            most.zip(lead).is_some_and(|(most, lead)| lead.low > most.saturating_add(allowance))
        };
        let ahead: Vec<NodeId> = pairs.filter(is_ahead).map(|(node, _)| node).collect();
        for node in ahead {
            let record = &self.records[node.index()];
            let memory = record.memory.as_ref().map(|memory| memory.id);
            self.raise_alarm(node, memory, (record.looked_at, now));
        }
    }

    /// How much a clock may be wrong: the drift allowance of the shortest lock.
    fn allowance(&self) -> Duration {
        self.drift.of(self.shortest)
    }

    fn suspect(&mut self, node: NodeId, shown: Shown, since: Moment) {
        let nodes = self.quorum.nodes();
        self.has_news |= self.suspicion.is_none();
        let memory = |record: &NodeRecord| record.memory.as_ref().map(|memory| memory.id);
        let suspicion = self.suspicion.get_or_insert_with(|| Suspicion {
            since,
            memories: self.records.iter().map(memory).collect(),
            signs: vec![None; nodes],
            shown: vec![None; nodes],
        });
        suspicion.signs[node.index()] = Some(shown);
    }

    fn raise_alarm(
        &mut self,
        node: NodeId,
        memory: Option<u64>,
        (steady, since): (Moment, Moment),
    ) {
        let record = &mut self.records[node.index()];
        self.has_news |= record.alarm.is_none();
        let steady = record.alarm.map_or(steady, |alarm| alarm.steady.max(steady));
        record.alarm = Some(Alarm { memory, steady, since });
    }

    fn judge(&mut self, now: Moment) {
        let Some(suspicion) = &self.suspicion else {
            return;
        };
        let shown = || suspicion.shown.iter().flatten().copied();
        let leads = || shown().filter_map(Shown::lead);
        let others = shown().count() - leads().count();
        if leads().count() >= self.quorum.size() {
            self.tell_pause(now);
        } else if self.quorum.is_blocked_by(others) || now.since(suspicion.since) >= LOOK_AGAIN {
            let stepped: Vec<_> = NodeId::all(self.quorum.nodes())
                .filter_map(|node| {
                    Some((node, suspicion.latest(node)?, suspicion.memories[node.index()]))
                })
                .filter(|(_, shown, _)| shown.lead().is_some())
                .collect();
            (self.suspicion, self.has_news) = (None, true);
            for (node, shown, memory) in stepped {
                self.tell_step(node, shown, memory);
            }
        }
    }

    /// Records that the clock of a node was stepped, whose memory was `memory` when the step was
    /// first seen.
    fn tell_step(&mut self, node: NodeId, shown: Shown, memory: Option<u64>) {
        let steady = self.clocks.offset(node).map_or(shown.offset.at, |known| known.at);
        self.clocks.begin_anew(node, shown.offset);
        self.raise_alarm(node, memory, (steady, shown.offset.at));
    }

    /// This client was paused: its leases end sooner by the time that they lost. The forward
    /// jump that a quorum of clocks shares is this client's loss; a clock that jumped further was
    /// stepped as well.
    fn tell_pause(&mut self, now: Moment) {
        let Some(suspicion) = self.suspicion.take() else {
            return;
        };
        let mut leads: Vec<Lead> =
            suspicion.shown.iter().flatten().copied().filter_map(Shown::lead).collect();
        leads.sort_unstable_by_key(|lead| std::cmp::Reverse(lead.most));
        let most = leads.get(self.quorum.size() - 1).map_or(Duration::ZERO, |lead| lead.most);
        let least = leads.iter().map(|lead| lead.least).min().unwrap_or_default();
        self.paused_until = now;
        self.lost_time += most;
        self.notices.push(Notice::Paused(most));
        self.has_news = true;
        for node in NodeId::all(self.quorum.nodes()) {
            match suspicion.shown[node.index()] {
                None => self.clocks.shift(node, Lead { least, most }),
                Some(shown)
                    if shown.lead().is_some_and(|it| it.least > most + self.allowance()) =>
                {
                    self.tell_step(node, shown, suspicion.memories[node.index()]);
                }
                Some(shown) => self.clocks.begin_anew(node, shown.offset),
            }
        }
    }
}

impl NodeRecord {
    /// Whether the memory `id`, which began at most `age` before `now`, began after the alarm had
    /// reason to be raised: then another client has dealt with the step.
    pub(super) fn is_alarm_answered(&self, id: u64, age: Duration, now: Moment) -> bool {
        self.alarm.is_some_and(|alarm| alarm.memory != Some(id) && now.before(age) > alarm.steady)
    }
}

impl Suspicion {
    fn latest(&self, node: NodeId) -> Option<Shown> {
        self.shown[node.index()].or(self.signs[node.index()])
    }
}

/// Two readings are compared only if neither is older than this.
const FRESH: Duration = Duration::from_secs(11);
