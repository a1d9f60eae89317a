//! Carries notices and events to Python: a queue between the engine's thread, which never touches
//! Python, and the Python thread that logs and calls back. Owns the queue.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use quorlock::{Event, NoticeReport};

use crate::completion_queue;

/// The notices to be logged in this process.
#[derive(Default)]
pub(crate) struct Notices {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<NoticeReport>,
    /// Each with the number of the manager that it is of.
    events: VecDeque<(u64, Event)>,
    /// How many events were dropped since they were last taken.
    dropped: u64,
    /// Where to post a number when the queue becomes non-empty.
    listener: Option<(Arc<completion_queue::Inner>, u64)>,
}

impl Notices {
    /// Adds a notice that is news in this process, and wakes the thread that logs. Called on the
    /// engine's thread.
    pub(crate) fn keep(&self, notice: &NoticeReport) {
        if notice.is_repeat() {
            return;
        }
        let mut state = self.state();
        if state.queue.len() == MOST {
            state.queue.pop_front();
        }
        state.queue.push_back(notice.clone());
        let is_first = state.queue.len() == 1;
        wake(state, is_first);
    }

    /// Adds an event of a manager, and wakes the thread that tells it.
    pub(crate) fn keep_event(&self, manager: u64, event: &Event) {
        let mut state = self.state();
        if state.events.len() == MOST_EVENTS {
            state.events.pop_front();
            state.dropped += 1;
        }
        state.events.push_back((manager, event.clone()));
        let is_first = state.events.len() == 1;
        wake(state, is_first);
    }

    /// From now on, `number` is posted when there is a notice to log.
    pub(crate) fn listen(&self, queue: &Arc<completion_queue::Inner>, number: u64) {
        let mut state = self.state();
        state.listener = Some((Arc::clone(queue), number));
        let is_late = !state.queue.is_empty() || !state.events.is_empty();
        drop(state);
        if is_late {
            queue.post(number, None);
        }
    }

    /// Wakes the thread that logs and tells, also if there is nothing new. `None` if there is none, and
    /// false if it ends after what was posted before.
    pub(crate) fn wake_listener(&self) -> Option<bool> {
        let (queue, number) = self.state().listener.clone()?;
        Some(queue.post(number, None))
    }

    /// Takes the notices that have not been logged.
    pub(crate) fn take(&self) -> VecDeque<NoticeReport> {
        mem::take(&mut self.state().queue)
    }

    /// Takes the events that have not been told, and how many older ones were dropped.
    pub(crate) fn take_events(&self) -> (VecDeque<(u64, Event)>, u64) {
        let mut state = self.state();
        (mem::take(&mut state.events), mem::take(&mut state.dropped))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(state: MutexGuard<'_, State>, is_first: bool) {
    let listener = state.listener.clone().filter(|_| is_first);
    drop(state);
    if let Some((queue, number)) = listener {
        queue.post(number, None);
    }
}

/// Reports an error that must not stop anything.
#[pyfunction]
pub(crate) fn report(error: Bound<'_, PyAny>) {
    let py = error.py();
    PyErr::from_value(error).write_unraisable(py, None);
}

/// If no thread logs them, the latest ones are kept.
const MOST: usize = 256;
/// If Python is slower than the locks, the latest events are kept.
const MOST_EVENTS: usize = 16_384;
