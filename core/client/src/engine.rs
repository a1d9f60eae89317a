//! The background thread that talks to the nodes for a process's locks. Owns its tasks and work.

mod adaptive_backoff;
mod busy_poll;
#[cfg(target_os = "linux")]
mod epoll;
mod runtime;
mod shared;
mod task;
mod waiters;

use std::ffi::c_int;
use std::future::Future;
use std::io;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::lazy;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

pub use self::adaptive_backoff::AdaptiveBackoff;
pub(crate) use self::busy_poll::WaiterGuard;
pub use self::runtime::Drive;
use self::runtime::SharedRuntime;
use self::task::FutureWith;
pub use self::task::Task;
use self::waiters::Waiters;
use crate::background::BackgroundTicket;
use crate::caller_queues::SharedQueues;
use crate::clock::ClockJumps;
use crate::redis_node::Connections;
use crate::tasks::Tasks;

/// A background thread that talks to the nodes, renews leases and watches their end.
///
/// It runs apart from the threads of its users, so that a blocked event loop or a busy interpreter
/// does not lose a lock. All [`Redlock`](crate::Redlock)s of a process share one engine and its
/// connections by default. Clones are handles to the same thread, which ends with the last one.
#[derive(Clone)]
pub struct Engine {
    shared: Arc<Shared>,
}

/// Dropped with the last handle, which ends the thread.
struct Shared {
    runtime: Arc<SharedRuntime>,
    jumps: ClockJumps,
    connections: Connections,
    caller_queues: SharedQueues,
    waiters: Waiters,
}

impl Engine {
    /// Starts a thread.
    ///
    /// # Errors
    /// The operating system's error if it cannot start one.
    pub fn start() -> io::Result<Self> {
        let (runtime, jumps, waiters) =
            (SharedRuntime::start()?, ClockJumps::default(), Waiters::new());
        let connections = Connections::on(runtime.tasks().clone());
        let caller_queues = SharedQueues::default();
        let shared = Shared { runtime, jumps, connections, caller_queues, waiters };
        Ok(Self { shared: Arc::new(shared) })
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
    /// let lease = locks.engine().block_on(lock.acquire())?;
    /// assert!(lease.is_valid());
    /// locks.engine().block_on(lease.release())?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// On a thread of an async runtime, which must not block.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.shared.runtime.block_on(future)
    }

    /// [`Self::block_on`] for `timeout` at the most; `None` if the future has not ended by then.
    ///
    /// # Panics
    /// As for [`Self::block_on`].
    pub fn block_on_for<F: Future>(&self, timeout: Duration, future: F) -> Option<F::Output> {
        self.block_on(async { tokio::time::timeout(timeout, future).await.ok() })
    }

    /// Calls `begin`, then drives the engine on the calling thread while one of its tasks is ready. Never waits, and
    /// does nothing while another thread drives. If that is the engine's own thread and `on_available` is given, the
    /// thread stops driving and wakes `on_available`.
    ///
    /// For an event loop that watches [`Self::descriptor`]: its thread then needs no other thread
    /// to be woken. There is no need to call it often: the engine's thread drives when no caller
    /// has come for 5 ms, and takes over work that would keep a caller for more than about 1 ms.
    ///
    /// ```
    /// use std::sync::mpsc;
    /// use quorlock::Redlock;
    /// use quorlock::embed::Drive;
    ///
    /// # fn main() -> Result<(), quorlock::LockError> {
    /// let locks = Redlock::builder().nodes(["memory://a", "memory://b", "memory://c"]).build()?;
    /// let (send, won) = mpsc::channel();
    /// let lock = locks.lock("invoice:42");
    /// let task = locks.engine().spawn(async move { send.send(lock.acquire().await) });
    /// // An event loop does this whenever the descriptor is readable, instead of again and again.
    /// let lease = loop {
    ///     if locks.engine().drive_ready(None, || ()) == Drive::ThreadDriving {
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
    pub fn drive_ready(&self, on_available: Option<Waker>, begin: impl FnOnce()) -> Drive {
        self.shared.runtime.drive_ready(on_available, begin, Duration::ZERO, || true)
    }

    /// [`Self::drive_ready`] that polls for replies until `is_done`, for `poll_for` at the most: quicker than sleeping
    /// and being woken, for a thread that has nothing else to do.
    ///
    /// # Panics
    /// As for [`Self::drive_ready`].
    pub fn drive_ready_for(
        &self,
        poll_for: Duration,
        on_available: Option<Waker>,
        begin: impl FnOnce(),
        is_done: impl FnMut() -> bool,
    ) -> Drive {
        self.shared.runtime.drive_ready(on_available, begin, poll_for, is_done)
    }

    /// A descriptor that is readable while input has arrived that no thread has read yet. The
    /// engine closes it. `None` where the platform has none.
    pub fn descriptor(&self) -> Option<c_int> {
        #[cfg(target_os = "linux")]
        return self.shared.runtime.within(epoll::descriptor);
        #[cfg(not(target_os = "linux"))]
        None
    }

