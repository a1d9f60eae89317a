//! The way from the engine's thread back to Python. Owns a queue that the engine posts to without touching
//! Python, and that a thread or an event loop empties.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use quorlock::LockError;

use crate::bell::Bell;
use crate::errors;
use crate::fork::OfProcess;

/// A queue of posts: an operation has ended, or a lease is lost.
///
/// With a bell it has a file descriptor that becomes readable when something was posted.
#[pyclass(frozen, module = "quorlock._native")]
pub(crate) struct Mailbox {
    inner: OfProcess<Arc<Inner>>,
}

/// The engine's side of a mailbox.
pub(crate) struct Inner {
    slot: Mutex<Slot>,
    arrived: Condvar,
    bell: Option<Bell>,
}

#[derive(Default)]
struct Slot {
    posts: Vec<Post>,
    rung: bool,
    closed: bool,
}

/// What was posted: the number that was registered, and the loss if it is one.
pub(crate) struct Post {
    number: u64,
    loss: Option<LockError>,
}

/// Posts as Python gets them: the number, and the error of a loss.
type Posts<'py> = Vec<(u64, Option<Bound<'py, PyAny>>)>;

impl Inner {
    /// Puts a post in. Called on the engine's thread.
    pub(crate) fn post(&self, number: u64, loss: Option<LockError>) {
        let mut slot = self.lock();
        if slot.closed {
            return;
        }
        slot.posts.push(Post { number, loss });
        let first = !std::mem::replace(&mut slot.rung, true);
        drop(slot);
        match &self.bell {
            Some(bell) if first => bell.ring(),
            Some(_) => {}
            None => self.arrived.notify_one(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Vec<Post> {
        if let Some(bell) = &self.bell {
            bell.hush();
        }
        let mut slot = self.lock();
        slot.rung = false;
        std::mem::take(&mut slot.posts)
    }

    fn wait(&self) -> Option<Vec<Post>> {
        let mut slot = self.lock();
        while slot.posts.is_empty() && !slot.closed {
            slot = self.arrived.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        if slot.posts.is_empty() { None } else { Some(std::mem::take(&mut slot.posts)) }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.arrived.notify_all();
    }
}

#[pymethods]
impl Mailbox {
    #[new]
    #[pyo3(signature = (*, bell))]
    fn new(bell: bool) -> PyResult<Self> {
        let bell = if bell { Some(Bell::new()?) } else { None };
        let inner = Inner { slot: Mutex::default(), arrived: Condvar::new(), bell };
        Ok(Self { inner: OfProcess::new(Arc::new(inner)) })
    }

    /// The file descriptor to watch for reading; `None` without a bell.
    fn fileno(&self) -> Option<i32> {
        self.inner.get()?.bell.as_ref().map(Bell::fileno)
    }

    /// What was posted, without waiting: pairs of a number and the `LeaseLost` or None.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Posts<'py>> {
        self.inner.get().map_or_else(|| Ok(Vec::new()), |inner| converted(py, inner.take()))
    }

    /// Waits for posts; `None` once the mailbox is closed and empty.
    fn wait<'py>(&self, py: Python<'py>) -> PyResult<Option<Posts<'py>>> {
        let Some(inner) = self.inner.get() else {
            return Ok(None);
        };
        py.detach(|| inner.wait()).map(|posts| converted(py, posts)).transpose()
    }

    /// Lets a waiting thread go and drops what comes later.
    fn close(&self) {
        if let Some(inner) = self.inner.get() {
            inner.close();
        }
    }
}

impl Mailbox {
    /// The engine's side; `None` in a child of the process that made it.
    pub(crate) fn inner(&self) -> Option<&Arc<Inner>> {
        self.inner.get()
    }
}

fn converted(py: Python<'_>, posts: Vec<Post>) -> PyResult<Posts<'_>> {
    let convert = |post: Post| {
        let loss = post.loss.map(|error| errors::exception(py, &error)).transpose()?;
        Ok((post.number, loss))
    };
    posts.into_iter().map(convert).collect()
}
