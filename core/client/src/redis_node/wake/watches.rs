//! The lock keys that are watched on a server for callers of this process. Owns when a key is read, and what a read says
//! to whom; sends nothing.
//!
//! A server tells once that a key which was read has changed, and not how. So the key is read again, which also arms
//! the next telling. However often a key changes and however many callers watch it, one read of it is under way.

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

#[cfg(test)]
mod tests {
    use super::*;

    const FREED: News = News::Freed(WakeCause::Watch);

    fn waiter(number: u32) -> Waiter {
        Waiter { process: 1, number }
    }

    fn keys(names: &[&str]) -> LockKeys {
        names.iter().map(|&name| name.into()).collect()
    }

    fn held() -> KeyState {
        KeyState::of_pttl(60_000)
    }

    fn is_held(finding: &Finding, number: u32) -> bool {
        matches!(finding.news.as_slice(), [(it, News::Held(_))] if *it == waiter(number))
    }

    #[test]
    fn a_key_that_is_gone_is_told_at_once_and_a_held_one_is_not() {
        let mut watches = Watches::default();
        assert_eq!(watches.watch(waiter(1), &keys(&["r"])), [Arc::from("r")]);
        assert_eq!(watches.note_read("r", held()), Finding::default());
        assert_eq!(watches.watch(waiter(1), &keys(&["r"])), [Arc::from("r")]);
        let finding = watches.note_read("r", KeyState::Gone);
        assert_eq!(finding, Finding { news: vec![(waiter(1), FREED)], again: false });
    }

    #[test]
    fn a_change_is_read_once_however_many_watch_and_told_to_all() {
        let mut watches = Watches::default();
        watches.watch(waiter(1), &keys(&["r"]));
        assert!(watches.watch(waiter(2), &keys(&["r"])).is_empty(), "a read is under way");
        assert!(watches.note_read("r", held()).again, "the second may have begun after it");
        assert!(!watches.note_read("r", held()).again);
        assert_eq!(watches.note_change("r").as_deref(), Some("r"));
        let finding = watches.note_read("r", KeyState::Gone);
        assert_eq!(finding.news, [(waiter(1), FREED), (waiter(2), FREED)]);
    }

    #[test]
    fn many_changes_are_one_read_more() {
        let mut watches = Watches::default();
        watches.watch(waiter(1), &keys(&["r"]));
        for _ in 0..9 {
            assert_eq!(watches.note_change("r"), None);
        }
        let finding = watches.note_read("r", held());
        assert_eq!(finding, Finding { news: vec![], again: true }, "the next read tells");
        let finding = watches.note_read("r", held());
        assert!(is_held(&finding, 1) && !finding.again, "{finding:?}");
        assert_eq!(watches.note_change_of_all(), [Arc::from("r")]);
    }

    #[test]
    fn a_key_without_an_end_tells_nothing() {
        let mut watches = Watches::default();
        watches.watch(waiter(1), &keys(&["r"]));
        watches.note_read("r", held());
        watches.note_change("r");
        assert_eq!(watches.note_read("r", KeyState::of_pttl(-1)), Finding::default());
    }

    #[test]
    fn of_several_keys_all_must_be_gone() {
        let mut watches = Watches::default();
        assert_eq!(watches.watch(waiter(1), &keys(&["a", "b"])).len(), 2);
        watches.note_read("a", KeyState::of_pttl(50));
        watches.note_read("b", held());
        watches.note_change("a");
        let finding = watches.note_read("a", KeyState::Gone);
        let [(_, News::Held(left))] = finding.news.as_slice() else { panic!("{finding:?}") };
        assert!(*left > Duration::from_secs(50), "{left:?}");
        watches.note_change("b");
        assert_eq!(watches.note_read("b", KeyState::Gone).news, [(waiter(1), FREED)]);
    }

    #[test]
    fn nothing_is_left_of_a_watch_that_ended() {
        let mut watches = Watches::default();
        watches.watch(waiter(1), &keys(&["r"]));
        watches.note_change("r");
        watches.unwatch(waiter(1), &keys(&["r"]));
        assert_eq!(watches.note_read("r", KeyState::Gone), Finding::default());
        assert!(watches.0.is_empty());
        assert_eq!(watches.note_change("r"), None);
        watches.watch(waiter(2), &keys(&["r", "s"]));
        assert_eq!(watches.clear(), [waiter(2)]);
        assert!(watches.0.is_empty());
    }
}
