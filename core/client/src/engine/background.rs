//! Work for which no caller waits, such as withdrawals, and tasks that become such work when they are dropped. Owns how
//! it is counted.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Instant;

use pin_project_lite::pin_project;
use tokio::task::JoinHandle;

/// The work of one engine.
#[derive(Default)]
pub(super) struct Background {
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
    pub(super) fn wait_until_idle(&self, end: Instant) -> bool {
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

pin_project! {
    /// A future together with a value that is dropped after it. (An async block would store the
    /// future twice: before and after it begins.)
    pub(super) struct FutureWith<F, T> {
        #[pin]
        pub(super) future: F,
        pub(super) value: T,
    }
}

impl<F: Future, T> Future for FutureWith<F, T> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(context)
    }
}

/// Counts as work under way until it is dropped.
pub(super) struct BackgroundTicket(Arc<Background>);

impl BackgroundTicket {
    pub(super) fn new(background: &Arc<Background>) -> Self {
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

/// A future that runs on an [`Engine`](super::Engine); dropping it drops the future there.
#[must_use = "dropping a task cancels it"]
pub struct Task<T> {
    pub(super) join: JoinHandle<T>,
    /// Counts as background work from the cancellation until the future is dropped on the thread.
    pub(super) leaving: Arc<OnceLock<BackgroundTicket>>,
    pub(super) background: Arc<Background>,
}

impl<T> Task<T> {
    /// Makes the engine's thread drop the future soon. [`Engine::drain`](super::Engine::drain) waits for that, too.
    pub fn cancel(&self) {
        if !self.join.is_finished() {
            self.leaving.get_or_init(|| BackgroundTicket::new(&self.background));
            self.join.abort();
        }
    }
}

impl<T> Future for Task<T> {
    /// `None` if the engine ended or the task was aborted first.
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        match Pin::new(&mut self.join).poll(context) {
            Poll::Ready(Ok(value)) => Poll::Ready(Some(value)),
            Poll::Ready(Err(error)) if error.is_panic() => {
                std::panic::resume_unwind(error.into_panic())
            }
            Poll::Ready(Err(_)) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.cancel();
    }
}
