//! The `quorlock` command of the wheel. Knows nothing of it: the crate `quorlock-cli` is the command.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command with these arguments (without the program's name); returns the status to exit
/// with. For a process of its own, on its main thread.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| quorlock_cli::main(arguments))
}
