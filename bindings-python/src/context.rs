//! Finds out which task, greenlet or thread an acquisition belongs to. Owns how these are told
//! apart.

use std::cell::RefCell;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString};

use crate::fork;

/// The task, greenlet or thread that runs now.
///
/// This may run Python code, and with it the handler of a signal that has arrived.
pub(crate) fn current(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    if let Some(task) = current_task(py)? {
        return Ok(task);
    }
    current_greenlet(py)?.map_or_else(|| current_thread(py), Ok)
}

/// Whether the task, greenlet or thread has ended (as the one that `wait_for` makes).
pub(crate) fn is_over(context: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = context.py();
    if context.is_instance(&py.import("threading")?.getattr("Thread")?)? {
        return Ok(!context.call_method0("is_alive")?.is_truthy()?);
    }
    if context.hasattr("done")? {
        return context.call_method0("done")?.is_truthy();
    }
    context.getattr("dead")?.is_truthy()
}

fn current_task(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let Some(asyncio) = imported(py, intern!(py, "asyncio"))? else {
        return Ok(None);
    };
    // Another thread may be importing it.
    let Ok(running) = asyncio.getattr(intern!(py, "_get_running_loop")) else {
        return Ok(None);
    };
    let event_loop = running.call0()?;
    if event_loop.is_none() {
        return Ok(None);
    }
    let task = asyncio.call_method1(intern!(py, "current_task"), (event_loop,))?;
    Ok(Some(task).filter(|task| !task.is_none()))
}

/// The greenlet that runs, unless it is the thread's main greenlet.
fn current_greenlet(py: Python<'_>) -> PyResult<Option<Bound<'_, PyAny>>> {
    let Some(module) = imported(py, intern!(py, "greenlet"))? else {
        return Ok(None);
    };
    let Ok(current) = module.getattr(intern!(py, "getcurrent")) else {
        return Ok(None);
    };
    let current = current.call0()?;
    let is_own = current.getattr(intern!(py, "parent"))?.is_none();
    Ok(Some(current).filter(|_| !is_own))
}

/// The `threading.Thread`; looked up once per thread.
fn current_thread(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let generation = fork::generation();
    let known = THREAD.with_borrow(|thread| {
        let (made, thread) = thread.as_ref()?;
        (*made == generation).then(|| thread.bind(py).clone())
    });
    if let Some(thread) = known {
        return Ok(thread);
    }
    let thread = py.import("threading")?.call_method0("current_thread")?;
    let mine = (generation, thread.clone().unbind());
    drop(THREAD.replace(Some(mine)));
    Ok(thread)
}

/// A module, if it has been imported.
fn imported<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    static MODULES: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let modules = MODULES.get_or_try_init(py, || {
        let modules = py.import("sys")?.getattr("modules")?;
        Ok::<_, PyErr>(modules.cast_into::<PyDict>()?.unbind())
    })?;
    modules.bind(py).get_item(name)
}

thread_local! {
    static THREAD: RefCell<Option<(u64, Py<PyAny>)>> = const { RefCell::new(None) };
}
