//! The operations that threads of this process run now in blocking calls. Owns how they are broken off when the
//! process ends.
//!
//! At the end of the interpreter, daemon threads may be in the middle of an acquisition, or have just won. Nobody would
//! take the lease, whose keys would stay until their ttl has passed.

use std::collections::HashMap;
use std::future::Future;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{AbortHandle, Abortable};

use crate::completion::Shared;

/// The calls under way.
#[derive(Default)]
pub(crate) struct Calls {
    state: Mutex<State>,
    none_left: Condvar,
}

#[derive(Default)]
struct State {
    /// Of the latest call.
    number: u64,
    under_way: HashMap<u64, AbortHandle>,
    /// Calls that have won a lease, which their thread has not taken yet: it needs the interpreter for that.
    untaken: HashMap<u64, Arc<Shared>>,
    /// The process ends: a call that begins now is broken off, too.
    is_ending: bool,
}

/// One call; it is under way until this is dropped.
pub(crate) struct Call<'a> {
    calls: &'a Calls,
    number: u64,
}

/// A call that has won a lease; it is taken when this is dropped.
pub(crate) struct Untaken {
    calls: &'static Calls,
    number: u64,
}

impl Calls {
    /// Begins a call: what it is to run in place of `future`, which ends early if the call is broken off.
    pub(crate) fn begin<F: Future>(&self, future: F) -> (Call<'_>, Abortable<F>) {
        let (handle, registration) = AbortHandle::new_pair();
        let mut state = self.state();
        state.number += 1;
        let number = state.number;
        if state.is_ending {
            handle.abort();
        }
        state.under_way.insert(number, handle);
        drop(state);
        (Call { calls: self, number }, Abortable::new(future, registration))
    }

    /// Breaks all calls off, and those that begin from now on; waits until all have ended, for `timeout` at most.
    pub(crate) fn break_off(&self, timeout: Duration) {
        let mut state = self.state();
        state.is_ending = true;
        state.under_way.values().for_each(AbortHandle::abort);
        let untaken = mem::take(&mut state.untaken);
        drop(state);
        for shared in untaken.values() {
            shared.withdraw_untold();
        }
        let state = self.state();
        let waited =
            self.none_left.wait_timeout_while(state, timeout, |it| !it.under_way.is_empty());
        drop(waited);
    }

    /// Lets others begin.
    pub(crate) fn go_on(&self) {
        self.state().is_ending = false;
    }

    /// How many calls are under way.
    pub(crate) fn count(&self) -> usize {
        let state = self.state();
        state.under_way.len() + state.untaken.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Call<'static> {
    /// The call has won a lease, whose result is in `shared`. If the process ends, the lease is withdrawn.
    pub(crate) fn has_won(self, shared: &Arc<Shared>) -> Option<Untaken> {
        let mut state = self.calls.state();
        if state.is_ending {
            drop(state);
            shared.withdraw_untold();
            return None;
        }
        state.untaken.insert(self.number, Arc::clone(shared));
        Some(Untaken { calls: self.calls, number: self.number })
    }
}

impl Drop for Untaken {
    fn drop(&mut self) {
        let shared = self.calls.state().untaken.remove(&self.number);
        drop(shared);
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut state = self.calls.state();
        state.under_way.remove(&self.number);
        if state.under_way.is_empty() {
            self.calls.none_left.notify_all();
        }
    }
}
