//! The wait in the nodes' queues: the caller has a place on every node, and tries when a quorum says that the lock is
//! free and that it is its turn. Owns when to look and when to try; votes are a round's.
//!
//! ```text
//!   lost round ──▶ look (Enqueue to all) ──▶ wait ──quorum free, or time to try──▶ next round
//!                        ▲                    │
//!                        └── news, a timer ───┘
//! ```
//!
//! A *look* takes or keeps the place and tells how the lock stands. News only ends the wait sooner: a round that it
//! leads to is counted like any other. Nodes that cannot tell their waiters count for nothing here; if too few can,
//! rounds follow after the retry delay, as without queues.

use std::sync::Arc;
use std::time::Duration;

use super::{Acquire, State};
use crate::backoff;
use crate::command::{Action, Answer, Command, Frees, Reply, Ticket};
use crate::identity::{Claim, HolderId, NodeId};
use crate::machine::Environment;
use crate::place::{Place, Queued, Waiter};
use crate::policy::WaitMode;
use crate::queue::{News, WaitQueue, WakeCause};
use crate::quorum::Quorum;
use crate::time::Moment;

/// The places of one acquisition, from its first look to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seat {
    place: Place,
    claim: Arc<Claim>,
    /// The nodes that may have the place.
    asked: Vec<bool>,
    /// The lock was held, or another came before: somebody may wait behind this one, too.
    has_company: bool,
    /// Rounds in a row that some nodes granted and that were lost all the same.
    splits: u32,
}

/// A wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    ticket: Ticket,
    nodes: Vec<Standing>,
    /// Until when the answers to the look under way are waited for; the far future between looks.
    look_ends: Moment,
    /// When the place is kept next, and the lock looked at, if nothing happens before.
    refresh_at: Moment,
    /// When news asks for a look; the far future if none does.
    look_at: Moment,
    /// When the next round begins, whatever the nodes say.
    try_at: Moment,
    /// No round begins before.
    not_before: Moment,
}

/// How the lock stands on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Standing {
    /// It is to be asked.
    wanted: bool,
    has_answered: bool,
    is_told: bool,
    rank: Option<u32>,
    /// The lock is free there, it is this caller's turn, and how the caller learned that.
    freed: Option<WakeCause>,
    /// The lock is free there, and the caller before this one has its turn.
    is_next: bool,
    frees_at: Option<Moment>,
}

impl Acquire {
    /// Lets the acquisition wait in the nodes' queues, under this name, if its policy says so.
    #[must_use]
    pub fn queued_as(mut self, waiter: Waiter) -> Self {
        self.waiter = Some(waiter).filter(|_| self.policy.wait == WaitMode::Push);
        self
    }

