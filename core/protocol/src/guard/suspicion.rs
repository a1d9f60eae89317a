//! Whether a node's clock was stepped, or this client stood still. Owns the judgement of clocks; knows
//! no canary.

use std::time::Duration;

use super::checkup::{Ruling, Skew};
use super::clocks::{ClockReading, Lead, Offset, Step, duration, micros};
use super::{Contact, Guards, LOOK_AGAIN, Notice, Seat};
use crate::identity::NodeId;
use crate::time::Moment;

/// Some clock jumped ahead: what all nodes have shown since.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Suspicion {
    since: Moment,
    /// What raised it: only what was asked later tells whether this client stood still before.
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

impl Guards {
    /// A node told its time: whether it is one that its clock may show, so that its grant counts.
    pub fn handle_clock(&mut self, node: NodeId, reading: ClockReading) -> bool {
        if !self.watches_clocks {
            return true;
        }
        if self.spans_pause(reading) {
            return false;
        }
        let (step, offset) = self.clocks.compare(node, reading, self.allowance());
        let shown = Shown { step, offset };
        let rate = self.rates.compare(node, reading, self.allowance(), self.drift);
        self.notices.extend(rate.map(|rate| Notice::ClockRate(node, rate)));
        match step {
            Step::Steady => self.clocks.accept(node, offset),
            Step::Behind(by) => {
                self.clocks.accept(node, offset);
                self.notices.push(Notice::ClockSetBack(node, by));
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

    /// Whether the node was asked before this client was found to have stood still. Then it may have answered before
    /// that: by a clock that stood still meanwhile, its own would seem to have been set back.
    pub(super) fn spans_pause(&self, reading: ClockReading) -> bool {
        reading.sent < self.paused_until
    }

    /// The time that this client was found to have lost since this was last asked: the driver is to set its lease
    /// clock forward by it, and not the clock that the guards go by.
    pub fn take_lost_time(&mut self) -> Duration {
        std::mem::take(&mut self.lost_time)
    }

    /// What the clocks add to a node whose memory is trusted; `None` if nothing.
    pub(super) fn rule_clock(&mut self, now: Moment, node: NodeId) -> Option<Ruling> {
        if !self.watches_clocks {
            return None;
        }
        self.judge(now);
        if let Some(suspicion) = &self.suspicion
            && suspicion.latest(node).is_some_and(|shown| shown.lead().is_some())
        {
            return Some(Ruling::Undecided(suspicion.since + LOOK_AGAIN));
        }
        if self.seats[node.index()].alarm.is_some() {
            return Some(Ruling::Undecided(now));
        }
        self.rule_newcomer(now, node)
    }

    /// How the node's clock stands to those of the others, if that can be told now.
    pub(super) fn skew_of(&self, node: NodeId, now: Moment) -> Option<Skew> {
        let is_sure = self.suspicion.is_none()
            && self.seats.iter().all(Seat::has_steady_clock)
            && self.all_offsets().all(|it| it.is_some_and(|it| now.since(it.at) < FRESH));
        if !self.watches_clocks || !is_sure {
            return None;
        }
        let own = self.clocks.offset(node)?.aged(now);
        let seen = own.over(self.clocks.median(now)?);
        let shows = own.shows_at(now);
        // Whoever was here before may have seen it better.
        let noted = self.seats[node.index()].valid_skew().map(|skew| skew.bounds(shows, now));
        let skew = noted.map_or(seen, |noted| seen.narrowed_by(noted));
        Some(Skew {
            ahead_micros: skew.middle(),
            uncertainty_micros: skew.uncertainty(),
            node_micros: u64::try_from(shows).ok()?,
        })
    }

    /// Whether the node is to be looked at so that its clock is noted there.
    pub(super) fn notes(&self, node: NodeId) -> bool {
        let seat = &self.seats[node.index()];
        seat.noting == Some(seat.born) && seat.valid_skew().is_none()
    }

    /// Wherever the note of a clock is void, newcomers could not tell the next step: once all clocks are
    /// known here, they are noted anew. Tried once for each memory of a node.
    pub(super) fn set_about_noting(&mut self, now: Moment) {
        for node in NodeId::all(self.quorum.nodes()) {
            let seat = &self.seats[node.index()];
            let is_due = seat.memory.is_some()
                && seat.valid_skew().is_none()
                && seat.noting != Some(seat.born)
                && !self.longest.is_zero();
            if is_due && self.skew_of(node, now).is_some() {
                let seat = &mut self.seats[node.index()];
                (seat.noting, self.has_news) = (Some(seat.born), true);
            }
        }
    }

    fn all_offsets(&self) -> impl Iterator<Item = Option<Offset>> {
        NodeId::all(self.quorum.nodes()).map(|node| self.clocks.offset(node))
    }

    /// What a clock may be off: what the shortest lock allows for.
    fn allowance(&self) -> Duration {
        self.drift.of(self.shortest)
    }

    fn suspect(&mut self, node: NodeId, shown: Shown, since: Moment) {
        let nodes = self.quorum.nodes();
        let suspicion = self.suspicion.get_or_insert_with(|| Suspicion {
            since,
            signs: vec![None; nodes],
            shown: vec![None; nodes],
        });
        self.has_news |= suspicion.since == since;
        suspicion.signs[node.index()] = Some(shown);
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
                .filter_map(|node| Some((node, suspicion.latest(node)?)))
                .filter(|(_, shown)| shown.lead().is_some())
                .collect();
            for (node, shown) in stepped {
                self.clocks.accept(node, shown.offset);
                self.seats[node.index()].alarm = Some(now);
            }
            (self.suspicion, self.has_news) = (None, true);
        }
    }

    /// This client stood still: its lease clock is to be set forward by what it has lost at the most. Whatever is
    /// waited for here goes by a clock that is not, since what was lost is no waiting.
    fn tell_pause(&mut self, now: Moment) {
        let Some(suspicion) = self.suspicion.take() else {
            return;
        };
        let leads = || suspicion.shown.iter().flatten().copied().filter_map(Shown::lead);
        // Every clock shows what was lost, and one that was stepped as well shows more.
        let lost = leads().map(|it| it.most).max().unwrap_or_default();
        let least = leads().map(|it| it.least).min().unwrap_or_default();
        let most = leads().map(|it| it.most).min().unwrap_or_default();
        for node in NodeId::all(self.quorum.nodes()) {
            let Some(shown) = suspicion.shown[node.index()] else {
                self.clocks.shift(node, Lead { least, most });
                continue;
            };
            self.clocks.accept(node, shown.offset);
            if shown.lead().is_some_and(|it| it.least > most + self.allowance()) {
                self.seats[node.index()].alarm = Some(now);
            }
        }
        self.rates.begin_anew();
        self.paused_until = now;
        self.lost_time += lost;
        self.notices.push(Notice::Paused(lost));
        self.has_news = true;
    }

    /// A client that comes anew has seen no clock before: it compares how the clocks stand to each other
    /// with what others have noted of that.
    fn rule_newcomer(&mut self, now: Moment, node: NodeId) -> Option<Ruling> {
        let own = self.lead_over_notes(node, now);
        let Some(own) = own.filter(|_| !self.seats[node.index()].is_compared) else {
            self.seats[node.index()].is_compared = true;
            return None;
        };
        let allowance = micros(self.allowance());
        let others: Vec<Offset> = NodeId::all(self.quorum.nodes())
            .filter_map(|other| self.lead_over_notes(other, now))
            .collect();
        let is_like = |other: &&Offset| {
            own.low <= other.high.saturating_add(allowance)
                && other.low <= own.high.saturating_add(allowance)
        };
        let alike = others.iter().filter(is_like).count();
        if alike < self.quorum.size() && !self.all_contacted() {
            return Some(Ruling::Undecided(now + LOOK_AGAIN));
        }
        self.seats[node.index()].is_compared = true;
        let is_ahead = others.iter().any(|it| own.low > it.high.saturating_add(allowance));
        if alike < self.quorum.size() && is_ahead {
            self.seats[node.index()].alarm = Some(now);
            self.has_news = true;
            return Some(Ruling::Undecided(now));
        }
        None
    }

    /// How far the node's clock has moved against what its note says of it.
    fn lead_over_notes(&self, node: NodeId, now: Moment) -> Option<Offset> {
        let seat = &self.seats[node.index()];
        let skew = seat.valid_skew()?;
        let offset = self.clocks.offset(node).filter(|_| seat.contact == Contact::Heard)?;
        Some(offset.over(skew.bounds(offset.shows_at(now), now)))
    }
}

impl Skew {
    /// Between which bounds the clock lies by now, when it shows so many microseconds.
    fn bounds(self, shows: i64, at: Moment) -> Offset {
        let slack = i64::try_from(self.uncertainty_micros).unwrap_or(i64::MAX);
        let noted_at = i64::try_from(self.node_micros).unwrap_or(i64::MAX);
        let low = self.ahead_micros.saturating_sub(slack);
        let noted = Offset { low, high: self.ahead_micros.saturating_add(slack), at };
        noted.widened(duration(shows.saturating_sub(noted_at)))
    }
}

impl Seat {
    /// What was noted of its clock. A note from before a quarantine may tell of a step that has been
    /// waited out.
    fn valid_skew(&self) -> Option<Skew> {
        self.notes.skew.filter(|skew| skew.node_micros >= self.born)
    }

    /// Whether what its clock shows may be noted: what was noted before was held against it first.
    fn has_steady_clock(&self) -> bool {
        self.is_compared && self.alarm.is_none() && self.waits.is_none()
    }
}

impl Suspicion {
    fn latest(&self, node: NodeId) -> Option<Shown> {
        self.shown[node.index()].or(self.signs[node.index()])
    }
}

/// How old an offset may be to be noted.
const FRESH: Duration = Duration::from_secs(60);
