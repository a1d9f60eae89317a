//! Carries results back to one JavaScript environment. Owns the results and the operations that are
//! under way.
//!
//! Both directions work in batches. Operations that are asked for in one turn of JavaScript start
//! together, at its end ([`Queue::start`]). All results go into one list; the environment's thread
//! is woken only if the list was empty, after the turn of the core's thread, and takes many results
//! at once, until none is left. It is not woken if it drives the core itself. Operations that are under way when the
//! environment ends are dropped, which withdraws them; releases are done in the background.

use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::mem::{self, take};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{self, Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use futures::FutureExt as _;
use futures::task::AtomicWaker;
use napi::Status;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use quorlock::embed::Drive;
use quorlock::{Engine, Task};

use crate::leases::{Leases, RunsOut};
use crate::outcome::Outcome;

/// Shared by the environment's thread and the core's.
pub(crate) struct Queue {
    wake: Wake,
    /// Wakes the task that starts operations.
    intake: AtomicWaker,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    asked: Vec<(u32, Operation)>,
    ended: VecDeque<(u32, Outcome)>,
    /// Operations that have neither ended nor were cancelled; without a task until they are started.
    running: HashMap<u32, Option<Task<()>>>,
    leases: Leases,
    /// The task that starts operations; present from the first one on.
    starter: Option<Task<()>>,
    /// The environment's thread drives the core, and takes the results afterwards.
    loop_drives: bool,
    /// Operations were dropped, and none was asked for since.
    is_over: bool,
    closed: bool,
}

type Operation = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Weak: an open bridge does not keep the process alive. JavaScript's half decides what does.
pub(crate) type Wake = ThreadsafeFunction<(), (), (), Status, false, true, 0>;

/// Starts operations as they are asked for, as long as the environment lasts.
async fn start(queue: Arc<Queue>, engine: Engine) {
    loop {
        let asked = poll_fn(|context| {
            queue.intake.register(context.waker());
            let asked = take(&mut queue.lock().asked);
            if asked.is_empty() { Poll::Pending } else { Poll::Ready(asked) }
        });
        let started: Vec<_> = asked
            .await
            .into_iter()
            .map(|(id, operation)| {
                let guard = AnswerGuard { queue: Arc::clone(&queue), id };
                (id, engine.spawn(guard.run(operation)))
            })
            .collect();
        let mut given_up = Vec::new();
        let mut state = queue.lock();
        for (id, task) in started {
            match state.running.get_mut(&id) {
                Some(running) => *running = Some(task),
                None => given_up.push(task),
            }
        }
        drop(state);
    }
}

impl Queue {
    /// `wake` is called when there are results to take.
    pub(crate) fn new(wake: &Function<'_, (), ()>) -> napi::Result<Arc<Self>> {
        let wake = wake.build_threadsafe_function().weak::<true>().build()?;
        Ok(Arc::new(Self { wake, intake: AtomicWaker::new(), state: Mutex::default() }))
    }

    /// Starts what has been asked for.
    pub(crate) fn start(&self) {
        self.intake.wake();
    }

    /// Calls `begin`, then drives the core on the environment's thread while a task is ready. If the core's own thread
    /// drives, `wake` is called when it has stopped.
    ///
    /// Polls for replies until an operation has ended, for `poll_for` at most.
    pub(crate) fn drive(
        self: &Arc<Self>,
        engine: &Engine,
        poll_for: Duration,
        begin: impl FnOnce(),
    ) -> Drive {
        let mut state = self.lock();
        state.loop_drives = true;
        let on_available = (!state.running.is_empty()).then(|| Waker::from(Arc::clone(self)));
        drop(state);
        let drive = engine.drive_ready_for(poll_for, on_available, begin, || self.has_ended());
        self.lock().loop_drives = false;
        drive
    }

    /// How many operations are under way.
    pub(crate) fn under_way(&self) -> usize {
        self.lock().running.len()
    }

    /// Whether there are results to take.
    pub(crate) fn has_ended(&self) -> bool {
        !self.lock().ended.is_empty()
    }

    /// What has ended and was not taken yet: the `most` oldest results.
    pub(crate) fn take(&self, most: usize) -> Vec<(u32, Outcome)> {
        let ended = &mut self.lock().ended;
        if ended.len() > most { ended.drain(..most).collect() } else { take(ended).into() }
    }

    /// Cancels an operation; tells whether it was still under way: if not, its result is on its way.
    pub(crate) fn cancel(&self, id: u32) -> bool {
        let task = self.lock().running.remove(&id);
        task.is_some()
    }

    /// Runs an operation on the core, from the next [`Self::start`] on; its result comes back under
    /// `id`.
    pub(crate) fn run<F>(self: &Arc<Self>, engine: &Engine, id: u32, operation: F)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut state = self.lock();
        state.asked.push((id, Box::pin(operation)));
        state.is_over = false;
        state.running.insert(id, None);
        if state.starter.is_none() {
            let starting = start(Arc::clone(self), engine.clone());
            state.starter = Some(engine.spawn(starting));
        }
    }

    /// Like [`Self::run`], for an operation that is done in the background if it is dropped before its end.
    pub(crate) fn run_to_end<F>(self: &Arc<Self>, engine: &Engine, id: u32, operation: F)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let operation: Option<Operation> = Some(Box::pin(operation));
        self.run(engine, id, Due { operation, engine: engine.clone() });
    }

    /// Adds a lease that JavaScript has, until it is collected.
    pub(crate) fn add_lease(&self, lease: &Arc<impl RunsOut + 'static>) {
        self.lock().leases.add(lease);
    }

    /// An operation has ended. The returned value, if there is one, wakes the environment's thread when it is dropped.
    /// Also tells whether no other operation is under way.
    fn end(self: &Arc<Self>, id: u32, outcome: Outcome) -> Option<(WakeOnDrop, bool)> {
        let mut state = self.lock();
        // Here rather than where results are taken: the environment's thread, on which all its code runs, has less to do.
        // What a cancelled operation has won is withdrawn by its guard.
        let task = state.running.remove(&id)?;
        task.into_iter().for_each(Task::detach);
        let is_last = state.running.is_empty();
        state.put(id, outcome).then(|| (WakeOnDrop(Arc::clone(self)), is_last))
    }

    /// Adds a result that belongs to no operation.
    pub(crate) fn push(self: &Arc<Self>, id: u32, outcome: Outcome) {
        let wakes = self.lock().put(id, outcome);
        if wakes {
            self.call();
        }
    }

    /// Drops operations under way and results that were not taken, which withdraws them.
    pub(crate) fn drop_operations(&self) {
        let mut state = self.lock();
        let dropped = (take(&mut state.asked), take(&mut state.ended), take(&mut state.running));
        state.is_over = true;
        drop(state);
        drop(dropped);
    }

    /// The environment ends: takes back the leases whose callers have not continued with them. Tells whether there were
    /// any.
    pub(crate) fn take_back_undelivered(&self) -> bool {
        let leases = self.lock().leases.known();
        leases.iter().filter(|lease| lease.take_back_undelivered()).count() > 0
    }

    /// Whether all operations were dropped, and none was asked for since.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// The environment ends: also, held leases are no longer renewed.
    pub(crate) fn close(&self) {
        self.drop_operations();
        let mut state = self.lock();
        let State { leases, starter, .. } =
            mem::replace(&mut *state, State { closed: true, ..State::default() });
        drop(state);
        // No code works under them any more.
        leases.known().iter().for_each(|lease| lease.let_run_out());
        drop(starter);
    }

    /// Calls the environment's thread.
    fn call(&self) {
        self.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds a result; tells whether the environment's thread has to be woken.
    fn put(&mut self, id: u32, outcome: Outcome) -> bool {
        if self.closed {
            return false;
        }
        self.ended.push_back((id, outcome));
        self.ended.len() == 1 && !self.loop_drives
    }
}