    /// Whether it waits in the nodes' queues now.
    pub const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting(_))
    }

    /// Whether it has taken places, and others may wait beside it.
    pub(super) fn was_queued(&self) -> bool {
        self.seat.as_ref().is_some_and(|seat| seat.has_company || self.policy.fair)
    }

    /// Whether the first thing to do is to take a place.
    pub(super) const fn begins_in_queue(&self) -> bool {
        let may_wait = !matches!(self.policy.retry_limit, Some(0));
        self.queues_first && self.seat.is_none() && self.waiter.is_some() && may_wait
    }

    /// The place for a fair grant.
    pub(super) fn fair_place(&mut self, env: &dyn Environment) -> Option<Place> {
        if self.policy.fair { self.place(env) } else { None }
    }

    fn place(&self, env: &dyn Environment) -> Option<Place> {
        if let Some(seat) = &self.seat {
            return Some(seat.place);
        }
        let waiter = self.waiter?;
        let waited = env.now().since(self.started).as_micros();
        let now = env.nodes_micros().unwrap_or_else(|| env.wall_micros());
        let arrived = now.saturating_sub(u64::try_from(waited).unwrap_or(u64::MAX));
        Some(Place { arrived: arrived.min(LATEST), waiter })
    }

    /// Takes places, and waits. `delay` is the time to the next round where too few nodes can tell; `was_split` says
    /// that some nodes granted the last round.
    pub(super) fn wait_in_queue(
        &mut self,
        env: &mut dyn Environment,
        delay: Duration,
        was_split: bool,
    ) {
        let now = env.now();
        let Some(place) = self.place(env) else {
            self.state = State::BackingOff { until: self.before_the_end(now, now + delay) };
            return;
        };
        let nodes = self.quorum.nodes();
        let random = env.random();
        let seat = self.seat.get_or_insert_with(|| {
            let (resources, holder) = (self.resources.clone(), HolderId::fresh(random));
            let claim = Arc::new(Claim { resources, holder });
            Box::new(Seat {
                place,
                claim,
                asked: vec![false; nodes],
                has_company: false,
                splits: 0,
            })
        });
        seat.has_company |= self.attempts > 0;
        seat.splits = if was_split { seat.splits + 1 } else { 0 };
        let most = backoff::doubled(FIRST_SPLIT, seat.splits, self.policy.retry_delay);
        let pause =
            if was_split { most.mul_f64(backoff::fraction(random)) } else { Duration::ZERO };
        // A limited number of tries goes on at the usual delays, beside what the nodes tell.
        let is_limited = self.policy.retry_limit.is_some();
        self.next_counted = self.next_counted.max(now);
        if self.next_counted == now {
            self.next_counted = now + delay;
        }
        let try_at = if is_limited { self.next_counted } else { Moment::FAR_FUTURE };
        let ticket = self.ticket();
        self.state = State::Waiting(Box::new(Waiting {
            ticket,
            nodes: vec![Standing::UNKNOWN; nodes],
            look_ends: now + self.policy.node_timeout(),
            refresh_at: now + REFRESH,
            look_at: Moment::FAR_FUTURE,
            try_at: self.before_the_end(now, try_at),
            not_before: now + pause,
        }));
    }

    /// Begins the next round if it is time to.
    pub(super) fn judge_wait(&mut self, now: Moment) {
        let State::Waiting(waiting) = &self.state else {
            return;
        };
        if now >= waiting.not_before && waiting.freed() >= self.quorum.size() {
            self.pushed += 1;
            self.state = State::Idle;
        }
    }

    /// Takes the answer to a look.
    pub(super) fn handle_look(&mut self, now: Moment, node: NodeId, reply: &Reply) {
        let State::Waiting(waiting) = &mut self.state else {
            return;
        };
        let Some(standing) = waiting.nodes.get_mut(node.index()) else {
            return;
        };
        if reply.ticket != waiting.ticket {
            return;
        }
        standing.has_answered = true;
        match reply.answer {
            Ok(Answer::Queued { queued, frees }) => {
                standing.take(now, queued, frees);
                if let Some(seat) = &mut self.seat {
                    seat.has_company |= !queued.is_turn();
                }
            }
            _ => standing.is_told = false,
        }
        if waiting.nodes.iter().all(|node| node.has_answered) {
            waiting.look_ends = waiting.look_ends.min(now);
        }
    }

    /// Takes news from a node.
    pub(super) fn take_news(&mut self, now: Moment, node: NodeId, news: News) {
        let State::Waiting(waiting) = &mut self.state else {
            return;
        };
        let Some(standing) = waiting.nodes.get_mut(node.index()) else {
            return;
        };
        match news {
            // It is known: the call only asks whether this caller is still there.
            News::Freed(_) if standing.freed.is_some() => standing.wanted = true,
            News::Freed(cause) => {
                standing.freed = Some(cause);
                let before = standing.rank.unwrap_or(0);
                if cause == WakeCause::Watch && before > 0 {
                    waiting.not_before = waiting.not_before.max(now + STAGGER * before);
                }
                waiting.look_by(now + WaitQueue::TURN / 2);
            }
            // Once: the look that follows makes the node tell it again.
            News::Next if standing.is_next => {}
            News::Next => {
                standing.is_next = true;
                waiting.look_by(now + WaitQueue::TURN + GRAIN);
            }
            News::First | News::Gone => standing.wanted = true,
            News::Held(left) => {
                standing.freed = None;
                standing.frees_at = Some(now + left);
            }
        }
    }

    /// Time has passed while it waited.
    pub(super) fn handle_wait_timeout(&mut self, env: &mut dyn Environment) {
        let now = env.now();
        let State::Waiting(waiting) = &mut self.state else {
            return;
        };
        if now >= waiting.try_at {
            if now >= self.give_up {
                return self.finish(self.last_loss.unwrap_or(crate::ErrorKind::NotAcquired));
            }
            self.state = State::Idle;
            return;
        }
        if now >= waiting.look_ends {
            waiting.look_ends = Moment::FAR_FUTURE;
            self.plan_polling(env);
        }
        let State::Waiting(waiting) = &mut self.state else {
            return;
        };
        if now >= waiting.next_look(self.quorum) {
            waiting.begin_look(now, self.policy.node_timeout());
        }
    }

    /// When a wait has something to do next.
    pub(super) fn wait_ends(&self, waiting: &Waiting) -> Moment {
        let is_free = waiting.freed() >= self.quorum.size();
        let free = if is_free { waiting.not_before } else { Moment::FAR_FUTURE };
        free.min(waiting.try_at).min(waiting.next_look(self.quorum)).min(waiting.look_ends)
    }

    /// The look has ended: where too few nodes can tell, the next round comes by itself.
    fn plan_polling(&mut self, env: &mut dyn Environment) {
        let now = env.now();
        let State::Waiting(waiting) = &self.state else {
            return;
        };
        if waiting.nodes.iter().filter(|node| node.is_told).count() >= self.quorum.size() {
            return;
        }
        let delay = if self.attempts == 0 { Duration::ZERO } else { self.retry_delay(env) };
        let soonest = waiting.nodes.iter().filter_map(|node| node.frees_at).min();
        let until = soonest.map_or(now + delay, |end| (now + delay).min(end + GRAIN));
        let until = self.before_the_end(now, until.max(now));
        if let State::Waiting(waiting) = &mut self.state {
            waiting.try_at = waiting.try_at.min(until);
        }
    }
}

