//! A lease as Python sees it: its state, and the start of each operation on it. Owns no waiting.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use quorlock::{Lease, Vote};

use crate::completion::Outcome;
use crate::completion_queue::CompletionQueue;
use crate::convert::seconds;
use crate::errors;
use crate::fork::ForkLocal;
use crate::operation::Operation;
use crate::process;

/// The state of a lease. `quorlock.Lease` and `quorlock.aio.Lease` add the operations.
#[pyclass(frozen, subclass, weakref, module = "quorlock._native")]
pub(crate) struct LeaseState {
    lease: ForkLocal<Lease>,
    /// Kept here, too, for children of this process: they must not access the lease.
    fencing_token: Option<u64>,
}

#[pymethods]
impl LeaseState {
    /// Takes the lease from the operation that won it; raises the operation's error.
    #[new]
    fn new(py: Python<'_>, operation: &Operation) -> PyResult<Self> {
        let lease = operation.take_lease(py)?;
        Ok(Self { fencing_token: lease.fencing_token(), lease: ForkLocal::new(lease) })
    }

    /// The number of this acquisition: greater than that of every earlier holder of the resource, so
    /// that the protected resource can refuse one whose lease is over. `None` where fencing is off, and
    /// for a lease taken over by its token until `check()` or `extend()` has confirmed it; after that it
    /// is no less than the number of the acquisition, and more once others have asked for the lock.
    /// Raises `QuorumUnreachable` for a lease that is `degraded`.
    #[getter]
    pub(crate) fn fencing_token(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.refuse_degraded(py)?;
        Ok(self.fencing_token.or_else(|| self.lease.get().and_then(Lease::fencing_token)))
    }

    /// Whether it is no lock at all: no quorum could be reached, and `on_unreachable="proceed"` lets
    /// the work go on without it. It has no validity and no token, and is never lost.
    #[getter]
    fn degraded(&self) -> bool {
        self.lease.get().is_some_and(Lease::is_degraded)
    }

    /// The seconds for which the lease may still be trusted; 0.0 when it has ended.
    #[getter]
    fn validity(&self) -> f64 {
        self.lease.get().map_or(0.0, |lease| lease.validity().as_secs_f64())
    }

    /// Whether the lease may be trusted at this moment.
    #[getter]
    pub(crate) fn is_valid(&self) -> bool {
        self.lease.get().is_some_and(Lease::is_valid)
    }

    /// Whether renewal is failing and less than a third of the ttl is left: an early warning.
    #[getter]
    fn is_at_risk(&self) -> bool {
        self.lease.get().is_some_and(Lease::is_at_risk)
    }

    /// Whether the lease was released.
    #[getter]
    pub(crate) fn is_released(&self) -> bool {
        self.lease.get().is_none_or(Lease::is_released)
    }

    /// Whether the end of its validity is told by itself.
    #[getter]
    fn _is_watched(&self) -> bool {
        self.lease.get().is_some_and(Lease::is_watched)
    }

    /// The holder id, which is the value of the keys on the nodes. A program that knows it can extend and
    /// release the lease: `locks.lease(resource, token)`. Raises `QuorumUnreachable` for a lease that is
    /// `degraded`.
    #[getter]
    fn token(&self, py: Python<'_>) -> PyResult<&str> {
        self.refuse_degraded(py)?;
        Ok(self.lease.unchecked_get().token())
    }

    /// The name of the resource; the first of several.
    #[getter]
    fn resource(&self) -> Option<&str> {
        self.names().next()
    }

