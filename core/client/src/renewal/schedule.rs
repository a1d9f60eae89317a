//! The schedule of a manager's leases: when each one is due. Owns the order and the time of the
//! next wake-up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use quorlock_protocol::Moment;

use super::Renewable;
use super::batcher::Replies;
use crate::clock;
use crate::inbox::OperationId;

/// The leases that are renewed or watched, in the order in which they are due.
#[derive(Default)]
pub(super) struct Schedule {
    entries: BTreeMap<OperationId, Entry>,
    queue: BTreeSet<(Due, OperationId)>,
    last: OperationId,
    /// When the task wakes by itself.
    wakes_at: Due,
}

struct Entry {
    lease: Weak<dyn Renewable>,
    due: Due,
}

/// A moment in nanoseconds of the lease clock: half the size of a [`Moment`], and each lease has two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Due(u64);

impl From<Moment> for Due {
    fn from(moment: Moment) -> Self {
        Self(clock::nanos(moment.since_epoch()))
    }
}

impl Schedule {
    /// Returns the number of the lease, and whether it is due before the task would wake.
    pub(super) fn add(&mut self, lease: Weak<dyn Renewable>, due: Moment) -> (OperationId, bool) {
        let due = due.into();
        self.last.0 += 1;
        self.entries.insert(self.last, Entry { lease, due });
        self.queue.insert((due, self.last));
        (self.last, due < self.wakes_at)
    }

    pub(super) fn remove(&mut self, operation: OperationId) {
        if let Some(entry) = self.entries.remove(&operation) {
            self.queue.remove(&(entry.due, operation));
        }
    }

    /// The first leases that are due at `now`, `most` at most.
    pub(super) fn take_due(&mut self, now: Moment, most: usize) -> Vec<OperationId> {
        let mut due = Vec::new();
        while due.len() < most && self.queue.first().is_some_and(|(at, _)| *at <= now.into()) {
            due.extend(self.queue.pop_first().map(|(_, operation)| operation));
        }
        due
    }

    /// The leases of `batch`; `None` for those that have left the schedule or were dropped.
    pub(super) fn leases(&self, batch: &[Replies]) -> Vec<Option<Arc<dyn Renewable>>> {
        let lease = |(operation, _): &Replies| self.entries.get(operation)?.lease.upgrade();
        batch.iter().map(lease).collect()
    }

    /// Sets when each lease is due next; `None` removes it.
    pub(super) fn set_due(&mut self, dues: Vec<(OperationId, Option<Moment>)>) {
        for (operation, due) in dues {
            let Some(due) = due else {
                self.remove(operation);
                continue;
            };
            if let Some(entry) = self.entries.get_mut(&operation) {
                let old = std::mem::replace(&mut entry.due, due.into());
                if old != entry.due {
                    self.queue.remove(&(old, operation));
                }
                self.queue.insert((entry.due, operation));
            }
        }
    }

    /// How long the task sleeps from `now`: until the first lease is due, `most` at most, and `longest` at
    /// most if there is one; `None` if there is nothing to wait for.
    pub(super) fn begin_sleep(
        &mut self,
        now: Moment,
        most: Duration,
        longest: Option<Duration>,
    ) -> Option<Duration> {
        let left = |due: Due| Duration::from_nanos(due.0.saturating_sub(Due::from(now).0));
        let until_due = self.queue.first().map(|(due, _)| left(*due).min(most));
        let duration = [until_due, longest].into_iter().flatten().min();
        self.wakes_at = duration.map_or(Moment::FAR_FUTURE, |duration| now + duration).into();
        duration
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.queue.len(), self.entries.len());
        self.entries.len()
    }
}
