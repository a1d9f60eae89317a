//! An operation as Python meets it: how it is begun, waited for and taken the result of. Knows nothing of
//! who runs it.
//!
//! Blocking code, asyncio and gevent all begin the same operations and differ only in how they wait. A
//! lease is withdrawn unless Python has taken it: a wait may be interrupted at the moment it is won.

use std::future::Future;
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use quorlock::{Engine, Lease, LockError};

use crate::ending::Outcome;
use crate::errors;
use crate::fork::OfProcess;
use crate::mailbox::Mailbox;
use crate::work::Work;

/// An operation under way. Dropping it cancels it.
#[pyclass(frozen, module = "quorlock._native")]
pub(crate) struct Operation {
    work: OfProcess<Work>,
}

impl Operation {
    /// Has `future` run by whoever waits, or by the engine once it is announced; dropped before, it is
    /// given up.
    pub(crate) fn new(
        engine: &'static Engine,
        future: impl Future<Output = Result<Outcome, LockError>> + Send + 'static,
    ) -> Self {
        Self { work: OfProcess::new(Work::new(engine, future, false)) }
    }

    /// The same for what is done in any case, also if nobody waits for it.
    pub(crate) fn due(
        engine: &'static Engine,
        future: impl Future<Output = Result<Outcome, LockError>> + Send + 'static,
    ) -> Self {
        Self { work: OfProcess::new(Work::new(engine, future, true)) }
    }

    /// An operation that has this result already.
    pub(crate) fn done(engine: &'static Engine, result: Result<Outcome, LockError>) -> Self {
        Self { work: OfProcess::new(Work::done(engine, result)) }
    }

    /// The lease that was won or adopted, for good: from now on it is Python's.
    pub(crate) fn take_lease(&self, py: Python<'_>) -> PyResult<Lease> {
        let work = self.work.get().ok_or_else(|| errors::cancelled(py))?;
        let mut progress = work.shared.lock();
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
        let progress = self.work.get()?.shared.lock();
        progress.taken.as_ref().map(|lease| lease.token().to_owned())
    }
}

#[pymethods]
impl Operation {
    /// Waits until the operation has ended. A signal's exception (as of Ctrl-C) cancels it.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let work = self.work.get().ok_or_else(|| errors::cancelled(py))?;
        if !py.detach(|| work.run(TICK)) {
            wait_for_signals(py, work).inspect_err(|_| {
                work.cancel();
                py.detach(|| {
                    work.shared.wait(SETTLE);
                    work.engine.drain(SETTLE)
                });
            })?;
        }
        Ok(())
    }

    /// Has the engine run the operation, and `number` posted to the mailbox when it has ended; at once if
    /// it has.
    fn announce(&self, py: Python<'_>, mailbox: &Mailbox, number: u64) -> PyResult<()> {
        let (Some(work), Some(mailbox)) = (self.work.get(), mailbox.inner()) else {
            return Err(errors::cancelled(py));
        };
        work.announce(mailbox, number);
        Ok(())
    }

    /// Begins the operation on the thread of an event loop, which drives the engine for it, if it is the
    /// only one under way; tells whether to `stay`.
    fn visit(&self, py: Python<'_>) -> bool {
        self.work.get().is_some_and(|work| py.detach(|| work.visit()))
    }

    /// Drives the engine for some more of it; tells whether it has ended. `None`: to be called again after
    /// a turn of the loop. `False`: it takes longer, and is to be announced.
    fn stay(&self, py: Python<'_>) -> PyResult<Option<bool>> {
        let work = self.work.get().ok_or_else(|| errors::cancelled(py))?;
        Ok(py.detach(|| work.stay()))
    }

    /// Gives the operation up. A lease that it won is withdrawn, also if Python has taken it.
    pub(crate) fn cancel(&self) {
        if let Some(work) = self.work.get() {
            work.cancel();
        }
    }

    /// Whether it has ended.
    #[getter]
    fn has_ended(&self) -> bool {
        self.work.get().is_none_or(|work| work.shared.has_ended())
    }

    /// What it gave, once: seconds, a flag, or a release's outcome with its error. Raises its error.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let work = self.work.get().ok_or_else(|| errors::cancelled(py))?;
        let result = work.shared.lock().result.take();
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
        let work = self.work.get().ok_or_else(|| errors::cancelled(py))?;
        let result = work.shared.lock().result.take();
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

/// Waits for the end of a longer wait; the error is that of a signal's handler.
fn wait_for_signals(py: Python<'_>, work: &Work) -> PyResult<()> {
    if !is_main_thread(py)? {
        // Signals are handled in the main thread only.
        py.detach(|| work.run(Duration::MAX));
        return Ok(());
    }
    loop {
        py.check_signals()?;
        if py.detach(|| work.run(TICK)) {
            return Ok(());
        }
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
