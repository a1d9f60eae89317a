//! The way back to one JavaScript environment. Owns what has ended there and what is under way.
//!
//! Both ways go in batches. What is asked for in one turn of JavaScript starts together, at its end
//! ([`flush`]). Every result goes through one list; the environment's thread is woken only when
//! the list was empty, after the turn of the core's thread, and takes all of it at once. What is still
//! under way when the environment ends is dropped, which withdraws it.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use futures_util::task::AtomicWaker;
use napi::bindgen_prelude::{External, Function};
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status};
use napi_derive::napi;
use quorlock::{Engine, Task};

use crate::lease::{Held, Leases};
use crate::outcome::{Outcome, Part};

/// Shared by the environment's thread and the core's.
pub struct Queue {
    wake: Wake,
    /// Of the task that starts what is asked for.
    intake: AtomicWaker,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    asked: Vec<(u32, Operation)>,
    ended: Vec<(u32, Outcome)>,
    /// What nobody has given up; without a task until it is started.
    running: HashMap<u32, Option<Task<()>>>,
    leases: Leases,
    /// Starts what is asked for; from the first time on.
    starter: Option<Task<()>>,
    closed: bool,
}

type Operation = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// Weak: an open bridge does not keep the process alive. What has to is decided in JavaScript.
type Wake = ThreadsafeFunction<(), (), (), Status, false, true, 0>;

/// Makes the bridge of this environment; `wake` is called when there is something to take.
#[napi]
pub fn bridge(env: &Env, wake: Function<'_, (), ()>) -> napi::Result<External<Arc<Queue>>> {
    let wake = wake.build_threadsafe_function().weak::<true>().build()?;
    let queue = Queue { wake, intake: AtomicWaker::new(), state: Mutex::default() };
    let queue = Arc::new(queue);
    env.add_env_cleanup_hook(Arc::clone(&queue), |queue| queue.close())?;
    Ok(External::new(queue))
}

/// Starts what has been asked for since the last call.
#[napi]
pub fn flush(bridge: &External<Arc<Queue>>) {
    bridge.intake.wake();
}

/// Everything that has ended since the last call, in order: for each the operation's id and the two
/// parts of its [`Outcome`].
#[napi(ts_return_type = "Array<unknown>")]
pub fn take(bridge: &External<Arc<Queue>>) -> Vec<Part> {
    let mut state = bridge.lock();
    let ended = mem::take(&mut state.ended);
    let (kept, cancelled): (Vec<_>, Vec<_>) = ended.into_iter().partition(|(id, outcome)| {
        matches!(outcome, Outcome::Lost(_) | Outcome::Renewal(_))
            || state.running.remove(id).is_some()
    });
    drop(state);
    // A lease that nobody waits for any more is withdrawn by its guard.
    drop(cancelled);
    let mut parts = Vec::with_capacity(3 * kept.len());
    for (id, outcome) in kept {
        let (value, beside) = outcome.parts(bridge);
        parts.extend([Part::A(id), value, beside]);
    }
    parts
}

/// The process ends: gives up what is under way, and waits a moment (in milliseconds) until the nodes
/// have been told.
#[napi]
pub fn finish(bridge: &External<Arc<Queue>>, patience: f64) {
    let Ok(engine) = Engine::shared() else { return bridge.close() };
    let patience = Duration::from_secs_f64(patience.clamp(0.0, 10_000.0) / 1000.0);
    // What was asked for last is on its way first: a release is not taken back.
    bridge.intake.wake();
    pass(&engine, patience);
    bridge.close();
    pass(&engine, patience);
    engine.drain(patience);
}

/// Gives an operation up; tells whether it was still under way. No result comes after this.
#[napi]
pub fn cancel(bridge: &External<Arc<Queue>>, id: u32) -> bool {
    let task = bridge.lock().running.remove(&id);
    task.is_some()
}

/// Starts what is asked for, for as long as the environment lasts.
async fn start(queue: Arc<Queue>, engine: Engine) {
    loop {
        let asked = poll_fn(|context| {
            queue.intake.register(context.waker());
            let asked = mem::take(&mut queue.lock().asked);
            if asked.is_empty() { Poll::Pending } else { Poll::Ready(asked) }
        });
        let started: Vec<_> = asked
            .await
            .into_iter()
            .map(|(id, operation)| {
                let ticket = Ticket { queue: Arc::clone(&queue), id };
                (id, engine.spawn(ticket.see_through(operation)))
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
    /// Has an operation run on the core's thread, from the next [`flush`] on; its outcome comes back
    /// under `id`.
    pub(crate) fn run<F>(self: &Arc<Self>, engine: &Engine, id: u32, operation: F)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let mut state = self.lock();
        state.asked.push((id, Box::pin(operation)));
        state.running.insert(id, None);
        if state.starter.is_none() {
            let starting = start(Arc::clone(self), engine.clone());
            state.starter = Some(engine.spawn(starting));
        }
    }

    /// JavaScript has a lease, until it forgets it.
    pub(crate) fn know(&self, held: &Arc<Held>) {
        self.lock().leases.add(held);
    }

    /// Something that has come up by itself.
    pub(crate) fn push(self: &Arc<Self>, id: u32, outcome: Outcome) {
        drop(self.put(id, outcome));
    }

    /// Whoever drops what this returns, if anything, wakes the environment's thread. Also tells whether
    /// nothing else is under way.
    fn put(self: &Arc<Self>, id: u32, outcome: Outcome) -> Option<(WakeOnDrop, bool)> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        let was_empty = state.ended.is_empty();
        state.ended.push((id, outcome));
        was_empty.then(|| (WakeOnDrop(Arc::clone(self)), state.running.len() <= 1))
    }

    /// The environment ends: what is under way is dropped, which withdraws it, and what is held is
    /// extended no more.
    fn close(&self) {
        let mut state = self.lock();
        let rest = mem::replace(&mut *state, State { closed: true, ..State::default() });
        drop(state);
        let State { asked, ended, running, leases, starter, closed: _ } = rest;
        leases.let_run_out();
        drop((asked, ended, running, starter));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until the core's thread, which does one thing after the other, has done what it was told to.
fn pass(engine: &Engine, patience: Duration) {
    let (send, passed) = mpsc::channel();
    let marker = engine.spawn(async move {
        turn().await;
        send.send(())
    });
    let _ = passed.recv_timeout(patience);
    drop(marker);
}

/// Wakes the environment's thread, whatever becomes of whoever was about to.
struct WakeOnDrop(Arc<Queue>);

impl Drop for WakeOnDrop {
    fn drop(&mut self) {
        self.0.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
    }
}

/// Sees to it that an operation is answered even if it panics.
struct Ticket {
    queue: Arc<Queue>,
    id: u32,
}

impl Ticket {
    async fn see_through(self, operation: Operation) {
        let outcome = operation.await;
        if let Some((wake, is_alone)) = self.queue.put(self.id, outcome) {
            if !is_alone {
                // What ends in the same turn comes along.
                turn().await;
            }
            drop(wake);
        }
    }
}

/// Lets everybody have a turn who could go on by now.
async fn turn() {
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

impl Drop for Ticket {
    fn drop(&mut self) {
        if thread::panicking() {
            self.queue.push(self.id, Outcome::Broken);
        }
    }
}
