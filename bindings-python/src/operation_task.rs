//! An operation as a task that the waiting thread, an event loop's thread or the engine runs. Owns
//! which thread runs it and how its end is announced; the core decides what it does.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use quorlock::embed::Drive;
use quorlock::{Engine, LockError, Task};

use crate::calls::Untaken;
use crate::completion::{CompletionGuard, Outcome, Progress, Shared};
use crate::completion_queue;
use crate::loop_driving::{self, LoopDriving, LoopTurns};
use crate::process;

pub(crate) struct OperationTask {
    pub(crate) engine: &'static Engine,
    pub(crate) shared: Arc<Shared>,
    place: Mutex<Place>,
    /// It must run to its end even if nobody waits for it.
    is_due: bool,
    /// Present while a lease that a blocking call has won is not taken.
    untaken: Mutex<Option<Untaken>>,
}

/// Where the operation is kept.
#[derive(Default)]
enum Place {
    /// Started or not, it waits for a thread to run it.
    Here(Running),
    /// On the engine; dropping the task cancels it.
    OnEngine(Task<()>),
    /// A thread runs it now, so it cannot be taken, or it has ended.
    #[default]
    Taken,
}

/// The operation with its completion guard, which is dropped last, even if the operation is dropped
/// before its end.
type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

impl OperationTask {
    pub(crate) fn new(
        engine: &'static Engine,
        future: impl Future<Output = Result<Outcome, LockError>> + Send + 'static,
        is_due: bool,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let guard = CompletionGuard(Arc::clone(&shared));
        // Not an async block, which would store the operation twice.
        let running = Box::pin(future.map(move |result| guard.0.end(Some(result))));
        Self {
            engine,
            shared,
            place: Mutex::new(Place::Here(running)),
            is_due,
            untaken: Mutex::default(),
        }
    }

    pub(crate) fn done(engine: &'static Engine, result: Result<Outcome, LockError>) -> Self {
        let shared = Arc::new(Shared::default());
        shared.end(Some(result));
        Self { engine, shared, place: Mutex::default(), is_due: false, untaken: Mutex::default() }
    }

    /// Runs the operation here, or waits for it if another thread runs it, for `timeout` at most;
    /// tells whether it has ended.
    pub(crate) fn run(&self, timeout: Duration) -> bool {
        let Place::Here(mut running) = mem::take(&mut *self.place()) else {
            return self.shared.wait(timeout);
        };
        let Some(calls) = process::calls() else { return false };
        let (call, runs) = calls.begin(running.as_mut());
        let end = self.engine.block_on_for(timeout, runs);
        if let Some(Ok(())) = end {
            if self.shared.has_lease() {
                *self.untaken() = call.has_won(&self.shared);
            }
            return true;
        }
        *self.place() = Place::Here(running);
        if end.is_some() {
            self.give_up();
            drop(call);
            process::wait_until_told();
        }
        false
    }

    /// Its lease was taken.
    pub(crate) fn is_taken(&self) {
        let untaken = self.untaken().take();
        drop(untaken);
    }

    fn untaken(&self) -> MutexGuard<'_, Option<Untaken>> {
        self.untaken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the engine run it, unless a thread does already.
    pub(crate) fn start(&self) {
        self.hand_over();
        self.engine.wake_thread();
    }

    /// Makes the engine run it, and posts `number` when it has ended.
    pub(crate) fn announce(&self, queue: &Arc<completion_queue::Inner>, number: u64) {
        let mut progress = self.shared.lock();
        if progress.is_untold {
            progress.announce = Some((Arc::clone(queue), number));
            return;
        }
        if progress.has_ended {
            drop(progress);
            queue.post(number, None);
            return;
        }
        progress.announce = Some((Arc::clone(queue), number));
        if progress.counted.is_none() {
            progress.counted = process::loop_driving().map(LoopDriving::count);
        }
        drop(progress);
        self.hand_over();
    }

    /// Starts it on the thread of an event loop, which drives the engine for it; tells whether to
    /// [continue](Self::drive_on_loop).
    pub(crate) fn begin_on_loop(&self) -> bool {
        let Some(policy) = process::loop_driving() else { return false };
        let Some(counted) = policy.begin() else { return false };
        let mut progress = self.shared.lock();
        if progress.has_ended {
            return false;
        }
        progress.counted = Some(counted);
        drop(progress);
        let goes_on = match self.engine.drive_ready(None, || self.hand_over()) {
            Drive::Driven => true,
            Drive::Busy => false,
            Drive::ThreadDriving => {
                policy.should_interrupt_thread() && self.drive(Duration::ZERO) != Drive::Busy
            }
        };
        if !goes_on {
            return false;
        }
        // If the engine's thread still drives, it runs the operation: nobody knows when the loop
        // comes again.
        self.hand_over();
        if policy.reach(2) {
            // Other operations have started meanwhile, and rely on this thread.
            self.engine.wake_thread();
        }
        self.shared.lock().turns = Some(LoopTurns::begin());
        true
    }

