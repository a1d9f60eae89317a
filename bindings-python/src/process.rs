//! The objects that exist once per process: the engine, its notices, and the policy for event
//! loops. Owns when the engine is started, and what is waited for when the process ends.
#![allow(
    unsafe_code,
    reason = "what a forked child must not touch is leaked, and referred to by pointer"
)]

use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{ptr, thread};

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use quorlock::{Engine, NoticeReport};

use crate::calls::Calls;
use crate::completion_queue::CompletionQueue;
use crate::fork;
use crate::loop_driving::LoopDriving;
use crate::notices::Notices;

/// The operations for which one event loop or hub waits.
pub(crate) trait Waits: Send + Sync {
    /// Cancels all of them, and those that begin from now on; tells how many there were.
    fn cancel_untold(&self) -> usize;

    /// Lets others begin. The function that this returns tells those who wait for what was cancelled.
    fn go_on(&self) -> Tell;
}

/// Tells those who wait for operations that these have ended.
pub(crate) type Tell = Box<dyn FnOnce() + Send>;

/// Created once per process, with the engine.
struct Process {
    generation: u64,
    engine: Engine,
    notices: Notices,
    loop_driving: LoopDriving,
    calls: Calls,
    /// What event loops and hubs wait for.
    waits: Mutex<Vec<Weak<dyn Waits>>>,
    /// Whether what was cancelled at the end of the process was told.
    is_told: Mutex<bool>,
    told: Condvar,
}

/// The engine of this process; started at the first call.
pub(crate) fn engine(py: Python<'_>) -> PyResult<&'static Engine> {
    if let Some(process) = process() {
        return Ok(&process.engine);
    }
    let engine = py.detach(Engine::start).map_err(|error| {
        PyRuntimeError::new_err(format!("the lock thread could not be started: {error}"))
    })?;
    Ok(&publish(engine).engine)
}

/// The notices to be logged in this process, if its engine was started.
pub(crate) fn notices() -> Option<&'static Notices> {
    process().map(|process| &process.notices)
}

/// The policy by which event loops drive the engine, if it was started.
pub(crate) fn loop_driving() -> Option<&'static LoopDriving> {
    process().map(|process| &process.loop_driving)
}

/// The blocking calls of this process, if its engine was started.
pub(crate) fn calls() -> Option<&'static Calls> {
    process().map(|process| &process.calls)
}

/// Adds what an event loop or hub waits for, to be ended with the process.
pub(crate) fn add_waits(waits: Weak<dyn Waits>) {
    let Some(process) = process() else { return };
    let mut known = process.waits();
    if known.len() == known.capacity() {
        known.retain(|it| it.strong_count() > 0);
    }
    known.push(waits);
}

/// For the end of the process: cancels all operations but releases, and waits briefly until they have withdrawn their
/// keys and places.
///
/// Their callers are told [`TOLD_AFTER`] later. Told at once, a daemon thread would write its error to standard error.
/// A process that only ends has gone by then; if another function still waits for a caller, that caller must be told.
#[pyfunction]
pub(crate) fn end_operations(py: Python<'_>) {
    let Some(process) = process() else { return };
    py.detach(|| {
        let waits: Vec<_> = process.waits().iter().filter_map(Weak::upgrade).collect();
        let begun = Instant::now();
        let count =
            waits.iter().map(|it| it.cancel_untold()).sum::<usize>() + process.calls.count();
        let patience = process.engine.exit_patience(count);
        process.calls.break_off(patience);
        process.engine.leave_queues();
        process.engine.drain(patience.saturating_sub(begun.elapsed()));
        process.calls.go_on();
        let tell: Vec<_> = waits.iter().map(|it| it.go_on()).collect();
        // Also if there were none before: others have begun meanwhile.
        let telling = move || {
            thread::sleep(TOLD_AFTER);
            process.tell_ends(tell);
        };
        if thread::Builder::new().spawn(telling).is_err() {
            process.tell_ends(Vec::new());
        }
    });
}

/// Waits until what was cancelled at the end of the process is told.
pub(crate) fn wait_until_told() {
    if let Some(process) = process() {
        let is_told = process.is_told.lock().unwrap_or_else(PoisonError::into_inner);
        drop(process.told.wait_while(is_told, |is_told| !*is_told));
    }
}

impl Process {
    fn tell_ends(&self, tell: Vec<Tell>) {
        for tell in tell {
            tell();
        }
        *self.is_told.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.told.notify_all();
    }

    fn waits(&self) -> MutexGuard<'_, Vec<Weak<dyn Waits>>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From now on `number` is posted to the queue when there is a notice to log.
#[pyfunction]
pub(crate) fn listen(queue: &CompletionQueue, number: u64) {
    if let (Some(notices), Some(inner)) = (notices(), queue.inner()) {
        notices.listen(inner, number);
    }
}

/// Has the thread of [`listen`] look for notices and events once more. `None` if there is none, and
/// false if it ends after what was posted before.
#[pyfunction]
pub(crate) fn wake_listener() -> Option<bool> {
    notices().and_then(Notices::wake_listener)
}

/// The notices that have not been logged: the text, the name and the node of each.
///
/// Python code logs them: a thread that logs while the interpreter ends may be stopped there, which
/// must not unwind through code here that holds an object.
#[pyfunction]
pub(crate) fn take_notices() -> Vec<(String, &'static str, Option<String>)> {
    let parts = |notice: &NoticeReport| {
        (notice.to_string(), notice.name(), notice.address().map(str::to_owned))
    };
    notices().map(Notices::take).unwrap_or_default().iter().map(parts).collect()
}

/// The state of this process, never that of its parent.
fn process() -> Option<&'static Process> {
    let process = PROCESS.load(Ordering::Acquire);
    // SAFETY: the pointer is null or comes from `Box::into_raw` in `publish`, and is never freed.
    let process = unsafe { process.as_ref() };
    process.filter(|process| process.generation == fork::generation())
}

/// Makes `engine` the one of this process, unless another thread was faster.
fn publish(engine: Engine) -> &'static Process {
    let mine = Process {
        generation: fork::generation(),
        engine,
        notices: Notices::default(),
        loop_driving: LoopDriving::default(),
        calls: Calls::default(),
        waits: Mutex::default(),
        is_told: Mutex::default(),
        told: Condvar::new(),
    };
    let mine = Box::into_raw(Box::new(mine));
    loop {
        let before = PROCESS.load(Ordering::Acquire);
        if let Some(other) = process() {
            // SAFETY: no other thread has seen this one; dropping it ends its thread.
            drop(unsafe { Box::from_raw(mine) });
            return other;
        }
        let swapped = PROCESS.compare_exchange(before, mine, Ordering::AcqRel, Ordering::Acquire);
        if swapped.is_ok() {
            // SAFETY: the pointer comes from `Box::into_raw` and is never freed from now on.
            return unsafe { &*mine };
        }
    }
}

/// At the end of the process.
const TOLD_AFTER: Duration = Duration::from_millis(100);

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
