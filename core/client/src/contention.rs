//! Remembers for a moment which locks others waited for when a caller of this process released them. A caller that
//! comes back for one takes a place in the nodes' queues at once: a plain try would often win against those that were
//! called first. Owns how long that counts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorlock_protocol::{Moment, Resources};

/// The locks that were contended lately. Moments are of the boot clock, which all managers share.
#[derive(Default)]
pub(crate) struct RecentContention {
    /// There may be some; read without the mutex, since usually there are none.
    is_any: AtomicBool,
    until: Mutex<HashMap<Resources, Moment>>,
}

impl RecentContention {
    /// A lease that was waited for beside others is released at `now`.
    pub(crate) fn note(&self, resources: &Resources, now: Moment) {
        let mut until = self.lock();
        if until.len() >= MOST {
            until.retain(|_, end| *end > now);
        }
        if until.len() < MOST {
            until.insert(resources.clone(), now + COUNTS_FOR);
            self.is_any.store(true, Ordering::Relaxed);
        }
    }

    /// The release was answered at `now`: those that were called come about a round trip later.
    pub(crate) fn prolong(&self, resources: &Resources, now: Moment) {
        if let Some(until) = self.lock().get_mut(resources) {
            *until = now + COUNTS_FOR;
        }
    }

    /// Whether others waited for the lock a moment ago.
    pub(crate) fn is_recent(&self, resources: &Resources, now: Moment) -> bool {
        if !self.is_any.load(Ordering::Relaxed) {
            return false;
        }
        let mut until = self.lock();
        let is_recent = until.remove(resources).is_some_and(|end| end > now);
        if until.is_empty() {
            self.is_any.store(false, Ordering::Relaxed);
        }
        is_recent
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Resources, Moment>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a release counts after its answer: those that were called have come by then.
const COUNTS_FOR: Duration = Duration::from_millis(100);
/// The most locks that are remembered.
const MOST: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_counts_once_and_for_a_while() {
        let (contention, now) = (RecentContention::default(), Moment::default());
        let resources = Resources::new(["r"]).unwrap();
        assert!(!contention.is_recent(&resources, now));
        contention.note(&resources, now);
        assert!(contention.is_recent(&resources, now + COUNTS_FOR / 2));
        assert!(!contention.is_recent(&resources, now + COUNTS_FOR / 2), "only the next caller");
        contention.note(&resources, now);
        assert!(!contention.is_recent(&resources, now + COUNTS_FOR));
    }

    #[test]
    fn a_release_counts_from_its_answer() {
        let (contention, now) = (RecentContention::default(), Moment::default());
        let resources = Resources::new(["r"]).unwrap();
        contention.note(&resources, now);
        contention.prolong(&resources, now + 2 * COUNTS_FOR);
        assert!(contention.is_recent(&resources, now + 2 * COUNTS_FOR + COUNTS_FOR / 2));
        contention.prolong(&resources, now + 2 * COUNTS_FOR);
        assert!(!contention.is_recent(&resources, now + 2 * COUNTS_FOR), "only the next caller");
    }

    #[test]
    fn only_so_many_are_remembered() {
        let (contention, now) = (RecentContention::default(), Moment::default());
        let name = |number: usize| Resources::new([number.to_string()]).unwrap();
        (0..=MOST).for_each(|number| contention.note(&name(number), now));
        assert!(!contention.is_recent(&name(MOST), now));
        let later = now + COUNTS_FOR;
        contention.note(&name(MOST), later);
        assert!(contention.is_recent(&name(MOST), later), "those that do not count make room");
    }
}
