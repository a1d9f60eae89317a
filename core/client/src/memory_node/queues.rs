//! The queues of a node inside this process, and where news for their waiters goes. Owns which waiter gets
//! which news; the queue owns the order.

use std::collections::HashMap;
use std::time::Duration;

use quorlock_protocol::{Moment, News, Place, Queued, Tell, WaitQueue, Waiter, WakeCause};

use crate::inbox::ReplyTo;

/// The queues of one node, by lock key.
#[derive(Default)]
pub(super) struct Queues {
    queues: HashMap<String, WaitQueue>,
    /// The waiters of this process, which are all that there are.
    listening: HashMap<Waiter, ReplyTo>,
}

impl Queues {
    /// Takes or keeps a place; `ends` says until when each key is held.
    pub(super) fn enqueue(
        &mut self,
        now: Moment,
        locks: &[String],
        ends: &[Option<Moment>],
        place: Place,
        reply_to: &ReplyTo,
    ) -> Queued {
        self.listening.insert(place.waiter, reply_to.clone());
        let mut rank = Some(0);
        for (lock, end) in locks.iter().zip(ends) {
            let known = self.queues.get(lock).is_some_and(|queue| queue.rank(place).is_some());
            if locks.len() > 1 && end.is_none() && !known {
                continue;
            }
            self.queues.entry(lock.clone()).or_default();
            let look = |queue: &mut WaitQueue, tell: &mut Tell<'_>| {
                queue.look(now, place, end.is_none(), tell)
            };
            let own = self.with(lock, look).flatten();
            rank = rank.zip(own).map(|(most, own)| most.max(own));
        }
        Queued { rank, is_free: ends.iter().all(Option::is_none), is_told: true }
    }

    /// Gives the places up.
    pub(super) fn leave(&mut self, now: Moment, locks: &[String], free: &[bool], place: Place) {
        self.listening.remove(&place.waiter);
        for (lock, is_free) in locks.iter().zip(free) {
            self.with(lock, |queue, tell| queue.leave(now, place, *is_free, tell));
        }
    }

    /// The key is free: calls the first waiter.
    pub(super) fn call(&mut self, now: Moment, lock: &str) {
        self.with(lock, |queue, tell| queue.call(now, tell));
    }

    /// Whether an earlier caller waits.
    pub(super) fn is_behind(&mut self, now: Moment, locks: &[String], place: Place) -> bool {
        let is_behind = |lock: &String| {
            self.with(lock, |queue, tell| queue.is_behind(now, place, tell)).unwrap_or_default()
        };
        locks.iter().any(is_behind)
    }

    /// The number of waiters in the longest of the queues.
    pub(super) fn count(&self, now: Moment, locks: &[String]) -> u32 {
        let counts = locks.iter().filter_map(|lock| self.queues.get(lock));
        let most = counts.map(|queue| queue.count(now)).max().unwrap_or(0);
        u32::try_from(most).unwrap_or(u32::MAX)
    }

    /// The key has changed: it is gone, or held for this time from now. The first watches it, as on a server.
    pub(super) fn show(&mut self, lock: &str, left: Option<Duration>) {
        self.with(lock, |queue, tell| {
            let news = left.map_or(News::Freed(WakeCause::Watch), News::Held);
            queue.first().map(|first| tell(first.waiter, news));
        });
    }

    fn with<T>(
        &mut self,
        lock: &str,
        act: impl FnOnce(&mut WaitQueue, &mut Tell<'_>) -> T,
    ) -> Option<T> {
        let queue = self.queues.get_mut(lock)?;
        let listening = &self.listening;
        let result = act(queue, &mut |waiter, news| {
            let listener = listening.get(&waiter);
            if let Some(listener) = listener {
                listener.deliver_news(news);
            }
            listener.is_some()
        });
        if queue.is_empty() {
            self.queues.remove(lock);
        }
        Some(result)
    }
}
