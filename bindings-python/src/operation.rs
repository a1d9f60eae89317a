//! An operation as Python sees it: how it is waited for, cancelled, and asked for its result. Does
//! not know which thread runs it.
//!
//! Blocking code, asyncio and gevent all start the same operations and differ only in how they
//! wait. A lease is withdrawn unless Python has taken it: a wait may be interrupted at the moment
//! when the lease is won.

use std::future::Future;
use std::time::Duration;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::time::UNIX_EPOCH;

use quorlock::Holder;
use quorlock::{Engine, Lease, LockError};

use crate::completion::Outcome;
use crate::completion_queue::CompletionQueue;
use crate::errors;
use crate::fork::ForkLocal;
use crate::operation_task::OperationTask;
use crate::process;

/// An operation under way. Dropping it cancels it.
#[pyclass(frozen, module = "quorlock._native")]
pub(crate) struct Operation {
    task: ForkLocal<OperationTask>,
}

impl Operation {
    /// Runs `future` on the thread that waits, or on the engine once it is announced. If it is
    /// dropped before, the operation is cancelled.
    pub(crate) fn new(
        engine: &'static Engine,
        future: impl Future<Output = Result<Outcome, LockError>> + Send + 'static,
    ) -> Self {
        Self { task: ForkLocal::new(OperationTask::new(engine, future, false)) }
    }

    /// The same for work that is done in any case, even if nobody waits for it.
    pub(crate) fn due(
        engine: &'static Engine,
        future: impl Future<Output = Result<Outcome, LockError>> + Send + 'static,
    ) -> Self {
        Self { task: ForkLocal::new(OperationTask::new(engine, future, true)) }
    }

    /// An operation that has this result already.
    pub(crate) fn done(engine: &'static Engine, result: Result<Outcome, LockError>) -> Self {
        Self { task: ForkLocal::new(OperationTask::done(engine, result)) }
    }

    /// Takes the lease that was won or adopted: from now on Python owns it.
    pub(crate) fn take_lease(&self, py: Python<'_>) -> PyResult<Lease> {
        let task = self.task.get().ok_or_else(|| errors::cancelled(py))?;
        let mut progress = task.shared.lock();
        let lease = match progress.result.take() {
            Some(Ok(Outcome::Won(guard))) => {
                let lease = guard.deliver().into_lease();
                progress.taken = Some(lease.clone());
                drop(progress);
                task.is_taken();
                lease
            }
            Some(Ok(Outcome::Adopted(lease))) => lease,
            Some(Err(error)) => return Err(errors::raised(py, &error)),
            None => {
                drop(progress);
                return Err(gone(py, task));
            }
            Some(Ok(_)) => return Err(PyTypeError::new_err("the operation gives no lease")),
        };
        Ok(lease)
    }

    /// What runs it, in the process that began it.
    pub(crate) fn task(&self) -> Option<&OperationTask> {
        self.task.get()
    }

    /// The token of the lease that Python has taken.
    pub(crate) fn taken(&self) -> Option<String> {
        let progress = self.task.get()?.shared.lock();
        progress.taken.as_ref().map(|lease| lease.token().to_owned())
    }
}

