//! The queue for one lock key on one node, as the Lua scripts keep it on a server. Owns its rules; in-memory nodes and
//! the model use it as it is.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::place::{Place, Waiter};
use crate::time::Moment;

/// News from a node for a waiter. It is only a hint: it can end a wait, and never counts as a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum News {
    /// The keys are free, and it is this waiter's turn.
    Freed(WakeCause),
    /// The waiter before this one has its turn now. If it does not use it, this one is next.
    Next,
    /// The waiter has become the first, and the keys are still held.
    First,
    /// Somebody behind the waiter makes sure that its process still listens. Says nothing else.
    Ping,
    /// The keys are held for this time from now, unless they are released or extended.
    Held(Duration),
    /// What the node said before may be out of date: its wake connection was lost and is back.
    Gone,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WakeCause {
    /// The release called this waiter.
    Push,
    /// The waiter watched the key, and saw that it was gone.
    Watch,
    /// A timer: the holder's keys have ended, or a look found the lock free.
    Timer,
}

impl WakeCause {
    /// Every cause, in a fixed order.
    pub const ALL: [Self; 3] = [Self::Push, Self::Watch, Self::Timer];

    /// The word for it: `push`, `watch` or `timer`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Watch => "watch",
            Self::Timer => "timer",
        }
    }
}

/// Sends news to a waiter; tells whether its process listens.
pub type Tell<'a> = dyn FnMut(Waiter, News) -> bool + 'a;

/// The queue for one lock key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct WaitQueue {
    /// In order, each with the moment until which it counts.
    places: BTreeMap<Place, Moment>,
}

impl WaitQueue {
    /// How long a place counts after the waiter's last command.
    pub const LIFE: Duration = Duration::from_secs(10);
    /// How long a waiter that was called may take before the next one is called.
    pub const TURN: Duration = Duration::from_millis(50);
    /// The most places in one queue.
    pub const MOST: usize = 10_000;
    /// After how long without a word from the first those behind it have it asked whether its process still listens.
    pub const SILENT: Duration = Duration::from_secs(1);
    /// How many places that do not count are dropped, or waiters called, in one step.
    const STEP: usize = 16;

    /// A caller looks: it takes or keeps its place, and sees to it that the first hears what it should, since nobody
    /// else may know that the key is free (`is_free`), or that the first is gone. Returns how many are before it, or
    /// `None` if there is no room.
    pub fn look(
        &mut self,
        now: Moment,
        place: Place,
        is_free: bool,
        tell: &mut Tell<'_>,
    ) -> Option<u32> {
        if self.enqueue(now, place)? == 0 {
            return Some(0);
        }
        if is_free {
            self.call(now, tell);
        } else {
            self.check_first(now, tell);
        }
        self.rank(place)
    }

    /// Takes or keeps a place; returns how many are before it, or `None` if there is no room.
    fn enqueue(&mut self, now: Moment, place: Place) -> Option<u32> {
        self.drop_ended(now);
        if self.places.contains_key(&place) || self.places.len() < Self::MOST {
            self.places.insert(place, now + Self::LIFE);
        }
        self.rank(place)
    }

    /// How many places are before this one.
    pub fn rank(&self, place: Place) -> Option<u32> {
        let before = self.places.keys().position(|other| *other == place)?;
        u32::try_from(before).ok()
    }

    /// Gives a place up. If it was the first, the next waiter is called (`is_free`), or told that it is first.
    pub fn leave(&mut self, now: Moment, place: Place, is_free: bool, tell: &mut Tell<'_>) {
        let was_first = self.rank(place) == Some(0);
        self.places.remove(&place);
        if !was_first {
            return;
        }
        if is_free {
            self.call(now, tell);
        } else {
            self.tell_at(0, News::First, tell);
        }
    }

    /// The key is free: calls the first waiter, and tells the one behind it that its turn may be next. A waiter whose
    /// process does not listen loses its place, and so does one that lets its turn pass.
    pub fn call(&mut self, now: Moment, tell: &mut Tell<'_>) {
        self.drop_ended(now);
        if let Some(first) = self.tell_at(0, News::Freed(WakeCause::Push), tell) {
            let end = now + Self::TURN;
            self.places.entry(first).and_modify(|until| *until = (*until).min(end));
            self.tell_at(1, News::Next, tell);
        }
    }

    /// Asks whether the first waiter's process still listens, while the key is held: no other waiter learns of a release
    /// by a client that knows no queue. Asks nothing during its turn, or if it has looked less than [`Self::SILENT`] ago.
    fn check_first(&mut self, now: Moment, tell: &mut Tell<'_>) {
        let Some((first, until)) = self.places.first_key_value() else {
            return;
        };
        let (first, left) = (*first, until.since(now));
        let is_silent = left > Self::TURN && left <= Self::LIFE.saturating_sub(Self::SILENT);
        if is_silent && !tell(first.waiter, News::Ping) {
            self.places.remove(&first);
            self.tell_at(0, News::First, tell);
        }
    }

    /// Tells the waiter at this rank, and returns its place. One whose process does not listen loses its place, and the
    /// one behind it is told.
    fn tell_at(&mut self, rank: usize, news: News, tell: &mut Tell<'_>) -> Option<Place> {
        for _ in 0..Self::STEP {
            let place = self.places.keys().nth(rank).copied()?;
            if tell(place.waiter, news) {
                return Some(place);
            }
            self.places.remove(&place);
        }
        None
    }

