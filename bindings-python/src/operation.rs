//! One operation under way on the engine: waited for, announced to a mailbox, or cancelled. Owns the
//! hand-over of its result; what it does is the core's.
//!
//! Blocking code, asyncio and gevent all start the same operations and differ only in how they wait. A
//! lease is withdrawn unless Python has taken it: a wait may be interrupted at the moment it is won.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use quorlock::{Engine, Lease, LeaseGuard, LockError, ReleaseOutcome, Task};

use crate::errors;
use crate::fork::OfProcess;
use crate::mailbox::{self, Mailbox};
use crate::notices;

/// An operation under way. Dropping it cancels it.
#[pyclass(frozen, module = "quorlock._native")]
pub(crate) struct Operation {
    inner: OfProcess<Inner>,
}

struct Inner {
    engine: &'static Engine,
    shared: Arc<Shared>,
    /// `None` where the operation had ended before it was begun.
    task: Option<Task<()>>,
}

/// What a successful operation gives.
pub(crate) enum Outcome {
    Won(LeaseGuard),
    Adopted(Lease),
    Time(Duration),
    Released(ReleaseOutcome, Option<LockError>),
    Flag(bool),
}

#[derive(Default)]
struct Shared {
    progress: Mutex<Progress>,
    ended: Condvar,
}

#[derive(Default)]
struct Progress {
    result: Option<Result<Outcome, LockError>>,
    /// The lease that Python took from the result.
    taken: Option<Lease>,
    has_ended: bool,
    is_cancelled: bool,
    announce: Option<(Arc<mailbox::Inner>, u64)>,
}

impl Operation {
    /// Runs `future` on the engine.
    pub(crate) fn start(
        engine: &'static Engine,
        future: impl Future<Output = Result<Outcome, LockError>> + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let ending = Ending(Arc::clone(&shared));
        let task = Some(engine.spawn(Running { future: Box::pin(future), ending }));
        Self { inner: OfProcess::new(Inner { engine, shared, task }) }
    }

    /// An operation that has this result already.
    pub(crate) fn done(engine: &'static Engine, result: Result<Outcome, LockError>) -> Self {
        let shared = Arc::new(Shared::default());
        shared.end(Some(result));
        Self { inner: OfProcess::new(Inner { engine, shared, task: None }) }
    }

    /// The lease that was won or adopted, for good: from now on it is Python's.
    pub(crate) fn take_lease(&self, py: Python<'_>) -> PyResult<Lease> {
        notices::log(py)?;
        let inner = self.inner.get().ok_or_else(|| errors::cancelled(py))?;
        let mut progress = inner.shared.lock();
        let lease = match progress.result.take() {
            Some(Ok(Outcome::Won(guard))) => {
                let lease = guard.into_lease();
                progress.taken = Some(lease.clone());
                lease
            }
            Some(Ok(Outcome::Adopted(lease))) => lease,
            Some(Err(error)) => return Err(errors::raised(py, &error)),
            None => return Err(errors::cancelled(py)),
            Some(Ok(_)) => return Err(PyTypeError::new_err("the operation gives no lease")),
        };
        Ok(lease)
    }
}

