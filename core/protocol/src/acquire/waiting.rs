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

mod nodes;

use std::sync::Arc;
use std::time::Duration;

use self::nodes::{GRAIN, REFRESH, Standing};
pub(super) use self::nodes::{Places, Waiting};
use super::loss::Loss;
use super::{Acquire, State};
use crate::backoff;
use crate::command::{Answer, Reply};
use crate::error::ErrorKind;
use crate::identity::{Claim, HolderId, NodeId};
use crate::machine::Environment;
use crate::place::{Place, Waiter};
use crate::policy::WaitMode;
use crate::queue::{News, WaitQueue, WakeCause};
use crate::time::Moment;

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
        let is_queued =
            |places: &Places| places.has_place && (places.has_company || self.policy.fair);
        self.places.as_deref().is_some_and(is_queued)
    }

    /// Whether the first thing to do is to take a place.
    pub(super) const fn begins_in_queue(&self) -> bool {
        let may_wait = !matches!(self.policy.retry_limit, Some(0));
        self.queues_first && self.places.is_none() && self.waiter.is_some() && may_wait
    }

    /// The place for a fair grant.
    pub(super) fn fair_place(&mut self, env: &dyn Environment) -> Option<Place> {
        if self.policy.fair { self.place(env) } else { None }
    }

    fn place(&self, env: &dyn Environment) -> Option<Place> {
        if let Some(places) = &self.places {
            return Some(places.place);
        }
        let waiter = self.waiter?;
        let elapsed = env.now().since(self.started).as_micros();
        let now = env.nodes_micros().unwrap_or_else(|| env.wall_micros());
        let arrived = now.saturating_sub(u64::try_from(elapsed).unwrap_or(u64::MAX));
        Some(Place { arrived: arrived.min(LATEST), waiter })
    }

    /// Takes places, and waits. `delay` is the time to the next round where too few nodes can tell; `lost` is the round
    /// before.
    pub(super) fn wait_in_queue(
        &mut self,
        env: &mut dyn Environment,
        delay: Duration,
        lost: Option<&Loss>,
    ) {
        let was_split = lost.is_some_and(|loss| loss.was_split);
        let now = env.now();
        let Some(place) = self.place(env) else {
            self.state = State::BackingOff { until: self.before_the_end(now, now + delay) };
            return;
        };
        let nodes = self.quorum.nodes();
        let random = env.random();
        let places = self.places.get_or_insert_with(|| {
            let (resources, holder) = (self.resources.clone(), HolderId::fresh(random));
            let claim = Arc::new(Claim { resources, holder });
            Box::new(Places {
                place,
                claim,
                asked: vec![false; nodes],
                has_place: false,
                has_company: false,
                splits: 0,
            })
        });
        places.has_company |= self.attempts > 0;
        places.splits = if was_split { places.splits + 1 } else { 0 };
        let most = backoff::doubled(FIRST_SPLIT, places.splits, self.policy.retry_delay);
        let pause =
            if was_split { most.mul_f64(backoff::fraction(random)) } else { Duration::ZERO };
        // A limited number of tries goes on at the usual delays, beside what the nodes tell.
        let is_limited = self.policy.retry_limit.is_some();
        if self.next_counted <= now {
            self.next_counted = now + delay;
        }
        let try_at = if is_limited { self.next_counted } else { self.patience_ends() };
        let ticket = self.ticket();
        let end = |node: usize| lost.and_then(|loss| loss.ends[node]).map(|time| now + time);
        self.state = State::Waiting(Box::new(Waiting {
            ticket,
            nodes: (0..nodes).map(|node| Standing::before_a_look(end(node))).collect(),
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
            self.woken_by = waiting.woken_by();
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
                if let Some(places) = &mut self.places {
                    places.has_place = true;
                    places.has_company |= !queued.is_turn();
                }
            }
            _ => standing.is_told = false,
        }
        if waiting.nodes.iter().all(|node| node.has_answered) {
            waiting.look_ends = waiting.look_ends.min(now);
        }
        // It says as much as a lost round, to a caller whose timeout cuts its first round off.
        if waiting.refused() >= self.quorum.size() {
            self.last_loss = Some(ErrorKind::NotAcquired);
        }
    }

    /// Takes news from a node.
    pub(super) fn take_news(&mut self, env: &mut dyn Environment, node: NodeId, news: News) {
        // What is asked because of the news is no part of a look that is over.
        self.end_look(env);
        let now = env.now();
        let State::Waiting(waiting) = &mut self.state else {
            return;
        };
        let Some(standing) = waiting.nodes.get_mut(node.index()) else {
            return;
        };
        match news {
            // Known already: the node only asks whether this caller still answers.
            News::Freed(_) if standing.freed.is_some() => standing.ask(),
            News::Freed(cause) => {
                standing.freed = Some(cause);
                standing.is_overtaken = !standing.has_answered;
                let before = standing.rank.unwrap_or(0);
                if cause == WakeCause::Watch && before > 0 {
                    waiting.not_before = waiting.not_before.max(now + STAGGER * before);
                }
                waiting.look_by(now + WaitQueue::TURN / 2);
            }
            // Once: the look that follows makes the node send this news again.
            News::Next if standing.is_next => {}
            News::Next => {
                standing.is_next = true;
                waiting.look_by(now + WaitQueue::TURN + GRAIN);
            }
            News::Ping => {}
            News::First | News::Gone => standing.ask(),
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
                return self.finish(self.last_loss.unwrap_or(ErrorKind::NotAcquired));
            }
            self.woken_by = WakeCause::Timer;
            self.state = State::Idle;
            return;
        }
        self.end_look(env);
        let State::Waiting(waiting) = &mut self.state else {
            return;
        };
        if now >= waiting.next_look(self.quorum) {
            waiting.begin_look(now, self.policy.node_timeout(), self.quorum);
        }
    }

    /// Ends the look under way if all have answered, or its time is over.
    fn end_look(&mut self, env: &mut dyn Environment) {
        if let State::Waiting(waiting) = &mut self.state
            && env.now() >= waiting.look_ends
        {
            waiting.end_look();
            self.plan_polling(env);
        }
    }

    /// When a wait has something to do next.
    pub(super) fn wait_ends(&self, waiting: &Waiting) -> Moment {
        let is_free = waiting.freed() >= self.quorum.size();
        let free = if is_free { waiting.not_before } else { Moment::FAR_FUTURE };
        free.min(waiting.try_at).min(waiting.next_look(self.quorum)).min(waiting.look_ends)
    }

    /// The look has ended: where too few nodes can tell that the lock is free, or when its keys end, the next round comes
    /// by itself.
    fn plan_polling(&mut self, env: &mut dyn Environment) {
        let now = env.now();
        let State::Waiting(waiting) = &self.state else {
            return;
        };
        let told_end = waiting.end_of_keys(self.quorum);
        let known_end = waiting.known_end_of_keys(self.quorum);
        let is_told =
            waiting.nodes.iter().filter(|node| node.is_told).count() >= self.quorum.size();
        if is_told && told_end.is_some() && told_end == known_end {
            return;
        }
        let end = known_end.map_or(Moment::FAR_FUTURE, |end| end + waiting.turn() + GRAIN);
        let until = if is_told {
            end
        } else if self.attempts == 0 {
            now
        } else {
            end.min(now + self.retry_delay(env))
        };
        let until = self.before_the_end(now, until.max(now));
        if let State::Waiting(waiting) = &mut self.state {
            waiting.try_at = waiting.try_at.min(until);
        }
    }
}

/// How much later each caller tries than the one before it, where all of them watch the key.
const STAGGER: Duration = Duration::from_millis(5);
/// How long to pause, at most, after the first round that split the votes.
const FIRST_SPLIT: Duration = Duration::from_millis(5);
/// The latest arrival that Lua keeps exact.
const LATEST: u64 = (1 << 53) - 1;