    /// Makes the engine's thread drive at once: for work from a thread that does not drive (as when
    /// a future is dropped before its end), or if an event loop does not drive as it planned.
    pub fn wake_thread(&self) {
        self.shared.runtime.call_thread_back();
    }

    /// Runs `future` on the engine's thread. Dropping the task drops a future that has not ended.
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let leaving = Arc::new(OnceLock::new());
        // Background work that the future leaves behind is counted before the future ends.
        let join = self.hand_over(FutureWith { future, value: Arc::clone(&leaving) });
        let background = Arc::clone(self.tasks().background());
        Task { join: Some(join), leaving, background }
    }

    /// [`Self::spawn`] for a caller on another thread that waits only for the end of `future`.
    pub(crate) fn spawn_awaited<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let waiter = self.register_waiter();
        // Registers, awaits and unregisters without storing the future twice.
        let begun = lazy(move |_| {
            waiter.start_polling();
            waiter
        });
        self.spawn(begun.then(move |waiter| future.inspect(move |_| waiter.keep_polling())))
    }

    /// Runs `future` on the thread. Nothing waits for it, not even [`Self::drain`].
    pub(crate) fn spawn_detached(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.hand_over(future);
    }

    /// Runs `future` to its end on the thread, also without a caller; [`Self::drain`] waits for it.
    pub fn background(&self, future: impl Future<Output = ()> + Send + 'static) {
        let value = BackgroundTicket::new(self.tasks().background());
        self.hand_over(FutureWith { future, value });
    }

    fn hand_over<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let join = self.tasks().spawn(future);
        self.shared.runtime.wake_thread();
        join
    }

    /// Waits until all background work is done, that of tasks that were just dropped included, for `timeout` at most.
    ///
    /// For the end of a process: keys of cancelled acquisitions are then gone from the nodes. Returns
    /// whether all is done. Blocks the calling thread, which must not be the engine's own.
    pub fn drain(&self, timeout: Duration) -> bool {
        self.tasks().background().wait_until_idle(Instant::now() + timeout)
    }

    /// How long the end of a process should wait for background work and for `operations` that it is about to cancel: a
    /// tenth of a second, which only a node that does not answer uses up, and more for many, up to a second.
    pub fn exit_patience(&self, operations: usize) -> Duration {
        let count = self.tasks().background().under_way().saturating_add(operations);
        let for_all = u32::try_from(count).map_or(LONGEST_EXIT, |count| EXIT_EACH * count);
        (SHORTEST_EXIT + for_all).min(LONGEST_EXIT)
    }

    /// Gives up the places in the nodes' queues of all callers that wait, as background work, for the end of a process
    /// in which threads still wait. They are called by nobody from then on.
    pub fn leave_queues(&self) {
        self.shared.connections.leave_queues();
        self.wake_thread();
    }

    /// Registers a caller that waits on another thread. Engine tasks and the driving thread are not counted.
    pub(crate) fn register_waiter(&self) -> WaiterGuard {
        if self.is_current() {
            WaiterGuard::default()
        } else {
            self.shared.runtime.busy_poll().register_waiter()
        }
    }

    /// Whether the caller is a task of this engine, or drives it.
    pub(crate) fn is_current(&self) -> bool {
        let own = self.tasks().handle().id();
        Handle::try_current().is_ok_and(|current| current.id() == own)
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        self.shared.runtime.tasks()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.runtime.stop();
    }
}

const SHORTEST_EXIT: Duration = Duration::from_millis(100);
/// For each operation: several times what it takes to withdraw one on three nodes.
const EXIT_EACH: Duration = Duration::from_micros(500);
const LONGEST_EXIT: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_are_waited_for_longer_but_not_for_ever() {
        let engine = Engine::start().unwrap();
        let millis = |operations| engine.exit_patience(operations).as_millis();
        assert_eq!([0, 200, 2_000, usize::MAX].map(millis), [100, 200, 1_000, 1_000]);
        for _ in 0..200 {
            engine.background(std::future::pending());
        }
        assert_eq!(millis(0), 200, "what is done for nobody is waited for, too");
    }

    #[test]
    fn only_callers_on_other_threads_are_waiters() {
        let (engine, other) = (Engine::start().unwrap(), Engine::start().unwrap());
        let own = engine.clone();
        let counts = |engine: &Engine| {
            let _waiter = engine.register_waiter();
            engine.shared.runtime.busy_poll().has_recent_waiter()
        };
        assert!(counts(&engine));
        assert!(!engine.block_on(async { counts(&engine) }));
        assert!(other.block_on(async { counts(&engine) }));
        assert_eq!(engine.block_on(engine.spawn(async move { counts(&own) })), Some(false));
    }
}
