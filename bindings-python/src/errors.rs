//! Converts errors of the core into Python exceptions. The only file that knows the exceptions'
//! names; their classes are in `quorlock/_errors.py`.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};
use quorlock::{ErrorKind, LockError, NodeReport};

/// The class for a kind of error.
pub(crate) const fn class_name(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotAcquired => "LockNotAcquired",
        ErrorKind::AcquireTimedOut => "LockTimeout",
        ErrorKind::QuorumUnreachable => "QuorumUnreachable",
        ErrorKind::LeaseLost => "LeaseLost",
        ErrorKind::LockNotHeld => "LockNotHeld",
        ErrorKind::Config => CONFIG,
        ErrorKind::Cancelled => "LockCancelled",
        ErrorKind::Closed => "LocksClosed",
    }
}

/// The exception for an error of the core.
pub(crate) fn exception<'py>(py: Python<'py>, error: &LockError) -> PyResult<Bound<'py, PyAny>> {
    let fields = PyDict::new(py);
    fields.set_item("resources", PyTuple::new(py, error.resources())?)?;
    fields.set_item("elapsed", error.elapsed().as_secs_f64())?;
    fields.set_item("attempts", error.attempts())?;
    fields.set_item("votes", votes(py, error.votes())?)?;
    class(py, class_name(error.kind()))?.call((error.to_string(),), Some(&fields))
}

/// [`exception`], ready to be raised.
pub(crate) fn raised(py: Python<'_>, error: &LockError) -> PyErr {
    exception(py, error).map_or_else(|problem| problem, PyErr::from_value)
}

/// The exception for a setting with a wrong value.
pub(crate) fn config(py: Python<'_>, message: impl Into<String>) -> PyErr {
    make(py, CONFIG, &message.into(), &[])
}

/// The exception for a setting with a value of a wrong type.
pub(crate) fn wrong_type(py: Python<'_>, message: impl Into<String>) -> PyErr {
    make(py, "ConfigTypeError", &message.into(), &[])
}

/// The exception for a lease that this process does not hold, because its parent acquired it.
pub(crate) fn not_held_after_fork(py: Python<'_>, resources: &[String]) -> PyErr {
    let message = format!(
        "{} is not held by this process: the lease belongs to the process that this one was forked from",
        quoted(resources)
    );
    make(py, class_name(ErrorKind::LockNotHeld), &message, resources)
}

/// The exception for an operation that was cancelled, or that the parent of this process started.
pub(crate) fn cancelled(py: Python<'_>) -> PyErr {
    make(py, class_name(ErrorKind::Cancelled), "the operation was cancelled", &[])
}

/// What every node did, as a list of `quorlock.Vote`.
pub(crate) fn votes<'py>(py: Python<'py>, reports: &[NodeReport]) -> PyResult<Bound<'py, PyList>> {
    let vote = class(py, "Vote")?;
    let votes = PyList::empty(py);
    for report in reports {
        let latency = report.latency.as_secs_f64();
        let fields = (&*report.address, report.vote.name(), latency, report.detail());
        votes.append(vote.call1(fields)?)?;
    }
    Ok(votes)
}

/// `'a', 'b'`
pub(crate) fn quoted(resources: &[String]) -> String {
    let names: Vec<String> = resources.iter().map(|name| format!("'{name}'")).collect();
    names.join(", ")
}

fn make(py: Python<'_>, name: &str, message: &str, resources: &[String]) -> PyErr {
    let made = || -> PyResult<Bound<'_, PyAny>> {
        let fields = PyDict::new(py);
        fields.set_item("resources", PyTuple::new(py, resources)?)?;
        class(py, name)?.call((message,), Some(&fields))
    };
    // When the interpreter ends, nothing can be imported any more.
    made().map_or_else(|problem| problem, PyErr::from_value)
}

fn class<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("quorlock._errors")?.getattr(name)
}

const CONFIG: &str = "ConfigError";
