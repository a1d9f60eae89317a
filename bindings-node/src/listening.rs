//! The listener to a manager's events, which JavaScript's thread calls. Owns the order in which it is
//! called: as things have happened.

use std::sync::Arc;

use napi::Status;
use napi::bindgen_prelude::Function;
use napi::threadsafe_function::{ThreadsafeFunction, ThreadsafeFunctionCallMode};
use quorlock::{Event, Interest, Redlock, Subscription};

/// A listener that is called with texts, for as long as this is kept.
pub(crate) struct Listening {
    _subscription: Subscription,
    call: Arc<Call>,
}

/// Weak: it does not keep the process alive.
type Call = ThreadsafeFunction<String, (), String, Status, false, true, 0>;

impl Listening {
    /// Has `listener` called with the text of each event of `interest`.
    pub(crate) fn begin(
        locks: &Redlock,
        interest: Interest,
        listener: &Function<'_, String, ()>,
        text: fn(&Event) -> String,
    ) -> napi::Result<Self> {
        let call: Call = listener.build_threadsafe_function().weak::<true>().build()?;
        let call = Arc::new(call);
        let own = Arc::clone(&call);
        let tell = move |event: &Event| {
            // For an environment that has ended, nothing happens.
            own.call(text(event), ThreadsafeFunctionCallMode::NonBlocking);
        };
        Ok(Self { _subscription: locks.subscribe(interest, tell), call })
    }

    /// Has the listener called with an empty text behind the events of what has happened so far; false
    /// if it is called no more.
    pub(crate) fn end_events(&self) -> bool {
        self.call.call(String::new(), ThreadsafeFunctionCallMode::NonBlocking) == Status::Ok
    }
}
