//! The operations that an event loop's tasks or a hub's greenlets wait for. Owns how they end with the loop or hub.
//!
//! When the loop or hub is gone, nobody takes the results, and a lease that was won would be
//! renewed for ever. So all of these operations are cancelled then. This is native code because
//! Python runs a signal's handler between the steps of Python code only: a Ctrl-C while a
//! [`Finalizer`] is collected comes after its end.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use pyo3::prelude::*;

use crate::completion_queue::{self, CompletionQueue};
use crate::fork::ForkLocal;
use crate::operation::Operation;
use crate::operation_task::OperationTask;
use crate::process::{self, Tell, Waits};

/// The operations for which one event loop or hub waits now, and the queue that tells it of ends.
///
/// The garbage collector need not know what is in it: an operation refers to no Python object.
#[pyclass(frozen, module = "quorlock._native")]
pub(crate) struct Operations {
    pending: ForkLocal<Arc<Pending>>,
}

/// Ends the operations when it is dropped. A loop or hub keeps the only reference to it.
#[pyclass(frozen, module = "quorlock._native")]
pub(crate) struct Finalizer {
    pending: ForkLocal<Arc<Pending>>,
}

/// What one loop or hub waits for.
pub(crate) struct Pending {
    state: Mutex<State>,
    queue: Option<Arc<completion_queue::Inner>>,
}

#[derive(Default)]
struct State {
    /// By address, as Python tells objects apart.
    operations: HashMap<usize, Py<Operation>>,
    /// While the process ends: what was cancelled, and is told later.
    untold: Option<Vec<Py<Operation>>>,
}

impl Pending {
    /// Cancels all operations, closes the queue, and with it its descriptor.
    pub(crate) fn end(&self) {
        let waited_for = mem::take(&mut self.state().operations);
        for operation in waited_for.values() {
            operation.get().cancel();
        }
        if let Some(queue) = &self.queue {
            queue.close();
        }
    }

    fn add(&self, operation: &Bound<'_, Operation>) {
        let mut state = self.state();
        let Some(untold) = &mut state.untold else {
            state.operations.insert(address(operation), operation.clone().unbind());
            return;
        };
        untold.push(operation.clone().unbind());
        drop(state);
        operation.get().task().map(OperationTask::cancel_untold);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waits for Pending {
    fn cancel_untold(&self) -> usize {
        let mut state = self.state();
        let operations: Vec<_> = mem::take(&mut state.operations).into_values().collect();
        let tasks = operations.iter().filter_map(|it| it.get().task());
        tasks.for_each(OperationTask::cancel_untold);
        let count = operations.len();
        state.untold = Some(operations);
        count
    }

    fn go_on(&self) -> Tell {
        let untold = self.state().untold.take().unwrap_or_default();
        Box::new(move || {
            untold.iter().filter_map(|it| it.get().task()).for_each(OperationTask::tell_end);
            // The interpreter may be gone.
            mem::forget(untold);
        })
    }
}

#[pymethods]
impl Operations {
    #[new]
    fn new(queue: Option<&CompletionQueue>) -> Self {
        let queue = queue.and_then(CompletionQueue::inner).cloned();
        let pending = Arc::new(Pending { state: Mutex::default(), queue });
        let weak: Weak<Pending> = Arc::downgrade(&pending);
        process::add_waits(weak);
        Self { pending: ForkLocal::new(pending) }
    }

    fn add(&self, operation: &Bound<'_, Operation>) {
        if let Some(pending) = self.pending.get() {
            pending.add(operation);
        }
    }

    fn discard(&self, operation: &Bound<'_, Operation>) {
        let removed = self
            .pending
            .get()
            .map(|pending| pending.state().operations.remove(&address(operation)));
        drop(removed);
    }

    /// Cancels all operations, closes the queue, and with it its descriptor.
    fn end(&self) {
        if let Some(pending) = self.pending.get() {
            pending.end();
        }
    }

    fn __len__(&self) -> usize {
        self.pending.get().map_or(0, |pending| pending.state().operations.len())
    }
}

#[pymethods]
impl Finalizer {
    #[new]
    fn new(operations: &Operations) -> Self {
        // Made together with the operations, in one process.
        let pending = operations.pending.unchecked_get();
        Self { pending: ForkLocal::new(Arc::clone(pending)) }
    }
}

impl Drop for Finalizer {
    fn drop(&mut self) {
        // A forked child leaves its parent's operations and descriptor alone.
        if let Some(pending) = self.pending.get() {
            pending.end();
        }
    }
}

fn address(operation: &Bound<'_, Operation>) -> usize {
    operation.as_ptr().addr()
}
