//! Spawns the tasks of a runtime, and counts how many of them are ready to run and what is done for no caller. Knows
//! nothing of what they do.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::task::{JoinHandle, yield_now};

use crate::background::Background;

/// Where tasks are spawned, and counted while they are ready.
#[derive(Clone)]
pub(crate) struct Tasks {
    handle: Handle,
    counts: Arc<Counts>,
    background: Arc<Background>,
}

#[derive(Default)]
struct Counts {
    ready: AtomicUsize,
    /// How many times one of them has run.
    steps: AtomicUsize,
}

impl Tasks {
    pub(crate) fn on(handle: Handle) -> Self {
        Self { handle, counts: Arc::default(), background: Arc::default() }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What is done for no caller.
    pub(crate) const fn background(&self) -> &Arc<Background> {
        &self.background
    }

    /// Whether no task is ready.
    pub(crate) fn are_idle(&self) -> bool {
        self.counts.ready.load(Ordering::Acquire) == 0
    }

    /// A number that changes whenever a task runs.
    pub(crate) fn steps(&self) -> usize {
        self.counts.steps.load(Ordering::Relaxed)
    }

    pub(crate) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let mark = Mark::new(&self.counts);
        let waker = Waker::from(Arc::clone(&mark.0));
        // In a box of its own: what the runtime keeps of a task takes a multiple of 128 bytes.
        self.handle.spawn(Box::pin(Marked { future, waker, mark }))
    }

    /// Lets the tasks run until none is ready and no input is left, but not for much longer than
    /// `limit`; tells whether none is ready. To be called by the thread that drives the runtime.
    pub(crate) async fn run_ready(&self, limit: Duration) -> bool {
        let begin = Instant::now();
        loop {
            // The runtime runs the tasks, then checks sockets and timers.
            yield_now().await;
            if self.are_idle() {
                return true;
            }
            if begin.elapsed() > limit {
                return false;
            }
        }
    }

    /// Lets the tasks run and polls for input until `is_done`, or for about `limit`.
    pub(crate) async fn poll_for(&self, limit: Duration, mut is_done: impl FnMut() -> bool) {
        let begin = Instant::now();
        while begin.elapsed() < limit && !is_done() {
            yield_now().await;
        }
    }
}

pin_project! {
    /// A task's future, which marks when it is ready.
    struct Marked<F> {
        #[pin]
        future: F,
        waker: Waker,
        mark: Mark,
    }
}

impl<F: Future> Future for Marked<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        this.mark.0.begin(context.waker());
        this.future.poll(&mut Context::from_waker(this.waker))
    }
}

/// A task's mark for as long as the task lives.
struct Mark(Arc<Flag>);

/// Whether a task is ready, and thereby counted.
struct Flag {
    is_ready: AtomicBool,
    counts: Arc<Counts>,
    /// The runtime's own waker of the task, which never changes.
    waker: OnceLock<Waker>,
}

impl Mark {
    fn new(counts: &Arc<Counts>) -> Self {
        counts.ready.fetch_add(1, Ordering::AcqRel);
        let is_ready = AtomicBool::new(true);
        Self(Arc::new(Flag { is_ready, counts: Arc::clone(counts), waker: OnceLock::new() }))
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // It stays marked as ready: a later wake does not count it again.
        if self.0.is_ready.swap(true, Ordering::AcqRel) {
            self.0.counts.ready.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Flag {
    /// The task runs.
    fn begin(&self, waker: &Waker) {
        self.waker.get_or_init(|| waker.clone());
        self.counts.steps.fetch_add(1, Ordering::Relaxed);
        if self.is_ready.swap(false, Ordering::AcqRel) {
            self.counts.ready.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_ready.swap(true, Ordering::AcqRel) {
            self.counts.ready.fetch_add(1, Ordering::AcqRel);
        }
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Builder;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn driving_ends_when_no_task_is_ready() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let tasks = Tasks::on(runtime.handle().clone());
        let (send, receive) = oneshot::channel::<()>();
        let (told, hear) = oneshot::channel();
        let waits = tasks.spawn(async move {
            receive.await.unwrap();
            // Many steps, each of which makes the next possible.
            for _ in 0..200 {
                yield_now().await;
            }
            told.send(()).unwrap();
        });
        assert!(runtime.block_on(tasks.run_ready(LONG)));
        assert!(!waits.is_finished());
        send.send(()).unwrap();
        assert_eq!(tasks.counts.ready.load(Ordering::Acquire), 1);
        assert!(runtime.block_on(tasks.run_ready(LONG)));
        assert!(waits.is_finished());
        assert_eq!(runtime.block_on(hear), Ok(()));
    }

    #[test]
    fn driving_does_not_outlast_its_limit() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let tasks = Tasks::on(runtime.handle().clone());
        let endless = tasks.spawn(async {
            loop {
                yield_now().await;
            }
        });
        assert!(!runtime.block_on(tasks.run_ready(Duration::from_millis(1))));
        endless.abort();
        assert!(runtime.block_on(tasks.run_ready(LONG)));
    }

    #[test]
    fn a_dropped_task_is_not_counted() {
        let runtime = Builder::new_current_thread().build().unwrap();
        let tasks = Tasks::on(runtime.handle().clone());
        let (send, receive) = oneshot::channel::<()>();
        let never_polled = tasks.spawn(receive);
        assert_eq!(tasks.counts.ready.load(Ordering::Acquire), 1);
        never_polled.abort();
        assert!(runtime.block_on(tasks.run_ready(LONG)));
        assert!(send.send(()).is_err());
        let ends = tasks.spawn(async {});
        drop(runtime);
        assert_eq!(tasks.counts.ready.load(Ordering::Acquire), 0);
        drop(ends);
    }

    const LONG: Duration = Duration::from_secs(60);
}
