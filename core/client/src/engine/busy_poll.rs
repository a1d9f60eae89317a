//! Polls for replies instead of sleeping while replies follow each other quickly (decision 0017).
//! Does not know which operation waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quorlock_protocol::Moment;
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::adaptive_backoff::AdaptiveBackoff;
use crate::clock::{self, AtomicMoment};
use crate::tasks::Tasks;

/// Keeps a runtime from sleeping while exactly one caller waits: a caller that drives it alone, or one on another
/// thread for which the engine's thread drives.
#[derive(Default)]
pub(crate) struct BusyPoll {
    is_on: AtomicBool,
    /// It polls for a caller that drives.
    is_for_driver: AtomicBool,
    start: Notify,
    /// How many times polling has started.
    starts: AtomicUsize,
    backoff: AdaptiveBackoff,
    /// No caller waits just now: it polls for the next operation of the caller that has just
    /// received its result.
    is_between_callers: AtomicBool,
    backoff_between_callers: AdaptiveBackoff,
    /// The engine's thread drives.
    is_thread_driving: AtomicBool,
    /// How many callers wait on other threads.
    waiters: AtomicUsize,
    /// When the latest of them began to wait.
    latest_waiter: AtomicMoment,
}

/// Stops the polling when the driving caller is done.
pub(super) struct BusyPollGuard<'a>(&'a BusyPoll);

/// Registers a caller that waits on another thread; empty if there is none.
#[derive(Default)]
pub(crate) struct WaiterGuard(Option<Arc<BusyPoll>>);

impl BusyPoll {
    /// For the runtime that `tasks` run on.
    pub(super) fn on(tasks: &Tasks) -> Arc<Self> {
        let busy_poll = Arc::new(Self::default());
        let (own, tasks) = (Arc::clone(&busy_poll), tasks.clone());
        // Not one of `tasks`: its being ready must not look like work.
        tasks.handle().clone().spawn(async move { own.run(&tasks).await });
        busy_poll
    }

    /// Starts polling for a caller that drives alone; `None` if another caller waits for the engine, or if polling
    /// has not paid off lately.
    pub(super) fn start_for_driver(&self) -> Option<BusyPollGuard<'_>> {
        let starts = !self.has_recent_waiter() && self.try_start();
        if starts {
            self.is_between_callers.store(false, Ordering::Release);
            self.is_for_driver.store(true, Ordering::Release);
        }
        starts.then(|| BusyPollGuard(self))
    }

    /// Registers a caller that waits on another thread from now on.
    pub(crate) fn register_waiter(self: &Arc<Self>) -> WaiterGuard {
        self.waiters.fetch_add(1, Ordering::AcqRel);
        self.latest_waiter.tell(Some(clock::now()));
        WaiterGuard(Some(Arc::clone(self)))
    }

    /// Whether a caller on another thread has begun to wait a moment ago. One that has waited for longer, such as
    /// for a lock that is held, gains nothing from polling.
    pub(super) fn has_recent_waiter(&self) -> bool {
        let is_recent = |began: Moment| clock::now().since(began) < RECENT;
        self.waiters.load(Ordering::Acquire) > 0 && self.latest_waiter.get().is_some_and(is_recent)
    }

    /// Says whether the engine's thread drives from now on. Polling that it did ends; polling that a caller has
    /// started, which is about to drive, goes on.
    pub(super) fn set_thread_driving(&self, is_driving: bool) {
        self.is_thread_driving.store(is_driving, Ordering::Release);
        if !self.is_for_driver.load(Ordering::Acquire) {
            self.stop();
        }
    }

    fn try_start(&self) -> bool {
        let starts = self.backoff.should_try();
        if starts {
            self.starts.fetch_add(1, Ordering::Relaxed);
            self.is_on.store(true, Ordering::Release);
            self.start.notify_one();
        }
        starts
    }

    pub(super) fn stop(&self) {
        self.is_between_callers.store(false, Ordering::Release);
        self.is_on.store(false, Ordering::Release);
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// The task that keeps the runtime from sleeping.
    async fn run(&self, tasks: &Tasks) {
        loop {
            self.start.notified().await;
            let progress = || (tasks.steps(), self.starts.load(Ordering::Relaxed));
            let (mut last, mut since) = (progress(), Instant::now());
            while self.is_on() {
                if self.is_between_callers() && !Self::yield_processor() {
                    self.give_up();
                    break;
                }
                yield_now().await;
                if progress() != last || !tasks.are_idle() {
                    (last, since) = (progress(), Instant::now());
                } else if since.elapsed() > LONGEST_GAP {
                    self.give_up();
                }
            }
        }
    }

    /// Lets another thread, such as that of the caller with its result, have this processor; `false` if it was
    /// taken for so long that sleeping would have been quicker.
    fn yield_processor() -> bool {
        let begin = Instant::now();
        thread::yield_now();
        begin.elapsed() < LONGEST_GAP
    }

    fn give_up(&self) {
        let is_between = self.is_between_callers();
        let backoff = if is_between { &self.backoff_between_callers } else { &self.backoff };
        self.stop();
        backoff.record_failure();
    }

    fn is_between_callers(&self) -> bool {
        self.is_between_callers.load(Ordering::Acquire)
    }

    fn is_thread_polling(&self) -> bool {
        self.is_thread_driving.load(Ordering::Acquire) && self.is_on()
    }
}

