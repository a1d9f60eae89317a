//! Decides when the thread of an event loop drives the engine, and how long it may wait there
//! (decision 0014).
//!
//! The thread drives while one operation is under way in the whole process: several operations are
//! left to the engine's thread, which then works beside Python. It waits only if the loop has
//! nothing else to do, and not for long. After a wait that found nothing it leaves some of the next
//! operations to the engine's thread, so that distant nodes, contended locks and busy loops cost
//! very little.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use quorlock::embed::AdaptiveBackoff;

/// The policy for all event loops of the process.
#[derive(Default)]
pub(crate) struct LoopDriving {
    /// Operations for which no thread blocks.
    under_way: AtomicUsize,
    backoff: AdaptiveBackoff,
    meetings: Mutex<Meetings>,
}

/// How often loops have found the engine's thread driving.
#[derive(Default)]
struct Meetings {
    last: Option<Instant>,
    in_a_row: u32,
}

/// Counts one operation under way; dropping it ends the count.
pub(crate) struct CountedOperation(&'static LoopDriving);

/// The turns of an event loop in which it drives the engine for one operation.
#[derive(Clone, Copy)]
pub(crate) struct LoopTurns {
    /// When the first turn began.
    since: Instant,
    /// When the latest turn ended.
    left: Instant,
}

impl LoopDriving {
    /// Counts an operation for which the engine's thread drives.
    pub(crate) fn count(&'static self) -> CountedOperation {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        CountedOperation(self)
    }

    /// Counts an operation for which the loop's thread should drive; `None` if the engine's thread
    /// should.
    pub(crate) fn begin(&'static self) -> Option<CountedOperation> {
        // On other systems it has not been measured, and threads wait in longer steps.
        if !cfg!(target_os = "linux") || !self.backoff.should_try() {
            return None;
        }
        let alone = self.under_way.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
        alone.ok().map(|_| CountedOperation(self))
    }

    /// Whether this many operations or more are under way.
    pub(crate) fn reach(&self, count: usize) -> bool {
        self.under_way.load(Ordering::Acquire) >= count
    }

    /// The engine's thread drives; tells whether to ask it to stop, which pays off only where
    /// operations follow each other quickly.
    pub(crate) fn should_interrupt_thread(&self) -> bool {
        let now = Instant::now();
        let mut meetings = self.meetings();
        let is_soon = meetings.last.replace(now).is_some_and(|last| now - last < SOON);
        meetings.in_a_row = if is_soon { meetings.in_a_row.saturating_add(1) } else { 1 };
        meetings.in_a_row >= MEETINGS
    }

    /// A loop has driven the engine: `ended` tells whether the operation ended in time.
    pub(crate) fn record(&self, ended: bool) {
        if ended {
            self.backoff.record_success();
        } else {
            self.backoff.record_failure();
        }
    }

    fn meetings(&self) -> MutexGuard<'_, Meetings> {
        self.meetings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for CountedOperation {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl LoopTurns {
    /// Starts with the first turn.
    pub(crate) fn begin() -> Self {
        let now = Instant::now();
        Self { since: now, left: now }
    }

    /// The current turn ends.
    pub(crate) fn leave(&mut self) {
        self.left = Instant::now();
    }

    /// Whether the thread may wait: the loop has nothing else to do, and it has not waited for long.
    pub(crate) fn may_wait(&self) -> bool {
        self.left.elapsed() < IDLE_TURN && self.since.elapsed() < LONGEST_WAIT
    }
}

/// Unparks this thread when the engine's thread has stopped driving.
pub(crate) fn on_available() -> Waker {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    thread_local! {
        static ON_AVAILABLE: Waker = Waker::from(Arc::new(Unpark(thread::current())));
    }
    ON_AVAILABLE.with(Waker::clone)
}

/// The longest wait in one turn of the loop; other tasks run then.
pub(crate) const WAIT: Duration = Duration::from_micros(25);
/// The longest wait for one operation: nodes in the same data centre have answered by then.
const LONGEST_WAIT: Duration = Duration::from_micros(250);
/// If all other tasks took no longer than this for their turn, the loop has nothing else to do.
const IDLE_TURN: Duration = Duration::from_micros(50);
/// From this many meetings in a row on, the engine's thread is asked to stop driving.
const MEETINGS: u32 = 3;
/// Meetings are in a row if each comes this soon after the one before.
const SOON: Duration = Duration::from_millis(5);