/// An operation that must be done even if nobody waits for it.
struct Due {
    operation: Option<Operation>,
    engine: Engine,
}

impl Future for Due {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let operation = self.operation.as_mut().expect("it has not ended");
        let poll = operation.as_mut().poll(context);
        if poll.is_ready() {
            self.operation = None;
        }
        poll
    }
}

impl Drop for Due {
    fn drop(&mut self) {
        // What has panicked is not polled again.
        if let Some(operation) = self.operation.take()
            && !thread::panicking()
        {
            self.engine.background(operation.map(drop));
        }
    }
}

/// Wakes the environment's thread, even if the task that was going to do it is dropped.
struct WakeOnDrop(Arc<Queue>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.call();
    }
}

/// Called when the core's thread has stopped driving for the environment's thread.
impl task::Wake for Queue {
    fn wake(self: Arc<Self>) {
        self.call();
    }
}

/// Gives an operation a result even if it panics.
struct AnswerGuard {
    queue: Arc<Queue>,
    id: u32,
}

impl AnswerGuard {
    async fn run(self, operation: Operation) {
        let outcome = operation.await;
        if let Some((wake, is_alone)) = self.queue.end(self.id, outcome) {
            if !is_alone {
                // Results of the same turn are taken together.
                yield_once().await;
            }
            drop(wake);
        }
    }
}

/// Lets every task run that is ready by now.
async fn yield_once() {
    let mut has_waited = false;
    poll_fn(|context| {
        if mem::replace(&mut has_waited, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Drop for AnswerGuard {
    fn drop(&mut self) {
        if thread::panicking() {
            drop(self.queue.end(self.id, Outcome::Broken));
        }
    }
}