impl BusyPollGuard<'_> {
    /// The caller has its result, and had to wait for it.
    pub(super) fn record_success(self) {
        if self.0.is_on() {
            self.0.backoff.record_success();
        }
    }
}

impl Drop for BusyPollGuard<'_> {
    fn drop(&mut self) {
        self.0.is_for_driver.store(false, Ordering::Release);
        self.0.stop();
    }
}

impl WaiterGuard {
    /// Starts polling if this is the only caller that waits and the engine's thread drives. To be called by the
    /// thread that drives.
    pub(crate) fn start_polling(&self) {
        let Some(busy_poll) = &self.0 else { return };
        if busy_poll.waiters.load(Ordering::Acquire) > 1 {
            busy_poll.stop();
        } else if busy_poll.is_between_callers.swap(false, Ordering::AcqRel) {
            busy_poll.backoff_between_callers.record_success();
            busy_poll.starts.fetch_add(1, Ordering::Relaxed);
        } else if busy_poll.is_thread_driving.load(Ordering::Acquire) {
            busy_poll.try_start();
        }
    }

    /// The caller is about to get its result: keeps polling for its next operation, if that has paid off lately.
    pub(crate) fn keep_polling(self) {
        if let Some(busy_poll) = self.0.as_ref().filter(|it| it.is_thread_polling()) {
            busy_poll.backoff.record_success();
            let keeps = busy_poll.backoff_between_callers.should_try();
            busy_poll.is_between_callers.store(keeps, Ordering::Release);
        }
    }
}

impl Drop for WaiterGuard {
    fn drop(&mut self) {
        let Some(busy_poll) = &self.0 else { return };
        let is_last = busy_poll.waiters.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && busy_poll.is_thread_polling() && !busy_poll.is_between_callers() {
            busy_poll.stop();
        }
    }
}

