//! The thread on which all locks of a process live. Owns what runs there and the work left behind.

#[cfg(target_os = "linux")]
mod epoll;
mod helm;
mod luck;
mod spin;
mod tasks;

use std::ffi::c_int;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::lazy;
use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use self::helm::Helm;
pub use self::helm::Visit;
pub use self::luck::Luck;
pub(crate) use self::spin::Awaited;
pub(crate) use self::tasks::Tasks;
use crate::clock::Jumps;
use crate::redis_node::Connections;

/// A background thread that talks to the nodes, renews leases and watches their end.
///
/// It runs apart from the threads of its users, so that a blocked event loop or a busy interpreter
/// does not lose a lock. Every [`Redlock`](crate::Redlock) of a process shares one and its connections,
/// unless it is given its own. Cloning gives another handle to the same thread, which ends with the last handle.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// Dropped with the last handle, which ends the thread.
struct Shared {
    helm: Arc<Helm>,
    background: Arc<Background>,
    jumps: Jumps,
    connections: Connections,
}

/// Counts the withdrawals that go on after their caller has left.
#[derive(Default)]
struct Background {
    counts: Mutex<Counts>,
    idle: Condvar,
}

#[derive(Default)]
struct Counts {
    under_way: usize,
    /// Who waits for none to be left: nobody, most of the time, and then nobody is woken.
    waiting: usize,
}

impl Engine {
    /// Starts a thread.
    ///
    /// # Errors
    /// Whatever the operating system says when it cannot start one.
    pub fn start() -> io::Result<Self> {
        let (background, jumps) = (Arc::default(), Jumps::default());
        let helm = Helm::start()?;
        let connections = Connections::on(helm.tasks().clone());
        Ok(Self { shared: Arc::new(Shared { helm, background, jumps, connections }) })
    }

