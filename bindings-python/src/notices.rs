//! What people should hear of, on its way into Python's logging. Owns the queue between the engine's thread,
//! which never touches Python, and whichever thread of Python comes by next.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use quorlock::NoticeReport;

use crate::fork;

/// What is to be logged in this process.
#[derive(Default)]
pub(crate) struct Notices {
    /// Spares every operation the lock.
    has_some: AtomicBool,
    queue: Mutex<VecDeque<NoticeReport>>,
}

impl Notices {
    /// Keeps a notice until it is logged. Called on the engine's thread.
    pub(crate) fn keep(&self, notice: &NoticeReport) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() == MOST {
            queue.pop_front();
        }
        queue.push_back(notice.clone());
        self.has_some.store(true, Ordering::Release);
    }

    fn take(&self) -> VecDeque<NoticeReport> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_some.store(false, Ordering::Release);
        std::mem::take(&mut queue)
    }
}

/// Whether anything has come up that was not logged yet.
#[pyfunction]
pub(crate) fn has_notices() -> bool {
    fork::notices().is_some_and(|notices| notices.has_some.load(Ordering::Acquire))
}

/// What has come up since: the text, the name and the node of each.
///
/// Python code logs it: a thread that logs while the interpreter ends may be ended there, which must not
/// unwind through anything here that holds an object.
#[pyfunction]
pub(crate) fn take_notices() -> Vec<(String, &'static str, Option<String>)> {
    let Some(notices) = fork::notices().filter(|it| it.has_some.load(Ordering::Acquire)) else {
        return Vec::new();
    };
    let parts = |notice: &NoticeReport| {
        (notice.to_string(), notice.name(), notice.address().map(str::to_owned))
    };
    notices.take().iter().map(parts).collect()
}

/// Reports an error that must not stop anything.
#[pyfunction]
pub(crate) fn report(error: Bound<'_, PyAny>) {
    let py = error.py();
    PyErr::from_value(error).write_unraisable(py, None);
}

/// A process that never comes by keeps the latest.
const MOST: usize = 256;
