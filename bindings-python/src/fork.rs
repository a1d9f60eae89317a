//! Keeps a forked child from what belongs to its parent: the engine, its connections and its locks.
//! Owns the number by which this binding tells the two processes apart, its generation; and refuses
//! a second interpreter.
//!
//! A forked child has the memory of its parent but none of its threads: a lock that the parent's
//! engine thread held stays locked for ever, and sockets are shared with the parent. So nothing
//! that the engine may touch is used, or even dropped, in a later generation.
#![allow(unsafe_code, reason = "pthread_atfork and the interpreter's number have no safe form")]

use std::mem;
use std::sync::Once;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;

/// A number that differs between a process and its forked children: how many forks lie between this process and the
/// one that imported the module.
#[pyfunction]
pub(crate) fn generation() -> u64 {
    GENERATION.load(Ordering::Acquire)
}

/// A value that is only used in the process that made it; its children leak it and cannot reach it.
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

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self) -> Option<&mut T> {
        self.value.as_mut().filter(|_| self.generation == generation())
    }

    /// The value, also in a child: only for data that never changes and needs no lock.
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

/// From now on every fork starts a new generation.
pub(crate) fn watch_forks() {
    static ONCE: Once = Once::new();
    #[cfg(unix)]
    ONCE.call_once(|| {
        // SAFETY: the handler only adds to an atomic, which is async-signal-safe, and the module
        // that holds it is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(begin_generation)) };
    });
    #[cfg(not(unix))]
    ONCE.call_once(|| {});
}

/// Claims the module for the interpreter that loads it; tells whether it is the first to do so.
///
/// Python 3.12 and newer refuse other interpreters themselves; older versions would hang at the end
/// of the process after a second one has loaded the module.
pub(crate) fn claim_for_this_interpreter(_py: Python<'_>) -> bool {
    static FIRST: AtomicI64 = AtomicI64::new(-1);
    // SAFETY: the caller is attached to an interpreter, so there is a current one.
    let current = unsafe { ffi::PyInterpreterState_GetID(ffi::PyInterpreterState_Get()) };
    let earlier = FIRST.compare_exchange(-1, current, Ordering::AcqRel, Ordering::Acquire);
    earlier.map_or_else(|first| first == current, |_| true)
}

#[cfg(unix)]
extern "C" fn begin_generation() {
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

static GENERATION: AtomicU64 = AtomicU64::new(0);
