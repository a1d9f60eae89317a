//! The operations that threads of this process run now in blocking calls. Owns how they are broken off when the
//! process ends.
//!
//! At the end of the interpreter, daemon threads may be in the middle of an acquisition, or have just won. Nobody would
//! take the lease, whose keys would stay until their ttl has passed.

use std::future::Future;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{AbortHandle, Abortable};
use slab::Slab;

use crate::completion::Shared;

/// The calls under way.
#[derive(Default)]
pub(crate) struct Calls {
    state: Mutex<State>,
    none_runs: Condvar,
}

#[derive(Default)]
struct State {
    calls: Slab<Stage>,
    /// How many of them run.
    running: usize,
    /// The process ends: a call that begins now is broken off, too.
    is_ending: bool,
}

enum Stage {
    Running(AbortHandle),
    /// It has won a lease, which its thread has not taken yet: it needs the interpreter for that.
    Won(Arc<Shared>),
}

/// One call; it runs until this is dropped.
pub(crate) struct Call {
    calls: &'static Calls,
    number: usize,
}

/// A call that has won a lease; it was taken when this is dropped.
pub(crate) struct Untaken {
    calls: &'static Calls,
    number: usize,
}

impl Calls {
    /// Begins a call: what it is to run in place of `future`, which ends early if the call is broken off.
    pub(crate) fn begin<F: Future>(&'static self, future: F) -> (Call, Abortable<F>) {
        let (handle, registration) = AbortHandle::new_pair();
        let mut state = self.state();
        if state.is_ending {
            handle.abort();
        }
        let number = state.calls.insert(Stage::Running(handle));
        state.running += 1;
        drop(state);
        (Call { calls: self, number }, Abortable::new(future, registration))
    }

    /// Breaks all calls off, and those that begin from now on; waits until all have ended, for `timeout` at most.
    pub(crate) fn break_off(&self, timeout: Duration) {
        let mut state = self.state();
        state.is_ending = true;
        let mut won = Vec::new();
        for (_, stage) in &state.calls {
            match stage {
                Stage::Running(handle) => handle.abort(),
                Stage::Won(shared) => won.push(Arc::clone(shared)),
            }
        }
        drop(state);
        for shared in won {
            shared.withdraw_untold();
        }
        let waited =
            self.none_runs.wait_timeout_while(self.state(), timeout, |state| state.running > 0);
        drop(waited);
    }

    /// Lets others begin.
    pub(crate) fn go_on(&self) {
        self.state().is_ending = false;
    }

    /// How many calls are under way.
    pub(crate) fn count(&self) -> usize {
        self.state().calls.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// One call runs no more.
    fn end(&mut self, none_runs: &Condvar) {
        self.running -= 1;
        // Nobody waits before, and telling nobody is a system call, too.
        if self.running == 0 && self.is_ending {
            none_runs.notify_all();
        }
    }
}

impl Call {
    /// The call has won a lease, whose result is in `shared`. If the process ends, the lease is withdrawn.
    pub(crate) fn has_won(self, shared: &Arc<Shared>) -> Option<Untaken> {
        let mut state = self.calls.state();
        if state.is_ending {
            drop(state);
            shared.withdraw_untold();
            return None;
        }
        state.calls[self.number] = Stage::Won(Arc::clone(shared));
        state.end(&self.calls.none_runs);
        let Self { calls, number } = *ManuallyDrop::new(self);
        Some(Untaken { calls, number })
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut state = self.calls.state();
        state.calls.remove(self.number);
        state.end(&self.calls.none_runs);
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        let stage = self.calls.state().calls.remove(self.number);
        drop(stage);
    }
}
