//! What belongs to this process and not to the one it was forked from, and to this interpreter alone.
//! Owns the generation.
//!
//! A forked child has the memory of its parent but none of its threads: a lock that the parent's engine
//! thread held stays locked for ever, and a socket is shared with the parent. So nothing that the engine
//! may touch is used, or even dropped, in a later generation.
#![allow(
    unsafe_code,
    reason = "pthread_atfork has no safe form, and what it unlinks must be leaked"
)]

use std::mem;
use std::ptr;
use std::sync::Once;
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU64, Ordering};

use pyo3::{Python, ffi};
use quorlock::Engine;

use crate::loop_driving::LoopDriving;
use crate::notices::Notices;

/// How many forks lie between this process and the one that imported the module.
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// A value of the process that made it; leaked and out of reach in its children.
pub(crate) struct ForkLocal<T> {
    generation: u64,
    value: Option<T>,
}

impl<T> ForkLocal<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { generation: generation(), value: Some(value) }
    }

    /// The value, unless this process is a child of the one that made it.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.generation == generation())
    }

    /// The value, also in a child: only for what never changes and is behind no lock.
    pub(crate) fn unchecked_get(&self) -> &T {
        self.value.as_ref().expect("it is only taken when it is dropped")
    }
}

impl<T> Drop for ForkLocal<T> {
    fn drop(&mut self) {
        if self.generation != generation() {
            mem::forget(self.value.take());
        }
    }
}

/// What the process has one of, once its engine was started.
struct Process {
    engine: Engine,
    notices: Notices,
    loop_driving: LoopDriving,
}

/// The engine of this process, if it was started.
pub(crate) fn engine() -> Option<&'static Engine> {
    process().map(|process| &process.engine)
}

/// What is to be logged in this process, if its engine was started.
pub(crate) fn notices() -> Option<&'static Notices> {
    process().map(|process| &process.notices)
}

/// How the event loops of this process drive the engine, if it was started.
pub(crate) fn loop_driving() -> Option<&'static LoopDriving> {
    process().map(|process| &process.loop_driving)
}

fn process() -> Option<&'static Process> {
    let process = PROCESS.load(Ordering::Acquire);
    // SAFETY: the pointer is null or comes from `Box::into_raw` in `publish`, and is never freed.
    unsafe { process.as_ref() }
}

/// Makes `engine` the one of this process, unless another thread was faster.
pub(crate) fn publish(engine: Engine) -> &'static Engine {
    let process =
        Process { engine, notices: Notices::default(), loop_driving: LoopDriving::default() };
    let mine = Box::into_raw(Box::new(process));
    let raced =
        PROCESS.compare_exchange(ptr::null_mut(), mine, Ordering::AcqRel, Ordering::Acquire);
    match raced {
        // SAFETY: the pointer comes from `Box::into_raw` and is never freed from now on.
        Ok(_) => unsafe { &(*mine).engine },
        Err(other) => {
            // SAFETY: nobody else has seen this one; dropping it ends its thread.
            drop(unsafe { Box::from_raw(mine) });
            // SAFETY: a published engine is never freed.
            unsafe { &(*other).engine }
        }
    }
}

/// From now on every fork begins a new generation without an engine.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    #[cfg(unix)]
    ONCE.call_once(|| {
        // SAFETY: the handler only stores to two atomics, which is async-signal-safe, and the module
        // that holds it is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(begin_generation)) };
    });
    #[cfg(not(unix))]
    ONCE.call_once(|| {});
}

/// Claims the module for the interpreter that loads it; tells whether it is the first to do so.
///
/// Python 3.12 and newer refuse other interpreters by themselves; before, loading it in a second one
/// hangs at the end of the process.
pub(crate) fn claim_for_this_interpreter(_py: Python<'_>) -> bool {
    static OWNER: AtomicI64 = AtomicI64::new(-1);
    // SAFETY: the caller is attached to an interpreter, so there is a current one.
    let current = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    let owner = OWNER.compare_exchange(-1, current, Ordering::AcqRel, Ordering::Acquire);
    owner.map_or_else(|owner| owner == current, |_| true)
}

#[cfg(unix)]
extern "C" fn begin_generation() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
    PROCESS.store(ptr::null_mut(), Ordering::Release);
}

static GENERATION: AtomicU64 = AtomicU64::new(0);
static PROCESS: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
