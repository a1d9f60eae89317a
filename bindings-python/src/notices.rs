//! What people should hear of, on its way into Python's logging. Owns the queue between the engine's thread,
//! which never touches Python, and whichever thread of Python comes by next.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::PyDict;
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

/// Logs what has come up since, as warnings of the logger `quorlock`.
///
/// What goes wrong in logging is reported and stops nothing, save what is no `Exception`, such as Ctrl-C.
pub(crate) fn log(py: Python<'_>) -> PyResult<()> {
    let Some(notices) = fork::notices().filter(|it| it.has_some.load(Ordering::Acquire)) else {
        return Ok(());
    };
    for notice in notices.take() {
        if let Err(error) = log_one(py, &notice) {
            if !error.is_instance_of::<PyException>(py) {
                return Err(error);
            }
            error.write_unraisable(py, None);
        }
    }
    Ok(())
}

fn log_one(py: Python<'_>, notice: &NoticeReport) -> PyResult<()> {
    let fields = PyDict::new(py);
    fields.set_item("notice", notice.name())?;
    fields.set_item("node", notice.address())?;
    let settings = PyDict::new(py);
    settings.set_item("extra", fields)?;
    let logger = py.import("logging")?.call_method1("getLogger", ("quorlock",))?;
    logger.call_method("warning", (notice.to_string(),), Some(&settings))?;
    Ok(())
}

/// A process that never comes by keeps the latest.
const MOST: usize = 256;
