//! The Python binding: it converts arguments, calls the core, and converts results. No votes, drift
//! or retries here.
//!
//! `quorlock._native` is private; users use it through the Python code beside it. Blocking code and
//! asyncio start the same operations on the one engine of the process and differ only in how they
//! wait.

mod acquisitions;
mod calls;
mod command;
mod completion;
mod completion_queue;
mod context;
mod convert;
mod errors;
mod fork;
mod lease;
mod loop_driving;
mod manager;
mod nodes;
mod notices;
mod observing;
mod operation;
mod operation_task;
mod operations;
mod options;
mod process;
mod sequencer;
mod wake_fd;

use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quorlock::ErrorKind;

/// The core of quorlock. Private: use `quorlock` and `quorlock.aio`.
#[pymodule(gil_used = false)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    if !fork::claim_for_this_interpreter(module.py()) {
        return Err(PyImportError::new_err(
            "quorlock cannot be loaded in more than one interpreter",
        ));
    }
    fork::watch_forks();
    module.add_class::<manager::Manager>()?;
    module.add_class::<manager::Plan>()?;
    module.add_class::<acquisitions::Acquisitions>()?;
    module.add_class::<lease::LeaseState>()?;
    module.add_class::<operation::Operation>()?;
    module.add_class::<operations::Operations>()?;
    module.add_class::<operations::Finalizer>()?;
    module.add_class::<completion_queue::CompletionQueue>()?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    module.add_function(wrap_pyfunction!(process::end_operations, module)?)?;
    module.add_function(wrap_pyfunction!(fork::generation, module)?)?;
    module.add_function(wrap_pyfunction!(process::listen, module)?)?;
    module.add_function(wrap_pyfunction!(process::take_notices, module)?)?;
    module.add_function(wrap_pyfunction!(process::wake_listener, module)?)?;
    module.add_function(wrap_pyfunction!(notices::report, module)?)?;
    module.add_function(wrap_pyfunction!(observing::take_events, module)?)?;
    module.add_function(wrap_pyfunction!(sequencer::read_sequencer, module)?)?;
    module.add_function(wrap_pyfunction!(sequencer::sequencer_text, module)?)?;
    module.add_function(wrap_pyfunction!(sequencer::begin_record, module)?)?;
    module.add_function(wrap_pyfunction!(sequencer::begin_verify, module)?)?;
    let codes = PyDict::new(module.py());
    for kind in ErrorKind::ALL {
        codes.set_item(errors::class_name(kind), kind.code())?;
    }
    module.add("ERROR_CODES", codes)?;
    module.add("FENCE", quorlock::embed::FENCE)?;
    module.add("OPTIONS", options::listed(module.py())?)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))
}
