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
        self.enqueue(now, place);
        if self.rank(place)? == 0 {
            return Some(0);
        }
        if is_free {
            self.call(now, tell);
        } else {
            self.check_first(now, tell);
        }
        self.rank(place)
    }

    /// Takes or keeps a place, if there is room.
    fn enqueue(&mut self, now: Moment, place: Place) {
        self.drop_ended(now);
        if self.places.contains_key(&place) || self.places.len() < Self::MOST {
            self.places.insert(place, now + Self::LIFE);
        }
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