    /// The names of the resources.
    #[getter]
    fn resources<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.names().collect::<Vec<_>>())
    }

    /// The seconds for which the nodes were last asked to keep the lock.
    #[getter]
    fn ttl(&self) -> f64 {
        self.lease.get().map_or(0.0, |lease| lease.ttl().as_secs_f64())
    }

    /// How many rounds the acquisition took.
    #[getter]
    fn attempts(&self) -> u32 {
        self.lease.get().map_or(0, Lease::attempts)
    }

    /// How many seconds the acquisition took.
    #[getter]
    fn elapsed(&self) -> f64 {
        self.lease.get().map_or(0.0, |lease| lease.elapsed().as_secs_f64())
    }

    /// What every node did in the last round for the lease, a list of `Vote`: that of its acquisition,
    /// or the latest that was to extend it, by itself or by `extend()`. A round counts once it has ended.
    #[getter]
    fn votes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let votes = self.lease.get().map(Lease::votes).unwrap_or_default();
        errors::votes(py, &votes)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.get();
        let name = slf.get_type().name()?;
        Ok(format!("<{name} {} {}>", errors::quoted(&this.owned_names()), this.standing()))
    }

    /// `held 8.2s left 3/3 nodes`, `released` or `lost`.
    fn standing(&self) -> String {
        let Some(lease) = self.lease.get() else {
            return "of the parent process".to_owned();
        };
        if lease.is_lost() {
            return "lost".to_owned();
        }
        let validity = lease.validity().as_secs_f64();
        if lease.is_released() {
            return "released".to_owned();
        }
        if lease.is_degraded() {
            return "degraded: not locked".to_owned();
        }
        if validity <= 0.0 {
            return "not confirmed".to_owned();
        }
        let votes = lease.votes();
        if votes.is_empty() {
            return format!("held {validity:.1}s left");
        }
        let granted = votes.iter().filter(|vote| vote.vote == Vote::Granted).count();
        format!("held {validity:.1}s left {granted}/{} nodes", votes.len())
    }

    /// Starts an extension, whose result is the new validity.
    fn begin_extend(&self, py: Python<'_>, ttl: Option<&Bound<'_, PyAny>>) -> PyResult<Operation> {
        let lease = self.here(py)?.clone();
        let ttl = ttl.map(|ttl| seconds("ttl", ttl)).transpose()?;
        let engine = process::engine(py)?;
        Ok(Operation::new(engine, async move { lease.extend(ttl).await.map(Outcome::Time) }))
    }

    /// Starts a check, whose result is the validity.
    fn begin_check(&self, py: Python<'_>) -> PyResult<Operation> {
        let lease = self.here(py)?.clone();
        let engine = process::engine(py)?;
        Ok(Operation::new(engine, async move { lease.check().await.map(Outcome::Time) }))
    }

    /// Releases the lease; the operation only waits for the outcome.
    pub(crate) fn begin_release(&self, py: Python<'_>) -> PyResult<Operation> {
        let lease = self.here(py)?.clone();
        let engine = process::engine(py)?;
        let releasing = lease.release();
        // The lease is released whatever happens to the wait.
        Ok(Operation::due(engine, async move {
            let outcome = releasing.await?;
            Ok(Outcome::Released(outcome, lease.loss(outcome)))
        }))
    }

    /// Posts `number` to the queue, with the error, when the lease is lost.
    fn watch(&self, py: Python<'_>, queue: &CompletionQueue, number: u64) -> PyResult<()> {
        let lease = self.here(py)?;
        if let Some(inner) = queue.inner() {
            let inner = std::sync::Arc::clone(inner);
            lease.on_lost(move |error| {
                inner.post(number, Some(error));
            });
        }
        Ok(())
    }

    /// Withdraws the lease without waiting for anything.
    fn withdraw(&self) {
        if let Some(lease) = self.lease.get() {
            lease.withdraw();
        }
    }
}

impl LeaseState {
    /// [`Self::begin_release`], unless the lease was released or belongs to the parent of this
    /// process.
    pub(crate) fn begin_due_release(&self, py: Python<'_>) -> PyResult<Option<Operation>> {
        if self.is_released() { Ok(None) } else { self.begin_release(py).map(Some) }
    }

    /// Whether it is the lease with this token.
    pub(crate) fn has_token(&self, token: &str) -> bool {
        self.lease.get().is_some_and(|lease| lease.token() == token)
    }

    pub(crate) fn refuse_degraded(&self, py: Python<'_>) -> PyResult<()> {
        let why = self.lease.get().and_then(Lease::why_degraded);
        why.map_or(Ok(()), |error| Err(errors::raised(py, &error)))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.lease.unchecked_get().resources()
    }

    fn owned_names(&self) -> Vec<String> {
        self.names().map(str::to_owned).collect()
    }

    pub(crate) fn here(&self, py: Python<'_>) -> PyResult<&Lease> {
        self.lease.get().ok_or_else(|| errors::not_held_after_fork(py, &self.owned_names()))
    }
}
