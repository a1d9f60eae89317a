//! The operations on sequencers, and how Python reads the text of one. Owns no rule: the core says
//! what a sequencer is, and verifies it.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use quorlock::Sequencer;

use crate::completion::Outcome;
use crate::convert::text;
use crate::errors::raised;
use crate::lease::LeaseState;
use crate::manager::Manager;
use crate::operation::Operation;
use crate::process;

/// The parts of a sequencer: its text as this package writes it, the resources, and the token.
#[pyfunction]
pub(crate) fn read_sequencer<'py>(
    given: &Bound<'py, PyAny>,
) -> PyResult<(String, Bound<'py, PyTuple>, u64)> {
    let sequencer = parse(given)?;
    let resources = PyTuple::new(given.py(), sequencer.resources())?;
    Ok((sequencer.to_string(), resources, sequencer.token()))
}

/// The text of a lease's sequencer; `None` without a fencing token.
#[pyfunction]
pub(crate) fn sequencer_text(lease: &Bound<'_, LeaseState>) -> PyResult<Option<String>> {
    let (py, lease) = (lease.py(), lease.get());
    let Some(token) = lease.fencing_token(py)? else { return Ok(None) };
    let sequencer = Sequencer::new(lease.names(), token);
    sequencer.map(|it| Some(it.to_string())).map_err(|error| raised(py, &error.into()))
}

/// Starts to record a lease's sequencer; the result says whether a quorum has it.
#[pyfunction]
pub(crate) fn begin_record(lease: &Bound<'_, LeaseState>) -> PyResult<Operation> {
    let (py, state) = (lease.py(), lease.get());
    state.refuse_degraded(py)?;
    let lease = state.here(py)?.clone();
    // It is recorded whatever happens to the wait.
    let recording = async move { Ok(Outcome::Flag(lease.record_sequencer().await)) };
    Ok(Operation::due(process::engine(py)?, recording))
}

/// Starts to ask the nodes whether the lease behind a sequencer is still held.
#[pyfunction]
pub(crate) fn begin_verify(
    manager: &Bound<'_, Manager>,
    given: &Bound<'_, PyAny>,
) -> PyResult<Operation> {
    let (py, sequencer) = (manager.py(), parse(given)?);
    let core = manager.get().core(py)?;
    let asking = async move { core.verify(&sequencer).await.map(Outcome::Flag) };
    Ok(Operation::new(process::engine(py)?, asking))
}

fn parse(given: &Bound<'_, PyAny>) -> PyResult<Sequencer> {
    let text = text("a sequencer", given)?;
    text.parse().map_err(|error: quorlock::ConfigError| raised(given.py(), &error.into()))
}