    /// Drives the engine for another turn of the loop; tells whether the operation has ended.
    /// `None`: call again in the loop's next turn. `false`: the engine's thread continues with it.
    pub(crate) fn drive_on_loop(&self) -> Option<bool> {
        let Progress { turns, is_untold, .. } = *self.shared.lock();
        let (Some(policy), Some(mut turns), false) = (process::loop_driving(), turns, is_untold)
        else {
            return Some(false);
        };
        let has_ended = self.drive_for_a_turn(policy, turns.may_wait());
        let Some(has_ended) = has_ended else {
            turns.leave();
            self.shared.lock().turns = Some(turns);
            return None;
        };
        policy.record(has_ended);
        if !has_ended || policy.reach(1) {
            self.engine.wake_thread();
        }
        Some(has_ended)
    }

    /// The result of [`drive_on_loop`](Self::drive_on_loop).
    fn drive_for_a_turn(&self, policy: &LoopDriving, may_wait: bool) -> Option<bool> {
        let begin = Instant::now();
        loop {
            if self.shared.has_ended() {
                return Some(true);
            }
            if policy.reach(2) {
                return Some(false);
            }
            let rest = loop_driving::WAIT.checked_sub(begin.elapsed())?;
            let drive = self.drive(if may_wait { rest } else { Duration::ZERO });
            if self.shared.has_ended() {
                return Some(true);
            }
            if !may_wait || drive == Drive::Busy {
                return Some(false);
            }
            if drive == Drive::ThreadDriving {
                // Until the engine's thread has stopped.
                thread::park_timeout(loop_driving::WAIT.checked_sub(begin.elapsed())?);
            }
        }
    }

    /// Starts the operation if it has not started, and drives all tasks that are ready, unless
    /// another thread drives; polls until it has ended, for `poll_for` at most.
    fn drive(&self, poll_for: Duration) -> Drive {
        let (on_available, begin) = (Some(loop_driving::on_available()), || self.hand_over());
        self.engine.drive_ready_for(poll_for, on_available, begin, || self.shared.has_ended())
    }

    /// Makes the engine run the operation, unless a thread runs it already.
    fn hand_over(&self) {
        let mut place = self.place();
        *place = match mem::take(&mut *place) {
            Place::Here(running) if self.is_due => {
                self.engine.background(running);
                Place::Taken
            }
            Place::Here(running) => Place::OnEngine(self.engine.spawn(running)),
            elsewhere => elsewhere,
        };
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the operation at the end of the process. [`Self::tell_end`] tells its callers.
    pub(crate) fn cancel_untold(&self) {
        self.shared.lock().is_untold = true;
        self.cancel();
    }

    /// Tells the callers of an operation that [`Self::cancel_untold`] has cancelled.
    pub(crate) fn tell_end(&self) {
        let mut progress = self.shared.lock();
        progress.is_untold = false;
        // Where it has not ended yet, its end will be told.
        let announce = if progress.has_ended { progress.announce.take() } else { None };
        drop(progress);
        if let Some((queue, number)) = announce {
            queue.post(number, None);
        }
    }

    pub(crate) fn cancel(&self) {
        let mut progress = self.shared.lock();
        progress.is_cancelled = true;
        let result = progress.result.take();
        let taken = progress.taken.take();
        drop(progress);
        self.give_up();
        // If a loop has started it, no other thread would continue with it.
        self.engine.wake_thread();
        if let Some(lease) = taken {
            lease.withdraw();
        }
        drop(result);
    }

    /// Drops the operation, wherever it is kept, or leaves it to the engine if it must run to its
    /// end.
    fn give_up(&self) {
        let place = mem::take(&mut *self.place());
        match place {
            Place::Taken => {}
            Place::OnEngine(task) if self.shared.has_ended() => drop(task),
            Place::Here(running) if self.is_due => self.engine.background(running),
            place => {
                drop(place);
                // The commands that the drop has queued are sent at once.
                self.engine.wake_thread();
            }
        }
    }
}

impl Drop for OperationTask {
    fn drop(&mut self) {
        self.give_up();
    }
}