#[pymethods]
impl Operation {
    /// Waits until the operation has ended. A signal's exception (as of Ctrl-C) cancels it.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let inner = self.inner.get().ok_or_else(|| errors::cancelled(py))?;
        let shared = &inner.shared;
        if py.detach(|| shared.wait(TICK)) {
            return Ok(());
        }
        inner.wait_for_signals(py).inspect_err(|_| {
            inner.cancel();
            py.detach(|| {
                shared.wait(SETTLE);
                inner.engine.drain(SETTLE)
            });
        })
    }

    /// Posts `number` to the mailbox when the operation has ended; at once if it has.
    fn announce(&self, py: Python<'_>, mailbox: &Mailbox, number: u64) -> PyResult<()> {
        let (Some(inner), Some(mailbox)) = (self.inner.get(), mailbox.inner()) else {
            return Err(errors::cancelled(py));
        };
        let mut progress = inner.shared.lock();
        if progress.has_ended {
            drop(progress);
            mailbox.post(number, None);
        } else {
            progress.announce = Some((Arc::clone(mailbox), number));
        }
        Ok(())
    }

    /// Gives the operation up. A lease that it won is withdrawn, also if Python has taken it.
    fn cancel(&self) {
        if let Some(inner) = self.inner.get() {
            inner.cancel();
        }
    }

    /// Whether it has ended.
    #[getter]
    fn has_ended(&self) -> bool {
        self.inner.get().is_none_or(|inner| inner.shared.lock().has_ended)
    }

    /// What it gave, once: seconds, a flag, or a release's outcome with its error. Raises its error.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        notices::log(py)?;
        let inner = self.inner.get().ok_or_else(|| errors::cancelled(py))?;
        let result = inner.shared.lock().result.take();
        match result {
            Some(Ok(Outcome::Time(time))) => Ok(time.as_secs_f64().into_pyobject(py)?.into_any()),
            Some(Ok(Outcome::Flag(flag))) => Ok(flag.into_pyobject(py)?.to_owned().into_any()),
            Some(Ok(Outcome::Released(outcome, loss))) => {
                let loss = loss.map(|error| errors::exception(py, &error)).transpose()?;
                Ok((outcome.name(), loss).into_pyobject(py)?.into_any())
            }
            Some(Ok(Outcome::Won(_) | Outcome::Adopted(_))) => {
                Err(PyTypeError::new_err("the operation gives a lease"))
            }
            Some(Err(error)) => Err(errors::raised(py, &error)),
            None => Err(errors::cancelled(py)),
        }
    }
}

impl Inner {
    /// Waits for the end of a longer wait; the error is that of a signal's handler.
    fn wait_for_signals(&self, py: Python<'_>) -> PyResult<()> {
        if !is_main_thread(py)? {
            // Signals are handled in the main thread only.
            py.detach(|| self.shared.wait(Duration::MAX));
            return Ok(());
        }
        loop {
            py.check_signals()?;
            if py.detach(|| self.shared.wait(TICK)) {
                return Ok(());
            }
        }
    }

    fn cancel(&self) {
        let mut progress = self.shared.lock();
        progress.is_cancelled = true;
        let result = progress.result.take();
        let taken = progress.taken.take();
        drop(progress);
        if let Some(task) = &self.task {
            task.cancel();
        }
        if let Some(lease) = taken {
            lease.withdraw();
        }
        drop(result);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the operation has ended, for `timeout` at the most; tells whether it has.
    fn wait(&self, timeout: Duration) -> bool {
        let until = Instant::now().checked_add(timeout);
        let mut progress = self.lock();
        while !progress.has_ended {
            progress = match until {
                None => self.ended.wait(progress).unwrap_or_else(PoisonError::into_inner),
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    let waited = self.ended.wait_timeout(progress, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        true
    }

    fn end(&self, result: Option<Result<Outcome, LockError>>) {
        let mut progress = self.lock();
        if progress.has_ended {
            return;
        }
        progress.has_ended = true;
        let unwanted =
            if progress.is_cancelled { result } else { mem::replace(&mut progress.result, result) };
        let announce = progress.announce.take();
        drop(progress);
        drop(unwanted);
        self.ended.notify_all();
        if let Some((mailbox, number)) = announce {
            mailbox.post(number, None);
        }
    }
}

/// The future with its ending, which comes last also when the task is aborted.
struct Running<F> {
    future: Pin<Box<F>>,
    ending: Ending,
}

impl<F: Future<Output = Result<Outcome, LockError>>> Future for Running<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.future.as_mut().poll(context).map(|result| self.ending.0.end(Some(result)))
    }
}

struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(None);
    }
}

/// Asking runs Python code, and with it the handler of a signal that has come in: its error is passed on.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let Ok(threading) = py.import("threading") else {
        return Ok(true); // the interpreter ends
    };
    let main = threading.call_method0("main_thread")?;
    Ok(threading.call_method0("current_thread")?.is(&main))
}

/// How often signals are looked for.
const TICK: Duration = Duration::from_millis(25);
/// How long an interrupted wait stays for its withdrawal, in each of two steps.
const SETTLE: Duration = Duration::from_millis(30);
