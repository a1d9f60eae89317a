//! The lock keys that are watched on a server for callers of this process. Owns when a key is read, and what a read says
//! to whom; sends nothing.
//!
//! A server tells once that a key which was read has changed, and not how. So the key is read again, which also arms
//! the next telling. However often a key changes and however many callers watch it, one read of it is under way.
//! A server that cannot keep in mind all keys that were read tells of changes that there were not: a key for which
//! that happens again and again is read more and more seldom.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{News, Waiter, WakeCause};
use tokio::time::Instant;

use super::request::LockKeys;

/// The watched keys.
#[derive(Default)]
pub(super) struct Watches {
    keys: HashMap<Arc<str>, Watched>,
    /// When the first of the reads is due that were postponed.
    next_read: Option<Instant>,
}

#[derive(Default)]
struct Watched {
    watchers: Vec<Watcher>,
    reading: Reading,
    /// It has changed, and was not read since.
    has_changed: bool,
    /// What the latest read found; `None` before the first, and after a change.
    state: Option<KeyState>,
    /// What the latest read found, whatever was told since.
    found: Option<KeyState>,
    /// How many reads in a row found no change where one was told.
    in_vain: u32,
    /// It is to be read then, and not before.
    postponed: Option<Instant>,
}

struct Watcher {
    waiter: Waiter,
    /// All the keys that it waits for.
    lock_keys: LockKeys,
    /// No read has ended since it began to watch.
    is_new: bool,
}

/// Whether a key is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Reading {
    #[default]
    Not,
    UnderWay,
    /// It has to be read once more after the read that is under way.
    Again,
}

/// What a read finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyState {
    Gone,
    /// Its ttl ends then.
    Until(Instant),
    /// It has no ttl.
    Endless,
}

/// What follows from the end of a read.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Finding {
    /// News for these waiters.
    pub(super) news: Vec<(Waiter, News)>,
    /// The key is to be read once more.
    pub(super) again: bool,
}

impl Watches {
    /// Watches the keys for `waiter`, also if it does so already; returns those that are to be read now.
    pub(super) fn watch(&mut self, waiter: Waiter, lock_keys: &LockKeys) -> Vec<Arc<str>> {
        let mut reads = Vec::new();
        for key in lock_keys.iter() {
            let watched = self.keys.entry(Arc::clone(key)).or_default();
            watched.watchers.retain(|it| it.waiter != waiter);
            let lock_keys = LockKeys::clone(lock_keys);
            watched.watchers.push(Watcher { waiter, lock_keys, is_new: true });
            reads.extend(watched.begin_read().then(|| Arc::clone(key)));
        }
        reads
    }

    /// Watches nothing for `waiter` any more.
    pub(super) fn unwatch(&mut self, waiter: Waiter, lock_keys: &LockKeys) {
        for key in lock_keys.iter() {
            if let Some(watched) = self.keys.get_mut(key) {
                watched.watchers.retain(|it| it.waiter != waiter);
            }
        }
        self.keys.retain(|_, it| !it.watchers.is_empty() || it.reading != Reading::Not);
    }

    /// A key has changed; returns it if it is to be read now.
    pub(super) fn note_change(&mut self, key: &str) -> Option<Arc<str>> {
        let key = Arc::clone(self.keys.get_key_value(key)?.0);
        let watched = self.keys.get_mut(&key)?;
        let (is_due, postponed) = (watched.note_change(), watched.postponed);
        self.plan(postponed);
        is_due.then_some(key)
    }

    /// All keys have changed; returns those that are to be read now.
    pub(super) fn note_change_of_all(&mut self) -> Vec<Arc<str>> {
        let to_read = |(key, watched): (&Arc<str>, &mut Watched)| {
            watched.note_change().then(|| Arc::clone(key))
        };
        let reads = self.keys.iter_mut().filter_map(to_read).collect();
        self.plan_anew();
        reads
    }

    /// When a read is due that was postponed.
    pub(super) const fn next_read(&self) -> Option<Instant> {
        self.next_read
    }

    /// The keys whose postponed reads are due.
    pub(super) fn due_reads(&mut self) -> Vec<Arc<str>> {
        let now = Instant::now();
        if self.next_read.is_none_or(|at| at > now) {
            return Vec::new();
        }
        let is_due = |watched: &mut Watched| watched.postponed.take_if(|at| *at <= now).is_some();
        let to_read = |(key, watched): (&Arc<str>, &mut Watched)| {
            (is_due(watched) && watched.begin_read()).then(|| Arc::clone(key))
        };
        let reads = self.keys.iter_mut().filter_map(to_read).collect();
        self.plan_anew();
        reads
    }

    fn plan(&mut self, read: Option<Instant>) {
        self.next_read = self.next_read.into_iter().chain(read).min();
    }