    /// The engine that the locks of this process share; started at the first call.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn shared() -> io::Result<Self> {
        static SHARED: OnceLock<Engine> = OnceLock::new();
        if let Some(engine) = SHARED.get() {
            return Ok(engine.clone());
        }
        let engine = Self::start()?;
        Ok(SHARED.get_or_init(|| engine).clone())
    }

    /// Runs `future` to its end on the calling thread, which drives the engine meanwhile: the shortest way
    /// for code that blocks anyway, since no other thread has to be woken. Many threads may do so at once.
    ///
    /// ```
    /// use quorlock::Redlock;
    ///
    /// # fn main() -> Result<(), quorlock::LockError> {
    /// let locks = Redlock::builder().nodes(["memory://a", "memory://b", "memory://c"]).build()?;
    /// let lock = locks.lock("invoice:42");
    /// let lease = locks.engine().block_on(lock.acquire_here())?;
    /// assert!(lease.is_valid());
    /// locks.engine().block_on(lease.release())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// On a thread of an async runtime, which must not block.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.shared.helm.block_on(future)
    }

    /// [`Self::block_on`] for `timeout` at the most; `None` if the future has not ended by then.
    ///
    /// # Panics
    /// As for [`Self::block_on`].
    pub fn block_on_for<F: Future>(&self, timeout: Duration, future: F) -> Option<F::Output> {
        self.block_on(async { tokio::time::timeout(timeout, future).await.ok() })
    }

    /// Drives the engine on the calling thread for as long as there is something to do at once, which
    /// begins with `begin`, and never waits. Does nothing while another thread drives; where that is the
    /// engine's own, it is asked to leave, and wakes `relief` when it has.
    ///
    /// For an event loop that watches [`Self::descriptor`]: what its own thread does needs no other thread
    /// to be woken. Nothing depends on it: the engine's thread takes over when nobody comes for 5 ms, and
    /// at once from a visit that gets long.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use quorlock::{Redlock, Visit};
    ///
    /// # fn main() -> Result<(), quorlock::LockError> {
    /// let locks = Redlock::builder().nodes(["memory://a", "memory://b", "memory://c"]).build()?;
    /// let (send, won) = mpsc::channel();
    /// let lock = locks.lock("invoice:42");
    /// let task = locks.engine().spawn(async move { send.send(lock.acquire_here().await) });
    /// // An event loop does this whenever the descriptor is readable, instead of again and again.
    /// let lease = loop {
    ///     if locks.engine().visit(None, || ()) == Visit::Deferred {
    ///         std::thread::yield_now();
    ///     }
    ///     if let Ok(result) = won.try_recv() {
    ///         break result?;
    ///     }
    /// };
    /// assert!(lease.is_valid());
    /// # drop(task);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// On a thread of an async runtime.
    pub fn visit(&self, relief: Option<Waker>, begin: impl FnOnce()) -> Visit {
        self.shared.helm.visit(relief, begin, Duration::ZERO, || true)
    }

    /// [`Self::visit`], which then looks again and again for what comes in, for `stay` at the most and until
    /// `is_over`: quicker than to fall asleep and be woken, for a thread that has nothing else to do.
    ///
    /// # Panics
    /// As for [`Self::visit`].
    pub fn visit_for(
        &self,
        stay: Duration,
        relief: Option<Waker>,
        begin: impl FnOnce(),
        is_over: impl FnMut() -> bool,
    ) -> Visit {
        self.shared.helm.visit(relief, begin, stay, is_over)
    }

    /// A descriptor that is readable while something has come in that nobody has looked at yet; it stays
    /// the engine's. `None` where the platform has none.
    pub fn descriptor(&self) -> Option<c_int> {
        #[cfg(target_os = "linux")]
        return self.shared.helm.within(epoll::descriptor);
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Has the thread look at once for what was handed to the engine from outside (what the dropping of
    /// a half-run future sends), or for what a visitor does not come for any more, instead of soon.
    pub fn prod(&self) {
        self.shared.helm.recall();
    }

    /// Runs `future` on the thread. Dropping the task before it has ended drops the future.
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let leaving = Arc::new(OnceLock::new());
        // What the future leaves behind is counted before its leaving is over.
        let join = self.hand_over(Holding { future: Box::pin(future), held: Arc::clone(&leaving) });
        Task { join, leaving, background: Arc::clone(&self.shared.background) }
    }

    /// [`Self::spawn`] for somebody on another thread who waits for nothing but the end of `future`.
    pub(crate) fn spawn_awaited<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let awaited = self.await_elsewhere();
        // Begin, await, end, without room for the future twice.
        let begun = lazy(move |_| {
            awaited.begin();
            awaited
        });
        self.spawn(begun.then(move |awaited| future.inspect(move |_| awaited.end())))
    }

    /// Runs `future` on the thread for as long as it lasts; nobody waits for it, not even the end of the
    /// process.
    pub(crate) fn spawn_detached(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.hand_over(future);
    }

    /// Runs `future` to its end on the thread, also if nobody waits for it; [`Self::drain`] does.
    pub fn background(&self, future: impl Future<Output = ()> + Send + 'static) {
        let ticket = BackgroundTicket::new(&self.shared.background);
        self.hand_over(Holding { future, held: ticket });
    }

    fn hand_over<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let join = self.tasks().spawn(future);
        self.shared.helm.prod();
        join
    }

    /// Waits until every withdrawal left behind has been answered, but not for longer than `timeout`.
    ///
    /// For the end of a process: what was cancelled a moment ago is then off the nodes. Returns
    /// whether nothing is left. Blocks the calling thread, which must not be the engine's own.
    pub fn drain(&self, timeout: Duration) -> bool {
        let background = &self.shared.background;
        let end = Instant::now() + timeout;
        let mut counts = background.lock();
        counts.waiting += 1;
        while counts.under_way > 0 {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            counts = background
                .idle
                .wait_timeout(counts, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(counts, _)| counts);
        }
        counts.waiting -= 1;
        counts.under_way == 0
    }

    /// Of what this engine's managers notice.
    pub(crate) fn jumps(&self) -> &Jumps {
        &self.shared.jumps
    }

    /// That this engine's managers share.
    pub(crate) fn connections(&self) -> &Connections {
        &self.shared.connections
    }

    /// Counts the caller, who waits from now on; not one of this engine's tasks, or who drives it.
    pub(crate) fn await_elsewhere(&self) -> Awaited {
        let own = self.tasks().handle().id();
        let is_here = Handle::try_current().is_ok_and(|current| current.id() == own);
        if is_here { Awaited::default() } else { self.shared.helm.spin().expect() }
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        self.shared.helm.tasks()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.helm.stop();
    }
}

impl Background {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pin_project! {
    /// A future that holds something until it is gone itself. (An async block would have room for the future
    /// twice: before and after it begins.)
    struct Holding<F, T> {
        #[pin]
        future: F,
        held: T,
    }
}

impl<F: Future, T> Future for Holding<F, T> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.project().future.poll(context)
    }
}

struct BackgroundTicket(Arc<Background>);

impl BackgroundTicket {
    fn new(background: &Arc<Background>) -> Self {
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

/// A future that runs on an [`Engine`]; dropping it drops the future there.
#[must_use = "dropping a task cancels it"]
pub struct Task<T> {
    join: JoinHandle<T>,
    /// Counts as work left behind from the cancellation until the future is gone from the thread.
    leaving: Arc<OnceLock<BackgroundTicket>>,
    background: Arc<Background>,
}

impl<T> Task<T> {
    /// Has the future dropped, soon, on the engine's thread. [`Engine::drain`] waits for that too.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_not_on_it_counts_as_waiting_elsewhere() {
        let (engine, other) = (Engine::start().unwrap(), Engine::start().unwrap());
        let own = engine.clone();
        let counts = |engine: &Engine| {
            let _awaited = engine.await_elsewhere();
            engine.shared.helm.spin().is_awaited()
        };
        assert!(counts(&engine));
        assert!(!engine.block_on(async { counts(&engine) }));
        assert!(other.block_on(async { counts(&engine) }));
        assert_eq!(engine.block_on(engine.spawn(async move { counts(&own) })), Some(false));
    }
}
