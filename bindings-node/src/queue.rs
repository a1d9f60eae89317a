//! The way back to one JavaScript environment. Owns what has ended there and what is under way.
//!
//! Every result goes through one list; the environment's thread is woken only when the list was empty,
//! and takes all of it at once. What is still under way when the environment ends is dropped, which
//! withdraws it.

use std::collections::HashMap;
use std::future::Future;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use napi::{Env, Status};
use napi_derive::napi;
use quorlock::{Engine, LeaseGuard, LockError, NodeReport, ReleaseOutcome, ReleaseVotes, Task};

use crate::errors::Failure;
use crate::lease::{Leases, NativeLease};
use crate::votes::{NativeVotes, NodeVote};

/// What an operation ended with.
pub(crate) enum Outcome {
    Acquired(LeaseGuard),
    Validity(Duration),
    /// With the error that the outcome amounts to, if it does.
    Released(ReleaseOutcome, ReleaseVotes, Option<LockError>),
    Answer(bool),
    Failed(LockError),
    /// The operation broke off because of a defect.
    Broken,
    /// Not an operation's end: a lease that is watched has been lost.
    Lost(LockError),
    /// Not an operation's end: what the nodes did in a round that was to renew a watched lease.
    Renewal(Vec<NodeReport>),
}

/// One result on its way into JavaScript.
#[napi(object, object_from_js = false)]
pub struct Settled {
    /// Which operation it answers.
    pub id: u32,
    /// The lease that was acquired.
    pub lease: Option<NativeLease>,
    /// What is left of the validity, in milliseconds.
    pub validity: Option<f64>,
    /// What became of a released lease: `released`, `expired`, `taken` or `unknown`.
    pub outcome: Option<&'static str>,
    /// What the nodes answer to a release.
    pub votes: Option<NativeVotes>,
    /// The answer to a question.
    pub answer: Option<bool>,
    /// Why it failed, or why a watched lease was lost.
    pub error: Option<Failure>,
    /// What the nodes did in a round that was to renew a watched lease.
    pub renewal: Option<Vec<NodeVote>>,
}

/// The results for one JavaScript environment.
#[napi]
pub struct Bridge {
    queue: Arc<Queue>,
}

/// Shared by the environment's thread and the core's.
pub(crate) struct Queue {
    wake: Wake,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ended: Vec<(u32, Outcome)>,
    running: HashMap<u32, Task<()>>,
    leases: Leases,
    closed: bool,
}

/// Weak: an open bridge does not keep the process alive. What has to is decided in JavaScript.
type Wake = ThreadsafeFunction<(), (), (), Status, false, true, 0>;

#[napi]
impl Bridge {
    /// Makes the bridge of this environment; `wake` is called when there is something to take.
    #[napi(constructor)]
    pub fn new(env: &Env, wake: Function<'_, (), ()>) -> napi::Result<Self> {
        let wake = wake.build_threadsafe_function().weak::<true>().build()?;
        let queue = Arc::new(Queue { wake, state: Mutex::default() });
        env.add_env_cleanup_hook(Arc::clone(&queue), |queue| queue.close())?;
        Ok(Self { queue })
    }

    /// Everything that has ended since the last call, in order.
    #[napi]
    pub fn take(&self) -> Vec<Settled> {
        let mut state = self.queue.lock();
        let ended = mem::take(&mut state.ended);
        let (kept, cancelled): (Vec<_>, Vec<_>) = ended.into_iter().partition(|(id, outcome)| {
            matches!(outcome, Outcome::Lost(_) | Outcome::Renewal(_))
                || state.running.remove(id).is_some()
        });
        drop(state);
        // A lease that nobody waits for any more is withdrawn by its guard.
        drop(cancelled);
        let settled: Vec<_> =
            kept.into_iter().map(|(id, outcome)| Settled::new(id, outcome)).collect();
        let mut state = self.queue.lock();
        for lease in settled.iter().filter_map(|each| each.lease.as_ref()) {
            state.leases.add(lease);
        }
        drop(state);
        settled
    }

    /// The process ends: gives up what is under way, and waits a moment (in milliseconds) until the nodes
    /// have been told.
    #[napi]
    pub fn finish(&self, patience: f64) {
        self.queue.close();
        let Ok(engine) = Engine::shared() else { return };
        let patience = Duration::from_secs_f64(patience.clamp(0.0, 10_000.0) / 1000.0);
        let (send, passed) = mpsc::channel();
        // Comes after what has been dropped: the thread does one thing after the other.
        let marker = engine.spawn(async move { send.send(()) });
        let _ = passed.recv_timeout(patience);
        drop(marker);
        engine.drain(patience);
    }

    /// Gives an operation up; tells whether it was still under way. No result comes after this.
    #[napi]
    pub fn cancel(&self, id: u32) -> bool {
        let task = self.queue.lock().running.remove(&id);
        task.is_some()
    }
}

impl Bridge {
    /// Runs an operation on the core's thread; its outcome comes back under `id`.
    pub(crate) fn run<F>(&self, engine: &Engine, id: u32, operation: F)
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let ticket = Ticket { queue: Arc::clone(&self.queue), id };
        let task = engine.spawn(async move {
            let outcome = operation.await;
            ticket.queue.push(ticket.id, outcome);
        });
        self.queue.lock().running.insert(id, task);
    }

    pub(crate) fn queue(&self) -> Arc<Queue> {
        Arc::clone(&self.queue)
    }
}

impl Queue {
    pub(crate) fn push(&self, id: u32, outcome: Outcome) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        let was_empty = state.ended.is_empty();
        state.ended.push((id, outcome));
        drop(state);
        if was_empty {
            self.wake.call((), ThreadsafeFunctionCallMode::NonBlocking);
        }
    }

    /// The environment ends: what is under way is dropped, which withdraws it, and what is held is
    /// extended no more.
    fn close(&self) {
        let mut state = self.lock();
        let rest = mem::replace(&mut *state, State { closed: true, ..State::default() });
        drop(state);
        let State { ended, running, leases, closed: _ } = rest;
        leases.let_run_out();
        drop((ended, running));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sees to it that an operation is answered even if it panics.
struct Ticket {
    queue: Arc<Queue>,
    id: u32,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if thread::panicking() {
            self.queue.push(self.id, Outcome::Broken);
        }
    }
}

impl Settled {
    fn new(id: u32, outcome: Outcome) -> Self {
        let mut settled = Self {
            id,
            lease: None,
            validity: None,
            outcome: None,
            votes: None,
            answer: None,
            error: None,
            renewal: None,
        };
        match outcome {
            Outcome::Acquired(guard) => settled.lease = Some(NativeLease::new(guard.into_lease())),
            Outcome::Validity(validity) => settled.validity = Some(millis(validity)),
            Outcome::Released(outcome, votes, loss) => {
                settled.outcome = Some(outcome.name());
                settled.votes = Some(NativeVotes::new(votes));
                settled.error = loss.as_ref().map(Failure::new);
            }
            Outcome::Answer(answer) => settled.answer = Some(answer),
            Outcome::Failed(error) | Outcome::Lost(error) => {
                settled.error = Some(Failure::new(&error));
            }
            Outcome::Renewal(votes) => settled.renewal = Some(NodeVote::list(&votes)),
            Outcome::Broken => settled.error = Some(Failure::broken()),
        }
        settled
    }
}

impl From<LockError> for Outcome {
    fn from(error: LockError) -> Self {
        Self::Failed(error)
    }
}

/// JavaScript's unit of time.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}
