//! The end of an operation (as of an acquisition), which the thread that runs it tells the caller
//! that waits. Owns its result, who is told, and what becomes of a result that no caller takes.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use quorlock::embed::UndeliveredLease;
use quorlock::{Holder, Lease, LockError, ReleaseOutcome};

use crate::completion_queue;
use crate::loop_driving::{CountedOperation, LoopTurns};

/// The result of a successful operation.
pub(crate) enum Outcome {
    Won(UndeliveredLease),
    Adopted(Lease),
    Time(Duration),
    Released(ReleaseOutcome, Option<LockError>),
    Flag(bool),
    Count(u32),
    Holder(Option<Holder>),
}

#[derive(Default)]
pub(crate) struct Shared {
    progress: Mutex<Progress>,
    ended: Condvar,
}

#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) result: Option<Result<Outcome, LockError>>,
    /// The lease that Python took from the result.
    pub(crate) taken: Option<Lease>,
    pub(crate) has_ended: bool,
    /// How many threads wait for the end; with none, none is woken.
    waiting: usize,
    pub(crate) is_cancelled: bool,
    /// Nobody is told of its end yet: the process ends.
    pub(crate) is_untold: bool,
    pub(crate) announce: Option<(Arc<completion_queue::Inner>, u64)>,
    /// Counts the operation while it is under way for an event loop or a gevent or eventlet hub.
    pub(crate) counted: Option<CountedOperation>,
    /// The turns of the event loop that drives the engine for it.
    pub(crate) turns: Option<LoopTurns>,
}

impl Shared {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.lock().has_ended
    }

    /// Waits until the operation has ended, for `timeout` at the most; tells whether it has.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let until = Instant::now().checked_add(timeout);
        let mut progress = self.lock();
        progress.waiting += 1;
        while !progress.has_ended {
            progress = match until {
                None => self.ended.wait(progress).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.ended.wait_timeout(progress, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        progress.waiting -= 1;
        progress.has_ended
    }

    /// Whether it has won a lease that nobody has taken.
    pub(crate) fn has_lease(&self) -> bool {
        matches!(self.lock().result, Some(Ok(Outcome::Won(_))))
    }

    /// At the end of the process: withdraws the lease that nobody has taken.
    pub(crate) fn withdraw_untold(&self) {
        let mut progress = self.lock();
        progress.is_cancelled = true;
        progress.is_untold = true;
        let result = progress.result.take();
        drop(progress);
        drop(result);
    }

    pub(crate) fn end(&self, result: Option<Result<Outcome, LockError>>) {
        let mut progress = self.lock();
        if progress.has_ended {
            return;
        }
        progress.has_ended = true;
        let unclaimed =
            if progress.is_cancelled { result } else { mem::replace(&mut progress.result, result) };
        let announce = if progress.is_untold { None } else { progress.announce.take() };
        progress.counted = None;
        let has_waiters = progress.waiting > 0;
        drop(progress);
        drop(unclaimed);
        if has_waiters {
            self.ended.notify_all();
        }
        if let Some((queue, number)) = announce {
            queue.post(number, None);
        }
    }
}

/// Completes an operation that is dropped before its end, without a result.
pub(crate) struct CompletionGuard(pub(crate) Arc<Shared>);

impl Drop for CompletionGuard {
    fn drop(&mut self) {
        self.0.end(None);
    }
}
