//! Carries completions from the engine's thread to Python: a queue that the engine fills without
//! touching Python, and that a Python thread or an event loop empties.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use quorlock::LockError;

use crate::errors;
use crate::fork::ForkLocal;
use crate::wake_fd::WakeFd;

/// A queue of completions: an operation has ended, or a lease is lost.
///
/// With a [`WakeFd`] it has a file descriptor that becomes readable when something was posted.
#[pyclass(frozen, module = "quorlock._native")]
pub(crate) struct CompletionQueue {
    inner: ForkLocal<Arc<Inner>>,
}

/// The engine's side of a queue.
pub(crate) struct Inner {
    slot: Mutex<Slot>,
    arrived: Condvar,
}

#[derive(Default)]
struct Slot {
    posted: Vec<Completion>,
    /// The reader was woken and has not emptied the queue yet.
    is_woken: bool,
    closed: bool,
    wake_fd: Option<Arc<WakeFd>>,
}

/// A completion: the number that was registered, and the loss if it is one.
pub(crate) struct Completion {
    number: u64,
    loss: Option<LockError>,
}

/// Completions as Python gets them: the number, and the error of a loss.
type Completions<'py> = Vec<(u64, Option<Bound<'py, PyAny>>)>;

impl Inner {
    /// Posts a completion, unless the queue is closed; tells whether it did. Called on the engine's
    /// thread.
    pub(crate) fn post(&self, number: u64, loss: Option<LockError>) -> bool {
        let mut slot = self.lock();
        if slot.closed {
            return false;
        }
        slot.posted.push(Completion { number, loss });
        let first = !std::mem::replace(&mut slot.is_woken, true);
        let wake_fd = slot.wake_fd.clone();
        drop(slot);
        match wake_fd {
            Some(wake_fd) if first => wake_fd.wake(),
            Some(_) => {}
            None => self.arrived.notify_one(),
        }
        true
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<Completion> {
        let mut slot = self.lock();
        if let Some(wake_fd) = &slot.wake_fd {
            wake_fd.drain();
        }
        slot.is_woken = false;
        std::mem::take(&mut slot.posted)
    }

    fn wait(&self) -> Option<Vec<Completion>> {
        let mut slot = self.lock();
        while slot.posted.is_empty() && !slot.closed {
            slot = self.arrived.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        if slot.posted.is_empty() { None } else { Some(std::mem::take(&mut slot.posted)) }
    }

    pub(crate) fn close(&self) {
        let mut slot = self.lock();
        slot.closed = true;
        let wake_fd = slot.wake_fd.take();
        drop(slot);
        drop(wake_fd);
        self.arrived.notify_all();
    }
}

#[pymethods]
impl CompletionQueue {
    #[new]
    #[pyo3(signature = (*, with_fd))]
    fn new(with_fd: bool) -> PyResult<Self> {
        let wake_fd = if with_fd { Some(Arc::new(WakeFd::new()?)) } else { None };
        let slot = Mutex::new(Slot { wake_fd, ..Slot::default() });
        let inner = Inner { slot, arrived: Condvar::new() };
        Ok(Self { inner: ForkLocal::new(Arc::new(inner)) })
    }

    /// The file descriptor to watch for reading; `None` without one, and once it is closed.
    fn fileno(&self) -> Option<i32> {
        self.inner.get()?.lock().wake_fd.as_deref().map(WakeFd::fileno)
    }

    /// The completions so far, without waiting: pairs of a number and the `LeaseLost` or None.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Completions<'py>> {
        self.inner.get().map_or_else(|| Ok(Vec::new()), |inner| converted(py, inner.take()))
    }

    /// Waits for completions; `None` once the queue is closed and empty.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Option<Completions<'py>>> {
        let Some(inner) = self.inner.get() else {
            return Ok(None);
        };
        py.detach(|| inner.wait()).map(|posted| converted(py, posted)).transpose()
    }

    /// Posts a number from Python.
    fn post(&self, number: u64) {
        if let Some(inner) = self.inner.get() {
            inner.post(number, None);
        }
    }

    /// Lets a waiting thread return, closes the descriptor, and drops later completions.
    fn close(&self) {
        if let Some(inner) = self.inner.get() {
            inner.close();
        }
    }
}

impl CompletionQueue {
    /// The engine's side; `None` in a child of the process that made it.
    pub(crate) fn inner(&self) -> Option<&Arc<Inner>> {
        self.inner.get()
    }
}

fn converted(py: Python<'_>, posted: Vec<Completion>) -> PyResult<Completions<'_>> {
    let convert = |completion: Completion| {
        let loss = completion.loss.map(|error| errors::exception(py, &error)).transpose()?;
        Ok((completion.number, loss))
    };
    posted.into_iter().map(convert).collect()
}
