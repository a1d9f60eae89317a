//! The queues of waiters on a node of the world: the shipping `WaitQueue`, one for each resource. Owns who is told
//! what; the world carries the messages.

use std::time::Duration;

use quorlock_protocol::{Answer, Frees, Moment, News, Place, Queued, Waiter};

use super::{Request, Site};

/// Keeps what the queues of a node tell those who listen: the clients, as bits, whose wake connection stands.
fn telling(
    listeners: u64,
    told: &mut Vec<(Waiter, News)>,
) -> impl FnMut(Waiter, News) -> bool + '_ {
    move |waiter, news| {
        let listens = listeners >> waiter.process & 1 == 1;
        // That is heard and says nothing, so that no message stands for it.
        if listens && news != News::Ping {
            told.push((waiter, news));
        }
        listens
    }
}

impl Site {
    /// Takes or keeps a place in every queue, and tells how the lock stands.
    pub(super) fn enqueue(&mut self, request: &Request, place: Place) -> Answer {
        let now = moment(request.clock);
        let mut rank = Some(0);
        for resource in request.resources.iter().map(|it| usize::from(*it)) {
            let is_free = self.keys[resource].is_none();
            let queue = &mut self.queues[resource];
            if request.resources.len() > 1 && is_free && queue.rank(place).is_none() {
                continue;
            }
            let mut tell = telling(request.listeners, &mut self.told);
            let own = queue.look(now, place, is_free, &mut tell);
            rank = rank.zip(own).map(|(most, own)| most.max(own));
        }
        let keys = || request.resources.iter().map(|it| self.keys[usize::from(*it)]);
        let is_free = keys().all(|key| key.is_none());
        let frees = keys().flatten().map(|key| key.expires).max().map_or(Frees::Unknown, |end| {
            Frees::In(Duration::from_millis(end.saturating_sub(request.clock)))
        });
        let is_told = request.listeners >> place.waiter.process & 1 == 1;
        Answer::Queued { queued: Queued { rank, is_free, is_told }, frees }
    }

    /// Gives the place up in every queue.
    pub(super) fn leave_queue(&mut self, request: &Request, place: Place) -> Answer {
        for resource in request.resources.iter().map(|it| usize::from(*it)) {
            let mut tell = telling(request.listeners, &mut self.told);
            let is_free = self.keys[resource].is_none();
            self.queues[resource].leave(moment(request.clock), place, is_free, &mut tell);
        }
        Answer::Done
    }

    /// Gives up the place of a waiter that its process does not know any more.
    pub(crate) fn drop_place(&mut self, waiter: Waiter, listeners: u64, clock: u64) {
        let now = moment(clock);
        for (queue, key) in self.queues.iter_mut().zip(&self.keys) {
            let place = queue.places(now).find(|place| place.waiter == waiter);
            if let Some(place) = place {
                queue.leave(now, place, key.is_none(), &mut telling(listeners, &mut self.told));
            }
        }
    }

    /// How many wait in the longest of the queues.
    pub(super) fn count_waiters(&self, request: &Request) -> Answer {
        let queues = request.resources.iter().map(|it| &self.queues[usize::from(*it)]);
        let most = queues.map(|queue| queue.count(moment(request.clock))).max().unwrap_or(0);
        Answer::Waiters(u32::try_from(most).unwrap_or(u32::MAX))
    }

    /// For each key that is free, calls the first who waits for it.
    pub(super) fn call_first(&mut self, request: &Request) {
        for resource in request.resources.iter().map(|it| usize::from(*it)) {
            if self.keys[resource].is_none() {
                let mut tell = telling(request.listeners, &mut self.told);
                self.queues[resource].call(moment(request.clock), &mut tell);
            }
        }
    }

    /// Whether somebody waits who came before `place`; that one is called then.
    pub(super) fn is_behind(&mut self, request: &Request, place: Place) -> bool {
        let mut is_behind = false;
        for resource in request.resources.iter().map(|it| usize::from(*it)) {
            let mut tell = telling(request.listeners, &mut self.told);
            let queue = &mut self.queues[resource];
            is_behind |= queue.is_behind(moment(request.clock), place, &mut tell);
        }
        is_behind
    }
}

/// The node's clock as queues take it.
pub(crate) fn moment(clock: u64) -> Moment {
    Moment::default() + Duration::from_millis(clock)
}
