//! One operation: run by the thread that waits for it, or by the engine and announced to a mailbox. Owns
//! the hand-over of its result; what it does is the core's.
//!
//! Blocking code, asyncio and gevent all begin the same operations and differ only in how they wait. A
//! lease is withdrawn unless Python has taken it: a wait may be interrupted at the moment it is won.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use quorlock::{Engine, Lease, LockError, Task};

use crate::ending::{Ending, Outcome, Shared};
use crate::errors;
use crate::fork::OfProcess;
use crate::mailbox::Mailbox;
use crate::notices;

/// An operation under way. Dropping it cancels it.
#[pyclass(frozen, module = "quorlock._native")]
pub(crate) struct Operation {
    inner: OfProcess<Inner>,
}

struct Inner {
    engine: &'static Engine,
    shared: Arc<Shared>,
    work: Mutex<Work>,
    /// What it does is done also if nobody waits for it.
    is_due: bool,
}

/// Where the work is.
#[derive(Default)]
enum Work {
    /// Begun or not, it waits for a thread to run it.
    Here(Running),
    OnEngine(#[expect(dead_code, reason = "dropped, it is cancelled")] Task<()>),
    /// It is run now and cannot be given up, or it has ended.
    #[default]
    Taken,
}

impl Operation {
    /// Has `future` run by whoever waits, or by the engine once it is announced; dropped before, it is
    /// given up.
    pub(crate) fn new(
        engine: &'static Engine,
        future: impl Future<Output = Result<Outcome, LockError>> + Send + 'static,
    ) -> Self {
        Self::over(engine, future, false)
    }

    /// The same for what is done in any case, also if nobody waits for it.
    pub(crate) fn due(
        engine: &'static Engine,
        future: impl Future<Output = Result<Outcome, LockError>> + Send + 'static,
    ) -> Self {
        Self::over(engine, future, true)
    }

    /// An operation that has this result already.
    pub(crate) fn done(engine: &'static Engine, result: Result<Outcome, LockError>) -> Self {
        let shared = Arc::new(Shared::default());
        shared.end(Some(result));
        let work = Mutex::default();
        Self { inner: OfProcess::new(Inner { engine, shared, work, is_due: false }) }
    }

    fn over(
        engine: &'static Engine,
        future: impl Future<Output = Result<Outcome, LockError>> + Send + 'static,
        is_due: bool,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let ending = Ending(Arc::clone(&shared));
        let running = Box::pin(async move {
            let ending = ending;
            let result = future.await;
            ending.0.end(Some(result));
        });
        let work = Mutex::new(Work::Here(running));
        Self { inner: OfProcess::new(Inner { engine, shared, work, is_due }) }
    }

    /// The lease that was won or adopted, for good: from now on it is Python's.
    pub(crate) fn take_lease(&self, py: Python<'_>) -> PyResult<Lease> {
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

    /// The token of the lease that Python has taken.
    pub(crate) fn taken(&self) -> Option<String> {
        let progress = self.inner.get()?.shared.lock();
        progress.taken.as_ref().map(|lease| lease.token().to_owned())
    }
}

#[pymethods]
impl Operation {
    /// Waits until the operation has ended; tells whether there is something to be logged. A signal's
    /// exception (as of Ctrl-C) cancels it.
    fn wait(&self, py: Python<'_>) -> PyResult<bool> {
        let inner = self.inner.get().ok_or_else(|| errors::cancelled(py))?;
        if !py.detach(|| inner.run(TICK)) {
            inner.wait_for_signals(py).inspect_err(|_| {
                inner.cancel();
                py.detach(|| {
                    inner.shared.wait(SETTLE);
                    inner.engine.drain(SETTLE)
                });
            })?;
        }
        Ok(notices::has_notices())
    }

    /// Has the engine run the operation, and `number` posted to the mailbox when it has ended; at once if
    /// it has.
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
            drop(progress);
            inner.hand_over();
        }
        Ok(())
    }

    /// Gives the operation up. A lease that it won is withdrawn, also if Python has taken it.
    pub(crate) fn cancel(&self) {
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

    /// What a release came to; a loss is raised if `raise_on_lost`.
    fn released(&self, py: Python<'_>, raise_on_lost: bool) -> PyResult<&'static str> {
        let inner = self.inner.get().ok_or_else(|| errors::cancelled(py))?;
        let result = inner.shared.lock().result.take();
        match result {
            Some(Ok(Outcome::Released(_, Some(loss)))) if raise_on_lost => {
                Err(errors::raised(py, &loss))
            }
            Some(Ok(Outcome::Released(outcome, _))) => Ok(outcome.name()),
            Some(Err(error)) => Err(errors::raised(py, &error)),
            _ => Err(errors::cancelled(py)),
        }
    }
}

impl Inner {
    /// Waits for the end of a longer wait; the error is that of a signal's handler.
    fn wait_for_signals(&self, py: Python<'_>) -> PyResult<()> {
        if !is_main_thread(py)? {
            // Signals are handled in the main thread only.
            py.detach(|| self.run(Duration::MAX));
            return Ok(());
        }
        loop {
            py.check_signals()?;
            if py.detach(|| self.run(TICK)) {
                return Ok(());
            }
        }
    }

    /// Runs the operation here, or waits for it if another does, for `timeout` at the most; tells
    /// whether it has ended.
    fn run(&self, timeout: Duration) -> bool {
        let Work::Here(mut running) = mem::take(&mut *self.work()) else {
            return self.shared.wait(timeout);
        };
        let has_ended = self.engine.block_on_for(timeout, running.as_mut()).is_some();
        if !has_ended {
            *self.work() = Work::Here(running);
        }
        has_ended
    }

    /// Has the engine run the operation, unless it is run already.
    fn hand_over(&self) {
        let mut work = self.work();
        *work = match mem::take(&mut *work) {
            Work::Here(running) if self.is_due => {
                self.engine.background(running);
                Work::Taken
            }
            Work::Here(running) => Work::OnEngine(self.engine.spawn(running)),
            elsewhere => elsewhere,
        };
    }

    fn work(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cancel(&self) {
        let mut progress = self.shared.lock();
        progress.is_cancelled = true;
        let result = progress.result.take();
        let taken = progress.taken.take();
        drop(progress);
        self.give_up();
        if let Some(lease) = taken {
            lease.withdraw();
        }
        drop(result);
    }

    /// Drops the work, wherever it is, or leaves to the engine what is done in any case.
    fn give_up(&self) {
        let work = mem::take(&mut *self.work());
        match work {
            Work::Taken => {}
            Work::Here(running) if self.is_due => self.engine.background(running),
            work => {
                drop(work);
                // What the dropping has sent is on its way at once.
                self.engine.prod();
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// The operation with its ending, which comes last also when it is dropped half-way.
type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

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
