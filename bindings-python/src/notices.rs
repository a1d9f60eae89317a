//! What people should hear of, on its way into Python's logging. Owns the queue between the engine's thread,
//! which never touches Python, and the thread of Python that logs.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use quorlock::NoticeReport;

use crate::completion_queue::{self, CompletionQueue};
use crate::fork;

/// What is to be logged in this process.
#[derive(Default)]
pub(crate) struct Notices {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<NoticeReport>,
    /// Where a number is posted when the queue is empty no more.
    listener: Option<(Arc<completion_queue::Inner>, u64)>,
}

impl Notices {
    /// Keeps a notice until it is logged, which whoever listens does now. Called on the engine's thread.
    pub(crate) fn keep(&self, notice: &NoticeReport) {
        let mut state = self.state();
        if state.queue.len() == MOST {
            state.queue.pop_front();
        }
        state.queue.push_back(notice.clone());
        let is_first = state.queue.len() == 1;
        let listener = state.listener.clone().filter(|_| is_first);
        drop(state);
        if let Some((queue, number)) = listener {
            queue.post(number, None);
        }
    }

    fn listen(&self, queue: &Arc<completion_queue::Inner>, number: u64) {
        let mut state = self.state();
        state.listener = Some((Arc::clone(queue), number));
        let is_late = !state.queue.is_empty();
        drop(state);
        if is_late {
            queue.post(number, None);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From now on `number` is posted to the queue when there is something to be logged.
#[pyfunction]
pub(crate) fn listen(queue: &CompletionQueue, number: u64) {
    if let (Some(notices), Some(inner)) = (fork::notices(), queue.inner()) {
        notices.listen(inner, number);
    }
}

/// What has come up since: the text, the name and the node of each.
///
/// Python code logs it: a thread that logs while the interpreter ends may be ended there, which must not
/// unwind through anything here that holds an object.
#[pyfunction]
pub(crate) fn take_notices() -> Vec<(String, &'static str, Option<String>)> {
    let parts = |notice: &NoticeReport| {
        (notice.to_string(), notice.name(), notice.address().map(str::to_owned))
    };
    let queue = fork::notices().map(|notices| mem::take(&mut notices.state().queue));
    queue.unwrap_or_default().iter().map(parts).collect()
}

/// Reports an error that must not stop anything.
#[pyfunction]
pub(crate) fn report(error: Bound<'_, PyAny>) {
    let py = error.py();
    PyErr::from_value(error).write_unraisable(py, None);
}

/// A process that nobody listens in keeps the latest.
const MOST: usize = 256;
