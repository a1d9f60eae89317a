//! The runtime of an engine, and which thread drives it: a caller that waits anyway, or the engine's own thread.
//!
//! A caller that drives sends its commands and reads the replies itself, which saves two thread
//! switches. The engine's thread drives when no caller has come for [`TAKEOVER_AFTER`], so that
//! renewals and background work continue. While callers follow each other quickly it does not
//! compete with them.
//!
//! The thread of an event loop must not wait. It drives while some task is ready ([`SharedRuntime::drive_ready`]),
//! and again when the runtime's descriptor is readable.

mod drive_guard;

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;
use std::{io, mem, thread};

use tokio::runtime::{Builder, Runtime};
use tokio::select;
use tokio::sync::Notify;
use tokio::task::yield_now;

use self::drive_guard::DriveGuard;
use super::busy_poll::BusyPoll;
use crate::tasks::Tasks;

/// A runtime that one thread at a time drives.
pub(super) struct SharedRuntime {
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
    tasks: Tasks,
    busy_poll: Arc<BusyPoll>,
    drivers: Mutex<Drivers>,
    /// Wakes the engine's thread while it does not drive.
    thread_wake: Condvar,
    /// Asks the engine's thread to stop driving.
    stop_driving: Notify,
}

/// The threads that drive or want to.
#[derive(Default)]
struct Drivers {
    /// How many callers drive, or wait for the one that does.
    callers: usize,
    /// How many callers there have been.
    calls: u64,
    thread: ThreadState,
    /// The engine's thread should drive at once.
    thread_is_needed: bool,
    /// Event loops that want to drive when the engine's thread has stopped.
    on_available: Vec<Waker>,
    is_stopped: bool,
}

impl Drivers {
    /// Whether the engine's thread should stop driving.
    const fn want_to_drive(&self) -> bool {
        self.callers > 0 || self.is_stopped
    }
}

/// The result of [driving while a task is ready](super::Engine::drive_ready).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drive {
    /// The caller drove the engine. If tasks are still ready after the longest time that a caller may take, the
    /// engine's thread continues with them.
    Driven,
    /// Another caller drives. Try again when the descriptor is readable.
    Busy,
    /// The engine's own thread drives. Try again when `on_available` is woken; watching the descriptor until then
    /// is useless.
    ThreadDriving,
}

/// What the engine's thread does.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ThreadState {
    Driving,
    /// Waits for [`TAKEOVER_AFTER`] at a time, and checks whether callers still come.
    #[default]
    TimedWait,
    /// Waits until the last caller is done.
    Parked,
}

impl SharedRuntime {
    /// Starts a runtime, and the thread that drives it when no caller does.
    pub(super) fn start() -> io::Result<Arc<Self>> {
        let shared = Arc::new(Self::without_thread()?);
        let own = Arc::clone(&shared);
        thread::Builder::new().name("quorlock".into()).spawn(move || own.run_thread())?;
        Ok(shared)
    }