/// Polling ends when no task could run for this long: sleeping and being woken costs less.
const LONGEST_GAP: Duration = Duration::from_micros(50);
/// A waiter is recent for this long: twice the time after which the engine's thread takes over by itself.
const RECENT: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> (Runtime, Tasks, Arc<BusyPoll>) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let tasks = Tasks::on(runtime.handle().clone());
        let busy_poll = BusyPoll::on(&tasks);
        (runtime, tasks, busy_poll)
    }

    #[test]
    fn ends_when_no_task_can_run_and_backs_off() {
        let (runtime, _, busy_poll) = runtime();
        for _ in 0..2 {
            let polling = busy_poll.start_for_driver();
            assert!(polling.is_some());
            run_until_off(&runtime, &busy_poll);
        }
        assert!(busy_poll.start_for_driver().is_none());
        assert!(busy_poll.start_for_driver().is_some());
    }

    #[test]
    fn only_a_caller_that_waited_counts_as_success() {
        let (_runtime, _, busy_poll) = runtime();
        let left_out = || {
            busy_poll.backoff.record_failure();
            (0..1000).take_while(|_| !busy_poll.backoff.should_try()).count()
        };
        assert_eq!([left_out(), left_out()], [0, 1]);
        drop(busy_poll.start_for_driver());
        assert_eq!(left_out(), 3, "its caller did not wait");
        busy_poll.start_for_driver().expect("a poll").record_success();
        assert_eq!(left_out(), 0);
    }

    /// Drives until it gives up.
    fn run_until_off(runtime: &Runtime, busy_poll: &BusyPoll) {
        runtime.block_on(async {
            while busy_poll.is_on() {
                yield_now().await;
            }
        });
    }

    fn waiting(busy_poll: &Arc<BusyPoll>) -> WaiterGuard {
        let guard = busy_poll.register_waiter();
        guard.start_polling();
        guard
    }

    #[test]
    fn serves_one_waiter_while_the_thread_drives() {
        let (_runtime, _, busy_poll) = runtime();
        let first = waiting(&busy_poll);
        assert!(!busy_poll.is_on(), "nobody else drives");
        assert!(busy_poll.start_for_driver().is_none(), "the driving caller is not alone");
        drop(first);
        busy_poll.set_thread_driving(true);
        let first = waiting(&busy_poll);
        assert!(busy_poll.is_on());
        let second = waiting(&busy_poll);
        assert!(!busy_poll.is_on(), "two wait");
        drop((first, second));
        let alone = waiting(&busy_poll);
        assert!(busy_poll.is_on());
        drop(alone);
        assert!(!busy_poll.is_on());
    }

    #[test]
    fn a_waiter_is_recent_for_a_moment_only() {
        let (_runtime, _, busy_poll) = runtime();
        let _waiter = busy_poll.register_waiter();
        assert!(busy_poll.has_recent_waiter());
        let patience = Instant::now();
        while busy_poll.has_recent_waiter() {
            assert!(patience.elapsed() < Duration::from_secs(20));
        }
        assert!(busy_poll.start_for_driver().is_some());
    }

    #[test]
    fn the_thread_stops_its_own_polling_and_not_a_callers() {
        let (_runtime, _, busy_poll) = runtime();
        busy_poll.set_thread_driving(true);
        let guard = waiting(&busy_poll);
        busy_poll.set_thread_driving(false);
        assert!(!busy_poll.is_on());
        drop(guard);
        busy_poll.set_thread_driving(true);
        let polling = busy_poll.start_for_driver();
        busy_poll.set_thread_driving(false);
        assert!(busy_poll.is_on());
        drop(polling);
        assert!(!busy_poll.is_on());
    }

    #[test]
    fn keeps_polling_between_callers_while_that_pays_off() {
        let (runtime, _, busy_poll) = runtime();
        busy_poll.set_thread_driving(true);
        waiting(&busy_poll).keep_polling();
        assert!(busy_poll.is_on() && busy_poll.is_between_callers());
        let again = waiting(&busy_poll);
        assert!(busy_poll.is_on() && !busy_poll.is_between_callers());
        again.keep_polling();
        run_until_off(&runtime, &busy_poll);
        assert!(!busy_poll.is_between_callers());
        waiting(&busy_poll).keep_polling();
        run_until_off(&runtime, &busy_poll);
        waiting(&busy_poll).keep_polling();
        assert!(!busy_poll.is_on(), "it has failed twice");
        waiting(&busy_poll).keep_polling();
        assert!(busy_poll.is_on(), "a poll");
        waiting(&busy_poll).keep_polling();
        waiting(&busy_poll).keep_polling();
        assert!(busy_poll.is_on(), "it has paid off");
        let (_one, _two) = (waiting(&busy_poll), waiting(&busy_poll));
        assert!(!busy_poll.is_on() && !busy_poll.is_between_callers());
    }

    #[test]
    fn goes_on_while_tasks_do() {
        let (runtime, tasks, busy_poll) = runtime();
        let _spinning = busy_poll.start_for_driver();
        let (begun, watched) = (Instant::now(), Arc::clone(&busy_poll));
        let busy = tasks.spawn(async move {
            while begun.elapsed() < 20 * LONGEST_GAP {
                yield_now().await;
            }
            watched.is_on()
        });
        assert!(runtime.block_on(busy).unwrap());
    }
}
