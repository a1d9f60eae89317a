//! Records which lease belongs to which thread or task, when several share one lock object. No I/O.
//!
//! An acquisition belongs to the task, greenlet or thread that made it. A lock taken in one thread may be
//! released in another, as with `threading.Lock`; but a thread that has acquired through the object and released
//! may not release again a lease that another works under.
//!
//! Each method is one step for Python: Ctrl-C comes before it or after it. While the list
//! of leases is locked, no Python code runs and no Python object is dropped.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::{PyType, PyWeakrefMethods, PyWeakrefReference};
use pyo3::{PyTraverseError, PyVisit};

use crate::context;
use crate::lease::LeaseState;
use crate::operation::Operation;

/// The leases that were acquired through one lock object and not released through it.
#[pyclass(frozen, module = "quorlock._native")]
#[derive(Default)]
pub(crate) struct Acquisitions {
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    holds: Vec<Hold>,
    /// The threads and tasks that have acquired so far, as far as they still exist; ordered by
    /// address.
    seen: Vec<Py<PyWeakrefReference>>,
}

/// One acquisition.
struct Hold {
    context: Py<PyAny>,
    lease: Py<LeaseState>,
    is_block: bool,
}

/// A lease, and its release that has been started.
type Left = (Py<LeaseState>, Option<Operation>);

#[pymethods]
impl Acquisitions {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Takes the lease that the operation has won, as a `kind`, for the current context.
    fn take<'py>(
        &self,
        operation: &Bound<'py, Operation>,
        kind: &Bound<'py, PyType>,
        is_block: bool,
    ) -> PyResult<Bound<'py, LeaseState>> {
        let py = operation.py();
        // This may run Python code: before the lease is taken.
        let context = context::current(py)?;
        let mark = PyWeakrefReference::new(&context)?;
        let lease = kind.call1((operation,))?.cast_into::<LeaseState>()?;
        let hold = Hold { context: context.unbind(), lease: lease.clone().unbind(), is_block };
        let mut list = self.held();
        let stale = list.remove(|it| {
            !it.is_block && it.context.is(&hold.context) && !it.lease.get().is_valid()
        });
        list.holds.push(hold);
        let unneeded = list.mark(mark);
        drop(list);
        drop((stale, unneeded));
        Ok(lease)
    }

    /// Undoes an acquisition, however far it has come: no lease of it stays here or on the nodes.
    fn undo(&self, operation: &Operation) {
        let taken = operation.taken();
        operation.cancel();
        let is_it = |hold: &Hold| taken.as_deref().is_some_and(|it| hold.lease.get().has_token(it));
        let removed = self.held().remove(is_it);
        drop(removed);
    }

    /// Takes out the lease of the innermost block of the current context, with its release started
    /// (which continues by itself if the operation is dropped or cancelled), unless the lease was
    /// released inside the block.
    fn leave_block(&self, py: Python<'_>) -> PyResult<Option<Left>> {
        let context = context::current(py);
        // The lease is released even if a signal interrupted this.
        let who = context.as_ref().ok().cloned().or_else(|| context::current(py).ok());
        let hold = self.held().take_block(who.as_ref());
        let left = hold.map(|hold| {
            let release = hold.lease.get().begin_due_release(py);
            release.map(|operation| (hold.lease, operation))
        });
        context?;
        left.transpose()
    }

    /// The lease that `release()` refers to, with its release started, which continues by itself if
    /// the operation is dropped or cancelled. The lease is taken out, unless its block still runs.
    fn release(&self, py: Python<'_>) -> PyResult<Option<(Py<LeaseState>, Operation)>> {
        let context = context::current(py)?;
        let Some(lease) = self.to_release(&context)? else {
            return Ok(None);
        };
        let operation = lease.get().begin_release(py)?;
        let taken = self.held().remove(|hold| !hold.is_block && hold.lease.is(&lease));
        drop(taken);
        Ok(Some((lease, operation)))
    }

    /// The current context's latest lease, or else the latest.
    fn current(&self, py: Python<'_>) -> PyResult<Option<Py<LeaseState>>> {
        let context = context::current(py)?;
        let held = self.held();
        let mine = held.latest(|hold| hold.context.is(&context));
        Ok(mine.or_else(|| held.latest(|_| true)).map(|hold| hold.lease.clone_ref(py)))
    }

    fn __len__(&self) -> usize {
        self.held().holds.len()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // It is locked only for single steps, and never while garbage is collected.
        let Ok(held) = self.held.try_lock() else {
            return Ok(());
        };
        for hold in &held.holds {
            visit.call(&hold.context)?;
            visit.call(&hold.lease)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        let holds = mem::take(&mut self.held().holds);
        drop(holds);
    }
}