    /// Whether an earlier caller than that of `place` waits, once those that do not answer are dropped: a fair grant is
    /// refused then, and the first is called.
    pub fn is_behind(&mut self, now: Moment, place: Place, tell: &mut Tell<'_>) -> bool {
        self.drop_ended(now);
        let is_behind = |queue: &Self| queue.places.keys().next().is_some_and(|it| *it < place);
        if !is_behind(self) {
            return false;
        }
        self.call(now, tell);
        is_behind(self)
    }

    /// The first in the queue, which watches the key.
    pub fn first(&self) -> Option<Place> {
        self.places.keys().next().copied()
    }

    /// How many places count at `now`.
    pub fn count(&self, now: Moment) -> usize {
        self.places(now).count()
    }

    /// The places that count at `now`, in order.
    pub fn places(&self, now: Moment) -> impl Iterator<Item = Place> + '_ {
        self.places.iter().filter(move |(_, until)| **until > now).map(|(place, _)| *place)
    }

    /// Whether nobody has a place.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn drop_ended(&mut self, now: Moment) {
        let ended: Vec<_> = self.places.iter().filter(|(_, until)| **until <= now).collect();
        let ended: Vec<_> = ended.into_iter().map(|(place, _)| *place).take(Self::STEP).collect();
        for place in ended {
            self.places.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(arrived: u64) -> Place {
        let number = u32::try_from(arrived).unwrap();
        Place { arrived, waiter: Waiter { process: 1, number } }
    }

    fn at(millis: u64) -> Moment {
        Moment::default() + Duration::from_millis(millis)
    }

    /// A queue of these arrivals.
    fn queue(arrivals: &[u64]) -> WaitQueue {
        let mut queue = WaitQueue::default();
        for arrived in arrivals {
            queue.enqueue(at(0), place(*arrived));
        }
        queue
    }

    /// What `act` tells whom, while these waiters do not listen.
    fn told(deaf: &[u32], act: impl FnOnce(&mut Tell<'_>)) -> Vec<(u32, News)> {
        let mut told = Vec::new();
        act(&mut |waiter: Waiter, news| {
            let listens = !deaf.contains(&waiter.number);
            if listens {
                told.push((waiter.number, news));
            }
            listens
        });
        told
    }

    const CALLED: News = News::Freed(WakeCause::Push);

    #[test]
    fn the_first_is_called_and_the_second_told_that_it_is_next() {
        let mut queue = queue(&[3, 1, 2]);
        assert_eq!(queue.rank(place(3)), Some(2));
        assert_eq!(told(&[], |it| queue.call(at(1), it)), [(1, CALLED), (2, News::Next)]);
    }

    #[test]
    fn who_does_not_listen_loses_its_place() {
        let mut queue = queue(&[1, 2, 3]);
        assert_eq!(told(&[1], |it| queue.call(at(1), it)), [(2, CALLED), (3, News::Next)]);
        assert_eq!(queue.rank(place(1)), None);
    }

    #[test]
    fn who_lets_its_turn_pass_loses_its_place_and_calling_again_gives_no_longer_turn() {
        let mut queue = queue(&[1, 2]);
        told(&[], |it| queue.call(at(0), it));
        told(&[], |it| queue.call(at(40), it));
        assert_eq!(told(&[], |it| queue.call(at(50), it)), [(2, CALLED)]);
    }

    #[test]
    fn the_next_is_one_that_listens() {
        let mut queue = queue(&[1, 2, 3]);
        assert_eq!(told(&[2], |it| queue.call(at(1), it)), [(1, CALLED), (3, News::Next)]);
        let mut queue = self::queue(&[1, 2, 3]);
        let told = told(&[2], |it| queue.leave(at(1), place(1), false, it));
        assert_eq!(told, [(3, News::First)]);
        assert_eq!(queue.rank(place(2)), None);
    }

    #[test]
    fn the_next_hears_when_the_first_leaves() {
        let mut queue = queue(&[1, 2, 3]);
        assert_eq!(told(&[], |it| queue.leave(at(1), place(3), false, it)), []);
        assert_eq!(told(&[], |it| queue.leave(at(1), place(1), false, it)), [(2, News::First)]);
        assert_eq!(told(&[], |it| queue.leave(at(1), place(2), true, it)), []);
        assert!(queue.is_empty());
    }

    #[test]
    fn a_younger_one_is_behind_and_the_older_is_called() {
        let mut queue = queue(&[1, 2]);
        let mut behind = false;
        let calls = told(&[], |it| behind = queue.is_behind(at(1), place(2), it));
        assert!(behind);
        assert_eq!(calls, [(1, CALLED), (2, News::Next)]);
        assert_eq!(told(&[1], |it| behind = queue.is_behind(at(1), place(2), it)).len(), 1);
        assert!(!behind, "the older one's process is gone");
    }

    #[test]
    fn a_place_ends_with_its_life_and_a_full_queue_takes_no_more() {
        let mut queue = queue(&[1]);
        assert_eq!(queue.count(at(9_999)), 1);
        assert_eq!(queue.count(at(10_000)), 0);
        assert_eq!(queue.enqueue(at(10_000), place(2)), Some(0), "the first has ended");
        for arrived in 3..=10_001 {
            assert!(queue.enqueue(at(10_000), place(arrived)).is_some());
        }
        assert_eq!(queue.enqueue(at(10_000), place(20_000)), None);
        assert_eq!(queue.enqueue(at(10_000), place(2)), Some(0), "who has a place keeps it");
    }
}