    fn plan_anew(&mut self) {
        self.next_read = self.keys.values().filter_map(|watched| watched.postponed).min();
    }

    /// A read has found `state`.
    pub(super) fn note_read(&mut self, key: &str, state: KeyState) -> Finding {
        let Some(watched) = self.keys.get_mut(key) else {
            return Finding::default();
        };
        let has_changed = watched.has_changed;
        let again = watched.note_read(state);
        let postponed = watched.postponed;
        let told: Vec<_> = watched.watchers.iter_mut().map(Watcher::take).collect();
        if watched.watchers.is_empty() && !again {
            self.keys.remove(key);
        }
        self.plan(postponed);
        let news = told.into_iter().filter_map(|(waiter, is_new, lock_keys)| {
            let news = self.judge(&lock_keys)?;
            let is_due = match news {
                News::Freed(_) => has_changed || is_new,
                // The reply to the command that took the place has said it, or the next read will.
                _ => has_changed && !again,
            };
            is_due.then_some((waiter, news))
        });
        Finding { news: news.collect(), again }
    }

    /// Forgets every watch; returns who had one.
    pub(super) fn clear(&mut self) -> Vec<Waiter> {
        self.next_read = None;
        let watchers = self.keys.drain().flat_map(|(_, watched)| watched.watchers);
        let mut waiters: Vec<_> = watchers.map(|it| it.waiter).collect();
        waiters.sort_unstable();
        waiters.dedup();
        waiters
    }

    /// What the states of all its keys say to a waiter; `None` if one is not known, or has no end.
    fn judge(&self, lock_keys: &LockKeys) -> Option<News> {
        let mut latest = None;
        for key in lock_keys.iter() {
            match self.keys.get(key)?.state? {
                KeyState::Gone => {}
                KeyState::Until(end) => latest = latest.max(Some(end)),
                KeyState::Endless => return None,
            }
        }
        Some(match latest {
            None => News::Freed(WakeCause::Watch),
            Some(end) => News::Held(end.saturating_duration_since(Instant::now())),
        })
    }
}

impl Watched {
    /// Whether a read is to be sent now.
    fn note_change(&mut self) -> bool {
        (self.has_changed, self.state) = (true, None);
        if self.in_vain > PATIENCE && self.reading == Reading::Not {
            self.postpone();
            return false;
        }
        self.begin_read()
    }

    /// Whether the next read is to be sent now.
    fn note_read(&mut self, state: KeyState) -> bool {
        let is_vain = self.has_changed && self.found.is_some_and(|found| found.is_as(state));
        self.in_vain = if is_vain { self.in_vain + 1 } else { 0 };
        (self.state, self.found) = (Some(state), Some(state));
        let mut again = self.reading == Reading::Again && !self.watchers.is_empty();
        if again && self.in_vain > PATIENCE {
            self.postpone();
            again = false;
        } else {
            self.has_changed &= again;
        }
        self.reading = if again { Reading::UnderWay } else { Reading::Not };
        again
    }

    fn postpone(&mut self) {
        let pause = LEAST_PAUSE * (1 << (self.in_vain - PATIENCE).min(6));
        self.postponed.get_or_insert_with(|| Instant::now() + pause);
    }

    /// Whether a read is to be sent now.
    fn begin_read(&mut self) -> bool {
        let begins = self.reading == Reading::Not;
        self.reading = if begins { Reading::UnderWay } else { Reading::Again };
        begins
    }
}

impl Watcher {
    /// Who it is, whether it was new, and what it waits for; it is not new any more.
    fn take(&mut self) -> (Waiter, bool, LockKeys) {
        (self.waiter, mem::take(&mut self.is_new), LockKeys::clone(&self.lock_keys))
    }
}

impl KeyState {
    /// Whether it is what was found before, as far as clocks tell.
    fn is_as(self, other: Self) -> bool {
        match (self, other) {
            (Self::Until(one), Self::Until(other)) => {
                one.max(other).duration_since(one.min(other)) < SLACK
            }
            _ => self == other,
        }
    }

    /// What the reply to PTTL says.
    pub(super) fn of_pttl(millis: i64) -> Self {
        match u64::try_from(millis) {
            Ok(millis) => Self::Until(Instant::now() + Duration::from_millis(millis)),
            Err(_) if millis == -1 => Self::Endless,
            Err(_) => Self::Gone,
        }
    }
}

/// How many reads in a row may be in vain before the next one waits.
const PATIENCE: u32 = 3;
/// Half of the first pause; each is twice the one before, up to a third of a second.
const LEAST_PAUSE: Duration = Duration::from_millis(5);
/// How far two readings of the same end may be apart.
const SLACK: Duration = Duration::from_millis(5);
