//! Counts the work for which no caller waits, such as withdrawals, so that the end of a process or a manager can wait
//! for it. Runs none of it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::Notify;

/// The background work of one runtime, or the work for which the nodes of one manager are needed.
#[derive(Debug, Default)]
pub(crate) struct Background {
    counts: Mutex<Counts>,
    idle: Condvar,
    /// The same for tasks.
    idle_told: Notify,
}

#[derive(Debug, Default)]
struct Counts {
    under_way: usize,
    /// How many threads wait until no background work is left; usually none.
    waiting: usize,
}

impl Background {
    /// Waits until nothing is under way, until `end` at most; returns whether nothing is.
    pub(crate) fn wait_until_idle(&self, end: Instant) -> bool {
        let mut counts = self.lock();
        counts.waiting += 1;
        while counts.under_way > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            counts = self
                .idle
                .wait_timeout(counts, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(counts, _)| counts);
        }
        counts.waiting -= 1;
        counts.under_way == 0
    }

    /// How much is under way.
    pub(crate) fn under_way(&self) -> usize {
        self.lock().under_way
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way() == 0
    }

    /// Waits until nothing is under way, on a task.
    pub(crate) async fn idle(&self) {
        loop {
            // It hears what is told from here on.
            let told = self.idle_told.notified();
            if self.is_idle() {
                return;
            }
            told.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts as work under way until it is dropped.
#[derive(Debug)]
pub(crate) struct BackgroundTicket(Arc<Background>);

impl BackgroundTicket {
    pub(crate) fn new(background: &Arc<Background>) -> Self {
        background.lock().under_way += 1;
        Self(Arc::clone(background))
    }
}

impl Drop for BackgroundTicket {
    fn drop(&mut self) {
        let mut counts = self.0.lock();
        counts.under_way -= 1;
        if counts.under_way > 0 {
            return;
        }
        if counts.waiting > 0 {
            self.0.idle.notify_all();
        }
        drop(counts);
        self.0.idle_told.notify_waiters();
    }
}
