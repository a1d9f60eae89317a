//! The lock keys that are watched on a server for callers of this process. Owns when a key is read, and what a read says
//! to whom; sends nothing.
//!
//! A server tells once that a key which was read has changed, and not how. So the key is read again, which also arms
//! the next telling. However often a key changes and however many callers watch it, one read of it is under way.

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
pub(super) struct Watches(HashMap<Arc<str>, Watched>);

#[derive(Default)]
struct Watched {
    watchers: Vec<Watcher>,
    reading: Reading,
    /// It has changed, and was not read since.
    has_changed: bool,
    /// What the latest read found; `None` before the first, and after a change.
    state: Option<KeyState>,
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
            let watched = self.0.entry(Arc::clone(key)).or_default();
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
            if let Some(watched) = self.0.get_mut(key) {
                watched.watchers.retain(|it| it.waiter != waiter);
            }
        }
        self.0.retain(|_, it| !it.watchers.is_empty() || it.reading != Reading::Not);
    }

    /// A key has changed; returns it if it is to be read now.
    pub(super) fn note_change(&mut self, key: &str) -> Option<Arc<str>> {
        let key = Arc::clone(self.0.get_key_value(key)?.0);
        let watched = self.0.get_mut(&key)?;
        watched.note_change().then_some(key)
    }

    /// All keys have changed; returns those that are to be read now.
    pub(super) fn note_change_of_all(&mut self) -> Vec<Arc<str>> {
        let to_read = |(key, watched): (&Arc<str>, &mut Watched)| {
            watched.note_change().then(|| Arc::clone(key))
        };
        self.0.iter_mut().filter_map(to_read).collect()
    }

    /// A read has found `state`.
    pub(super) fn note_read(&mut self, key: &str, state: KeyState) -> Finding {
        let Some(watched) = self.0.get_mut(key) else {
            return Finding::default();
        };
        let again = watched.reading == Reading::Again && !watched.watchers.is_empty();
        watched.reading = if again { Reading::UnderWay } else { Reading::Not };
        watched.state = Some(state);
        let has_changed = watched.has_changed;
        watched.has_changed = has_changed && again;
        let told: Vec<_> = watched.watchers.iter_mut().map(Watcher::take).collect();
        if watched.watchers.is_empty() && !again {
            self.0.remove(key);
        }
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
        let watchers = self.0.drain().flat_map(|(_, watched)| watched.watchers);
        let mut waiters: Vec<_> = watchers.map(|it| it.waiter).collect();
        waiters.sort_unstable();
        waiters.dedup();
        waiters
    }

    /// What the states of all its keys say to a waiter; `None` if one is not known, or has no end.
    fn judge(&self, lock_keys: &LockKeys) -> Option<News> {
        let mut latest = None;
        for key in lock_keys.iter() {
            match self.0.get(key)?.state? {
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
    fn note_change(&mut self) -> bool {
        (self.has_changed, self.state) = (true, None);
        self.begin_read()
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
    /// What the reply to PTTL says.
    pub(super) fn of_pttl(millis: i64) -> Self {
        match u64::try_from(millis) {
            Ok(millis) => Self::Until(Instant::now() + Duration::from_millis(millis)),
            Err(_) if millis == -1 => Self::Endless,
            Err(_) => Self::Gone,
        }
    }
}
