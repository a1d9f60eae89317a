//! When the thread of an event loop may drive the engine, and for how long it may wait there (decision 0014).
//!
//! It may while one operation is under way in the whole process: several are the engine's thread's, which
//! then works beside Python. It waits only where the loop has nothing else to do, and not for long. A visit in
//! vain is paid for by a pause, so that far nodes, contended locks and busy loops cost next to nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// The visits of all event loops of the process.
#[derive(Default)]
pub(crate) struct Visits {
    /// Operations that no thread blocks for.
    under_way: AtomicUsize,
    past: Mutex<Past>,
}

/// What speaks against a visit.
#[derive(Default)]
struct Past {
    /// When everything that was in vain will be paid for.
    paid_by: Option<Instant>,
    /// How many visits were in vain since one was not.
    in_vain: u32,
    /// When the engine's thread was met at the helm last, and how often in a row.
    met: Option<Instant>,
    meetings: u32,
}

/// One of the operations under way.
pub(crate) struct Ticket(&'static Visits);

/// A visitor between two visits.
#[derive(Clone, Copy)]
pub(crate) struct Visitor {
    /// The first of them.
    since: Instant,
    left: Instant,
}

impl Visits {
    /// Counts an operation that the engine's thread sees to.
    pub(crate) fn count(&'static self) -> Ticket {
        self.under_way.fetch_add(1, Ordering::AcqRel);
        Ticket(self)
    }

    /// Counts an operation that a visit may begin; `None` if the engine's thread is to see to it.
    pub(crate) fn begin(&'static self) -> Option<Ticket> {
        // Elsewhere nobody has measured it, and threads wait in longer steps.
        if !cfg!(target_os = "linux") || self.is_in_debt() {
            return None;
        }
        let alone = self.under_way.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire);
        alone.ok().map(|_| Ticket(self))
    }

    /// Whether so many operations or more are under way.
    pub(crate) fn reach(&self, count: usize) -> bool {
        self.under_way.load(Ordering::Acquire) >= count
    }

    /// A visitor has met the engine's thread at the helm; tells whether to ask it to leave, which pays only
    /// where operations follow close upon each other.
    pub(crate) fn meet(&self) -> bool {
        let now = Instant::now();
        let mut past = self.past();
        let is_soon = past.met.replace(now).is_some_and(|met| now - met < SOON);
        past.meetings = if is_soon { past.meetings.saturating_add(1) } else { 1 };
        past.meetings >= MEETINGS
    }

    /// A visitor has come in vain.
    pub(crate) fn pay(&self) {
        let now = Instant::now();
        let mut past = self.past();
        let from = past.paid_by.map_or(now, |paid_by| paid_by.max(now));
        past.paid_by = Some(from + PAUSE * (1 << past.in_vain.min(DOUBLINGS)));
        past.in_vain = past.in_vain.saturating_add(1);
    }

    /// A visitor has seen the end of an operation.
    pub(crate) fn succeed(&self) {
        self.past().in_vain = 0;
    }

    fn is_in_debt(&self) -> bool {
        self.past().paid_by.is_some_and(|paid_by| paid_by > Instant::now() + CREDIT)
    }

    fn past(&self) -> MutexGuard<'_, Past> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.under_way.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Visitor {
    /// One that has begun something just now.
    pub(crate) fn begin() -> Self {
        let now = Instant::now();
        Self { since: now, left: now }
    }

    /// Leaves for a turn of the loop.
    pub(crate) fn leave(&mut self) {
        self.left = Instant::now();
    }

    /// Whether it may wait: the loop has nothing else to do, and it has not waited for long.
    pub(crate) fn may_wait(&self) -> bool {
        self.left.elapsed() < IDLE_TURN && self.since.elapsed() < PATIENCE
    }
}

/// Unparks this thread when the engine's has left the helm to it.
pub(crate) fn relief() -> Waker {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    thread_local! {
        static RELIEF: Waker = Waker::from(Arc::new(Unpark(thread::current())));
    }
    RELIEF.with(Waker::clone)
}

/// The longest wait at a time: others on the loop have their turn then.
pub(crate) const WAIT: Duration = Duration::from_micros(25);
/// The nodes of one place have answered by then.
const PATIENCE: Duration = Duration::from_micros(250);
/// A loop that took no longer for the turn of everybody else has nothing else to do.
const IDLE_TURN: Duration = Duration::from_micros(50);
/// A visit in vain is paid for by so long without any,
const PAUSE: Duration = Duration::from_millis(10);
/// twice as long for the next, so many times,
const DOUBLINGS: u32 = 4;
/// but so much of that may be owed.
const CREDIT: Duration = Duration::from_millis(100);
/// The engine's thread is asked to leave by the third who meets it,
const MEETINGS: u32 = 3;
/// each so soon after the other.
const SOON: Duration = Duration::from_millis(5);
