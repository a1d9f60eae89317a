//! The one engine of the process, and the end of the process. Owns when the engine is started.

use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use quorlock::Engine;

use crate::fork;

/// The engine of this process; started at the first call.
pub(crate) fn engine(py: Python<'_>) -> PyResult<&'static Engine> {
    if let Some(engine) = fork::engine() {
        return Ok(engine);
    }
    let engine = py.detach(Engine::start).map_err(|error| {
        PyRuntimeError::new_err(format!("the lock thread could not be started: {error}"))
    })?;
    Ok(fork::publish(engine))
}

/// Waits until what was cancelled or dropped is off the nodes, for `seconds` at the most.
///
/// Returns whether nothing is left.
#[pyfunction]
pub(crate) fn drain(py: Python<'_>, seconds: f64) -> bool {
    let Some(engine) = fork::engine() else {
        return true;
    };
    let timeout = Duration::try_from_secs_f64(seconds).unwrap_or_default();
    py.detach(|| engine.drain(timeout))
}

/// A number that differs between a process and its forked children.
#[pyfunction]
pub(crate) fn generation() -> u64 {
    fork::generation()
}
