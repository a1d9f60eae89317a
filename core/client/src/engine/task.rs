//! A future on the engine, as its caller holds it. Owns what happens to the future when the caller drops it.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;
use tokio::task::JoinHandle;

use crate::background::{Background, BackgroundTicket};

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

/// A future that runs on an [`Engine`](super::Engine); dropping it drops the future there.
#[must_use = "dropping a task cancels it"]
pub struct Task<T> {
    /// Absent once nobody waits for it any more.
    pub(super) join: Option<JoinHandle<T>>,
    /// Counts as background work from the cancellation until the future is dropped on the thread.
    pub(super) leaving: Arc<OnceLock<BackgroundTicket>>,
    pub(super) background: Arc<Background>,
}

impl<T> Task<T> {
    /// Makes the engine's thread drop the future soon. [`Engine::drain`](super::Engine::drain) waits for that, too.
    pub fn cancel(&self) {
        if let Some(join) = self.join.as_ref().filter(|join| !join.is_finished()) {
            self.leaving.get_or_init(|| BackgroundTicket::new(&self.background));
            join.abort();
        }
    }

    /// Lets the future run to its end without a caller.
    pub fn detach(mut self) {
        self.join = None;
    }
}

impl<T> Future for Task<T> {
    /// `None` if the engine ended or the task was aborted first.
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let Some(join) = &mut self.join else { return Poll::Ready(None) };
        match Pin::new(join).poll(context) {
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