    fn without_thread() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let tasks = Tasks::on(runtime.handle().clone());
        Ok(Self {
            busy_poll: BusyPoll::on(&tasks),
            tasks,
            runtime: Some(runtime),
            drivers: Mutex::new(Drivers { thread_is_needed: true, ..Drivers::default() }),
            thread_wake: Condvar::new(),
            stop_driving: Notify::new(),
        })
    }

    /// Runs `work` in the runtime's context, where sockets find it.
    #[cfg(target_os = "linux")]
    pub(super) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _context = self.runtime().enter();
        work()
    }

    /// Drives the runtime on the calling thread until `future` has ended.
    ///
    /// Other tasks run at least once, even if `future` never waits: callers keep the engine's
    /// thread from driving, and callers that never wait would otherwise keep all other tasks from
    /// running.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let guard = DriveGuard::new(self);
        self.runtime().block_on(async {
            let polling = guard.is_alone.then(|| self.busy_poll.start_for_driver()).flatten();
            if polling.is_some() && self.lock().callers > 1 {
                // Another caller came in between.
                self.busy_poll.stop();
            }
            let mut future = pin!(future);
            let mut has_waited = false;
            let output = poll_fn(|context| {
                let result = future.as_mut().poll(context);
                has_waited |= result.is_pending();
                result
            });
            let output = output.await;
            if !has_waited {
                yield_now().await;
            } else if let Some(polling) = polling {
                polling.record_success();
            }
            output
        })
    }

    pub(super) fn busy_poll(&self) -> &Arc<BusyPoll> {
        &self.busy_poll
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Calls `begin`, then drives the runtime on the calling thread while a task is ready; does nothing while
    /// another thread drives. If that is the engine's own and `on_available` is given, it stops driving and wakes
    /// `on_available`.
    ///
    /// For `poll_for` at most it also polls for replies, until `is_done`.
    pub(super) fn drive_ready(
        &self,
        on_available: Option<Waker>,
        begin: impl FnOnce(),
        poll_for: Duration,
        is_done: impl FnMut() -> bool,
    ) -> Drive {
        let guard = match DriveGuard::try_new(self, on_available) {
            Ok(guard) => guard,
            Err(drive) => return drive,
        };
        let none_is_ready = self.runtime().block_on(async {
            begin();
            self.tasks.poll_for(poll_for, is_done).await;
            self.tasks.run_ready(LONGEST_DRIVE).await
        });
        drop(guard);
        if !none_is_ready {
            self.wake_thread();
        }
        Drive::Driven
    }

    /// Makes the engine's thread drive at once, unless another thread drives already: for work that
    /// was handed over by a thread that does not drive.
    pub(super) fn wake_thread(&self) {
        let mut drivers = self.lock();
        if drivers.callers == 0 && drivers.thread != ThreadState::Driving {
            drivers.thread_is_needed = true;
            self.thread_wake.notify_one();
        }
    }

    /// [`wake_thread`](Self::wake_thread) for a caller that may have asked the thread to stop and
    /// does not drive after all: the thread stops and starts again at once.
    pub(super) fn call_thread_back(&self) {
        let mut drivers = self.lock();
        if drivers.thread == ThreadState::Driving && !drivers.on_available.is_empty() {
            drivers.thread_is_needed = true;
        }
        drop(drivers);
        self.wake_thread();
    }

    /// Ends the engine's thread.
    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.stop_driving.notify_one();
        self.thread_wake.notify_one();
    }

    /// What the engine's thread runs.
    fn run_thread(&self) {
        while self.wait_to_drive() {
            self.busy_poll.set_thread_driving(true);
            self.runtime().block_on(self.asked_to_stop_driving());
            self.busy_poll.set_thread_driving(false);
        }
    }

    /// Waits while callers drive; `false` if the thread is to end.
    fn wait_to_drive(&self) -> bool {
        self.make_available();
        let mut drivers = self.lock();
        let mut calls_before = None;
        loop {
            if drivers.is_stopped {
                return false;
            }
            let is_quiet = drivers.thread_is_needed || calls_before == Some(drivers.calls);
            if is_quiet && drivers.callers == 0 {
                drivers.thread_is_needed = false;
                drivers.thread = ThreadState::Driving;
                return true;
            }
            drivers = if is_quiet {
                // One of them waits for long.
                drivers.thread = ThreadState::Parked;
                self.thread_wake.wait(drivers).unwrap_or_else(PoisonError::into_inner)
            } else {
                drivers.thread = ThreadState::TimedWait;
                calls_before = Some(drivers.calls);
                let waited = self.thread_wake.wait_timeout(drivers, TAKEOVER_AFTER);
                waited.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    /// The engine's thread has stopped driving: wakes the event loops that want to.
    fn make_available(&self) {
        let mut drivers = self.lock();
        drivers.thread = ThreadState::TimedWait;
        let on_available = mem::take(&mut drivers.on_available);
        drop(drivers);
        on_available.into_iter().for_each(Waker::wake);
    }

    /// Ends when a caller wants to drive, or an event loop does and no task is ready.
    async fn asked_to_stop_driving(&self) {
        loop {
            let asked = self.stop_driving.notified();
            let (want_to_drive, loops_wait) = {
                let drivers = self.lock();
                (drivers.want_to_drive(), !drivers.on_available.is_empty())
            };
            if want_to_drive {
                return;
            }
            select! {
                biased;
                () = asked => {}
                _ = self.tasks.run_ready(Duration::MAX), if loops_wait => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Drivers> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("the runtime is there until this is dropped")
    }
}

impl Drop for SharedRuntime {
    fn drop(&mut self) {
        // This may be a thread of another runtime, which must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The engine's thread drives when no caller has come for this long.
const TAKEOVER_AFTER: Duration = Duration::from_millis(5);
/// The longest time, more or less, that an event loop drives at once.
const LONGEST_DRIVE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
