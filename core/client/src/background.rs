//! Work for which no caller waits, such as withdrawals. Owns how it is counted; runs none of it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// The background work of one runtime.
#[derive(Default)]
pub(crate) struct Background {
    counts: Mutex<Counts>,
    idle: Condvar,
}

#[derive(Default)]
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

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts as work under way until it is dropped.
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
        if counts.under_way == 0 && counts.waiting > 0 {
            self.0.idle.notify_all();
        }
    }
}