#[pymethods]
impl Operation {
    /// Waits until the operation has ended. A signal's exception (as of Ctrl-C) cancels it.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let task = self.task.get().ok_or_else(|| errors::cancelled(py))?;
        if !py.detach(|| task.run(TICK)) {
            wait_for_signals(py, task).inspect_err(|_| {
                task.cancel();
                py.detach(|| {
                    task.shared.wait(SETTLE);
                    task.engine.drain(SETTLE)
                });
            })?;
        }
        Ok(())
    }

    /// Makes the engine run the operation, and posts `number` to the queue when it has ended; at
    /// once if it has.
    fn announce(&self, py: Python<'_>, queue: &CompletionQueue, number: u64) -> PyResult<()> {
        let (Some(task), Some(queue)) = (self.task.get(), queue.inner()) else {
            return Err(errors::cancelled(py));
        };
        task.announce(queue, number);
        Ok(())
    }

    /// Makes the engine run the operation, unless a thread runs it already.
    fn start(&self, py: Python<'_>) {
        if let Some(task) = self.task.get() {
            py.detach(|| task.start());
        }
    }

    /// Starts the operation on the thread of an event loop, which drives the engine for it, if no
    /// other operation is under way; tells whether to call `drive_on_loop` next.
    fn begin_on_loop(&self, py: Python<'_>) -> bool {
        self.task.get().is_some_and(|task| py.detach(|| task.begin_on_loop()))
    }

    /// Drives the engine for some more time; tells whether the operation has ended. `None`: call
    /// again after a turn of the loop. `False`: it takes longer and must be announced.
    fn drive_on_loop(&self, py: Python<'_>) -> PyResult<Option<bool>> {
        let task = self.task.get().ok_or_else(|| errors::cancelled(py))?;
        Ok(py.detach(|| task.drive_on_loop()))
    }

    /// Cancels the operation. A lease that it won is withdrawn, even if Python has taken it.
    pub(crate) fn cancel(&self) {
        if let Some(task) = self.task.get() {
            task.cancel();
        }
    }

    /// Whether it has ended.
    #[getter]
    fn has_ended(&self) -> bool {
        self.task.get().is_none_or(|task| task.shared.has_ended())
    }

    /// Its result, once: seconds, a flag, a number, or a release's outcome with its error. Raises its error.
    fn result<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let task = self.task.get().ok_or_else(|| errors::cancelled(py))?;
        let result = task.shared.lock().result.take();
        match result {
            Some(Ok(Outcome::Time(time))) => Ok(time.as_secs_f64().into_pyobject(py)?.into_any()),
            Some(Ok(Outcome::Flag(flag))) => Ok(flag.into_pyobject(py)?.to_owned().into_any()),
            Some(Ok(Outcome::Count(count))) => Ok(count.into_pyobject(py)?.into_any()),
            Some(Ok(Outcome::Holder(holder))) => {
                let told =
                    holder.map(|holder| (holder.to_string(), seconds_of(&holder), holder.owner));
                Ok(told.into_pyobject(py)?.into_any())
            }
            Some(Ok(Outcome::Released(outcome, loss))) => {
                let loss = loss.map(|error| errors::exception(py, &error)).transpose()?;
                Ok((outcome.name(), loss).into_pyobject(py)?.into_any())
            }
            Some(Ok(Outcome::Won(_) | Outcome::Adopted(_))) => {
                Err(PyTypeError::new_err("the operation gives a lease"))
            }
            Some(Err(error)) => Err(errors::raised(py, &error)),
            None => Err(gone(py, task)),
        }
    }

    /// The outcome of a release; a loss is raised if `raise_on_lost`.
    fn released(&self, py: Python<'_>, raise_on_lost: bool) -> PyResult<&'static str> {
        let task = self.task.get().ok_or_else(|| errors::cancelled(py))?;
        let result = task.shared.lock().result.take();
        match result {
            Some(Ok(Outcome::Released(_, Some(loss)))) if raise_on_lost => {
                Err(errors::raised(py, &loss))
            }
            Some(Ok(Outcome::Released(outcome, _))) => Ok(outcome.name()),
            Some(Err(error)) => Err(errors::raised(py, &error)),
            _ => Err(gone(py, task)),
        }
    }
}

/// Waits for a longer operation; the error is that of a signal's handler.
fn wait_for_signals(py: Python<'_>, task: &OperationTask) -> PyResult<()> {
    if !is_main_thread(py)? {
        // Signals are handled in the main thread only.
        py.detach(|| task.run(Duration::MAX));
        return Ok(());
    }
    loop {
        py.check_signals()?;
        if py.detach(|| task.run(TICK)) {
            return Ok(());
        }
    }
}

/// The error for a result that was dropped. At the end of the process, a daemon thread first waits until it may be told.
fn gone(py: Python<'_>, task: &OperationTask) -> PyErr {
    if task.shared.lock().is_untold && is_main_thread(py).is_ok_and(|is_main| !is_main) {
        py.detach(process::wait_until_told);
    }
    errors::cancelled(py)
}

/// This runs Python code, and with it the handler of a signal that has arrived: its error is passed
/// on.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let Ok(threading) = py.import("threading") else {
        return Ok(true); // the interpreter ends
    };
    let main = threading.call_method0("main_thread")?;
    Ok(threading.call_method0("current_thread")?.is(&main))
}

/// The time between two checks for signals.
const TICK: Duration = Duration::from_millis(25);
/// How long an interrupted wait waits for its withdrawal, in each of two steps.
const SETTLE: Duration = Duration::from_millis(30);

/// When the holder acquired the lock, in seconds since 1970.
fn seconds_of(holder: &Holder) -> Option<f64> {
    let since = holder.since?.duration_since(UNIX_EPOCH).ok()?;
    Some(since.as_secs_f64())
}