impl Acquisitions {
    fn to_release(&self, context: &Bound<'_, PyAny>) -> PyResult<Option<Py<LeaseState>>> {
        let py = context.py();
        let mark = PyWeakrefReference::new(context)?;
        let held = self.held();
        if let Some(hold) = held.latest(|hold| hold.context.is(context)) {
            return Ok(Some(hold.lease.clone_ref(py)));
        }
        let is_stranger = held.place_of(mark.as_any()).is_err();
        let theirs: Vec<_> = held
            .holds
            .iter()
            .rev()
            .filter(|hold| !hold.lease.get().is_released())
            .map(|hold| (hold.context.clone_ref(py), hold.lease.clone_ref(py)))
            .collect();
        drop(held);
        for (context, lease) in theirs {
            if is_stranger || context::is_over(context.bind(py))? {
                return Ok(Some(lease));
            }
        }
        Ok(None)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// The latest of those whose lease was not released.
    fn latest(&self, is_meant: impl Fn(&Hold) -> bool) -> Option<&Hold> {
        let is_held = |hold: &&Hold| is_meant(hold) && !hold.lease.get().is_released();
        self.holds.iter().rev().find(is_held)
    }

    /// The innermost block of `context`, or else of any context, for one thread may enter a
    /// generator and another leave it.
    fn take_block(&mut self, context: Option<&Bound<'_, PyAny>>) -> Option<Hold> {
        let is_mine = |hold: &Hold| context.is_some_and(|context| hold.context.is(context));
        let mine = self.holds.iter().rposition(|hold| hold.is_block && is_mine(hold));
        let index = mine.or_else(|| self.holds.iter().rposition(|hold| hold.is_block))?;
        Some(self.holds.remove(index))
    }

    /// The caller drops what is removed, after `held` was unlocked.
    fn remove(&mut self, is_meant: impl Fn(&Hold) -> bool) -> Vec<Hold> {
        self.holds.extract_if(.., |hold| is_meant(hold)).collect()
    }

    /// Notes who has acquired, and removes contexts that have ended.
    fn mark(&mut self, mark: Bound<'_, PyWeakrefReference>) -> Vec<Py<PyAny>> {
        let mut unneeded = Vec::new();
        if self.place_of(mark.as_any()).is_ok() {
            unneeded.push(mark.into_any().unbind());
            return unneeded;
        }
        if self.seen.len() == self.seen.capacity() {
            for seen in mem::take(&mut self.seen) {
                match seen.bind(mark.py()).upgrade() {
                    Some(context) => {
                        self.seen.push(seen);
                        unneeded.push(context.unbind());
                    }
                    None => unneeded.push(seen.into_any()),
                }
            }
        }
        if let Err(place) = self.place_of(mark.as_any()) {
            self.seen.insert(place, mark.unbind());
        }
        unneeded
    }

    fn place_of(&self, mark: &Bound<'_, PyAny>) -> Result<usize, usize> {
        self.seen.binary_search_by_key(&mark.as_ptr().addr(), |seen| seen.as_ptr().addr())
    }
}