impl Waiting {
    /// The next command for the queues.
    pub(super) fn poll_send(&mut self, seat: &mut Seat) -> Option<(NodeId, Command)> {
        let index = self.nodes.iter().position(|node| node.wanted)?;
        self.nodes[index].wanted = false;
        seat.asked[index] = true;
        let by =
            if self.look_ends == Moment::FAR_FUTURE { self.refresh_at } else { self.look_ends };
        seat.command(index, self.ticket, Action::Enqueue { place: seat.place }, by)
    }

    fn freed(&self) -> usize {
        self.nodes.iter().filter(|node| node.freed.is_some()).count()
    }

    fn look_by(&mut self, at: Moment) {
        self.look_at = self.look_at.min(at);
    }

    fn next_look(&self, quorum: Quorum) -> Moment {
        self.refresh_at.min(self.look_at).min(self.after_keys(quorum))
    }

    /// When the holders' keys will have ended on a quorum. A caller behind others gives each of them the time of a
    /// turn first.
    fn after_keys(&self, quorum: Quorum) -> Moment {
        let mut ends: Vec<_> = self.nodes.iter().filter_map(|node| node.frees_at).collect();
        ends.sort_unstable();
        let before = self.nodes.iter().filter_map(|node| node.rank).min().unwrap_or(0);
        // No look is worth its messages while no round may begin.
        ends.get(quorum.size() - 1).map_or(Moment::FAR_FUTURE, |end| {
            (*end + WaitQueue::TURN * before).max(self.not_before) + GRAIN
        })
    }

    /// Asks every node. What they say from now on replaces what they said before.
    fn begin_look(&mut self, now: Moment, node_timeout: Duration) {
        self.look_ends = now + node_timeout;
        (self.refresh_at, self.look_at) = (now + REFRESH, Moment::FAR_FUTURE);
        for node in &mut self.nodes {
            (node.wanted, node.has_answered, node.frees_at) = (true, false, None);
        }
    }
}

impl Standing {
    const UNKNOWN: Self = Self {
        wanted: true,
        has_answered: false,
        is_told: false,
        rank: None,
        freed: None,
        is_next: false,
        frees_at: None,
    };

    /// What a look found. News that the lock is free may have overtaken it, and stays.
    fn take(&mut self, now: Moment, queued: Queued, frees: Frees) {
        self.is_told = queued.is_told;
        self.rank = queued.rank;
        if queued.is_turn() {
            self.freed = self.freed.or(Some(WakeCause::Timer));
        }
        self.is_next &= queued.is_free;
        self.frees_at = match frees {
            _ if queued.is_free => Some(now),
            Frees::In(left) => Some(now + left),
            Frees::Never | Frees::Unknown => None,
        };
    }
}

impl Seat {
    /// After the end: the next node that is told that the place is given up.
    pub(super) fn poll_leave(&mut self, ticket: u32) -> Option<(NodeId, Command)> {
        let index = self.asked.iter().position(|asked| *asked)?;
        self.asked[index] = false;
        let action = Action::Leave { place: self.place };
        self.command(index, Ticket(ticket), action, Moment::FAR_FUTURE)
    }

    fn command(
        &self,
        index: usize,
        ticket: Ticket,
        action: Action,
        not_after: Moment,
    ) -> Option<(NodeId, Command)> {
        let node = NodeId::all(self.asked.len()).nth(index)?;
        let claim = Arc::clone(&self.claim);
        Some((node, Command { ticket, claim, action, not_after }))
    }
}

/// How often a place is kept and the lock looked at, at least.
const REFRESH: Duration = Duration::from_secs(3);
/// Nodes expire keys at a grain of 1 ms.
const GRAIN: Duration = Duration::from_millis(2);
/// How much later each caller tries than the one before it, where all of them watch the key.
const STAGGER: Duration = Duration::from_millis(5);
/// How long to pause, at most, after the first round that split the votes.
const FIRST_SPLIT: Duration = Duration::from_millis(5);
/// The latest arrival that Lua keeps exact.
const LATEST: u64 = (1 << 53) - 1;
