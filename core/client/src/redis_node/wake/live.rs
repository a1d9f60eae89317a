//! One open wake connection: what its server can do, and the calls under way on it. Owns redis-rs's
//! connection; knows no waiters.
//!
//! The connection has no task of its own: it is read and written while [`Live::next`] is polled.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use quorlock_protocol::{Fault, Waiter};
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, ServerError, Value};
use tokio::select;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::calls::{self, Failure};
use super::lacks::{Lacks, Way};
use super::log_in::{Connected, log_in};
use super::news::Push;
use super::request::Request;
use super::scripts::{Digests, Script, ScriptCall};
use super::watches::KeyState;
use crate::address::Address;
use crate::keys::wake_channel;

#[cfg(test)]
mod tests;

/// An open wake connection.
pub(super) struct Live {
    connection: MultiplexedConnection,
    /// Reads and writes; ends with the connection.
    driver: BoxFuture<'static, ()>,
    has_ended: bool,
    pushes: mpsc::UnboundedReceiver<PushInfo>,
    in_flight: FuturesUnordered<BoxFuture<'static, Event>>,
    digests: Digests,
    /// Whether the server sends news for the waiters of these processes.
    hears: BTreeMap<u64, bool>,
    /// The processes whose test message has not arrived yet.
    untested: BTreeSet<u64>,
    /// Whether the server tells of changed keys.
    can_watch: bool,
    has_push: bool,
    lacks: Arc<Lacks>,
    pub(super) opened: Instant,
}

/// What happened on a wake connection.
pub(super) enum Event {
    Push(Push),
    Answered(Request, Result<Value, Failure>),
    /// A watched key was read.
    Read(Arc<str>, Result<KeyState, Failure>),
    /// A call that news for this process's waiters needs has failed, by its name.
    Deaf(u64, &'static str, Failure),
    /// What was published for this process's waiters as a test must have arrived.
    Tested(u64),
    /// A call without a request was answered, or a push says nothing.
    Nothing,
    /// The connection has ended, and all of its calls are answered.
    Lost,
}

impl Live {
    /// Opens a wake connection to `address`. The caller sets the deadline.
    pub(super) async fn open(address: &Address, lacks: Arc<Lacks>) -> Result<Self, Fault> {
        let Connected { connection, mut driver, pushes, refusal } = log_in(address).await?;
        let mut first = connection.clone();
        let mut preparations = vec![calls::track(), calls::tell_of_next()];
        preparations.extend(Script::ALL.map(Script::load));
        let replies = select! {
            replies = calls::call_all(&mut first, &preparations) => replies,
            () = &mut driver => Err(Failure::broken()),
        };
        let replies = replies.map_err(Failure::into_login_fault)?;
        let (in_flight, hears) = (FuturesUnordered::new(), BTreeMap::new());
        let untested = BTreeSet::new();
        let digests = Digests::read(replies.get(2..).unwrap_or_default());
        let has_push = refusal.is_none();
        let (has_ended, opened, can_watch) = (false, Instant::now(), has_push);
        let mut live = Self {
            connection,
            driver,
            has_ended,
            pushes,
            in_flight,
            digests,
            hears,
            untested,
            can_watch,
            has_push,
            lacks,
            opened,
        };
        live.lacks.clear();
        if let Some(refusal) = refusal {
            live.lacks.note(Way::Hear, "HELLO 3 (RESP3)", "+hello", &refusal);
        } else if let [Value::ServerError(error), ..] | [_, Value::ServerError(error), ..] =
            &replies[..]
        {
            live.stop_watching(error);
        }
        Ok(live)
    }

    /// What happens next: first what the server has sent unasked, which [`Event::Tested`] relies on. No event is lost
    /// when the future is dropped.
    pub(super) async fn next(&mut self) -> Event {
        if self.has_ended {
            // It may have come together with the end.
            if let Ok(push) = self.pushes.try_recv() {
                return Push::read(push).map_or(Event::Nothing, Event::Push);
            }
            return self.in_flight.next().await.unwrap_or(Event::Lost);
        }
        select! {
            biased;
            Some(push) = self.pushes.recv() => Push::read(push).map_or(Event::Nothing, Event::Push),
            Some(done) = self.in_flight.next(), if !self.in_flight.is_empty() => done,
            () = &mut self.driver => {
                self.give_up();
                Event::Nothing
            }
        }
    }

    /// Ends the connection: calls under way fail.
    pub(super) fn give_up(&mut self) {
        self.has_ended = true;
        self.driver = ready(()).boxed();
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Sends the call for `request`, behind those before it.
    pub(super) fn send(&mut self, request: Request) {
        let Some(call) = ScriptCall::of(&request.command.action, &request.lock_keys) else {
            return;
        };
        let (mut connection, digests) = (self.connection.clone(), self.digests.clone());
        self.add(async move {
            let result = call.send(&mut connection, &digests).await;
            Event::Answered(request, result)
        });
    }

    /// Reads a key, so that the server tells when it changes.
    pub(super) fn read(&mut self, key: Arc<str>) {
        let mut connection = self.connection.clone();
        self.add(async move {
            let result = calls::watch(&mut connection, &key).await;
            Event::Read(key, result)
        });
    }

    /// Gives up the place of a waiter that is not known here: it has ended without a word. A limited number of such
    /// calls is under way, since anybody may publish.
    pub(super) fn drop_place(&mut self, waiter: Waiter, lock_key: &str) {
        if self.in_flight.len() > MOST_DROPS {
            return;
        }
        self.leave(waiter, &[lock_key.into()], ());
    }

    /// Gives up the place of a waiter, without telling anybody; `until_then` is dropped once that is answered.
    pub(super) fn leave(
        &mut self,
        waiter: Waiter,
        lock_keys: &[Arc<str>],
        until_then: impl Send + 'static,
    ) {
        let call = ScriptCall::leave(waiter, lock_keys);
        let (mut connection, digests) = (self.connection.clone(), self.digests.clone());
        self.add(async move {
            // If it fails, the place ends by itself.
            let _ = call.send(&mut connection, &digests).await;
            drop(until_then);
            Event::Nothing
        });
    }

    /// Asks for the news for the waiters of `process`, unless that was done.
    ///
    /// The server takes it before the calls that are sent from now on, and answers in that order. The processes that
    /// send news are most often the same user, so it is tried whether that user may send, and whether what was sent
    /// arrives: before the reply to a call that is sent after it.
    pub(super) fn subscribe(&mut self, process: u64) {
        if !self.has_push || self.hears.contains_key(&process) {
            return;
        }
        self.hears.insert(process, true);
        self.untested.insert(process);
        let channel = wake_channel(process);
        let (mut connection, mut sender) = (self.connection.clone(), self.connection.clone());
        let publish = calls::publish_nothing(&channel);
        let mut after = self.connection.clone();
        self.add(async move {
            let result = connection.subscribe(channel).await.map_err(Failure::from);
            result.map_or_else(|it| Event::Deaf(process, "SUBSCRIBE", it), |()| Event::Nothing)
        });
        self.add(async move {
            let result = calls::call(&mut sender, &publish).await;
            result.map_or_else(|it| Event::Deaf(process, "PUBLISH", it), |_| Event::Nothing)
        });
        self.add(async move {
            // Waiters need this right anyway.
            match calls::call(&mut after, &redis::cmd("TIME")).await {
                // A refusal is a reply as well.
                Ok(_) | Err(Failure::Refused(_)) => Event::Tested(process),
                Err(Failure::Lost(_) | Failure::NoResp3) => Event::Nothing,
            }
        });
    }

    /// The test message for the waiters of `process` has arrived.
    pub(super) fn note_heard(&mut self, process: u64) {
        self.untested.remove(&process);
    }

    /// The test message for the waiters of `process` would have arrived by now, if messages did. Returns whether they
    /// do, or were known not to.
    pub(super) fn judge_test(&mut self, process: u64) -> bool {
        if !self.untested.remove(&process) || !self.can_hear(process) {
            return true;
        }
        self.hears.insert(process, false);
        self.can_watch = false;
        let words =
            "what the server sends unasked does not arrive, as through a proxy without push";
        self.lacks.note_words(Way::Hear, words.to_owned());
        false
    }

    /// The server sends no news for the waiters of `process`.
    pub(super) fn note_deaf(&mut self, process: u64, call: &str, failure: &Failure) {
        if self.hears.insert(process, false) == Some(true) {
            self.lacks.note(Way::Hear, call, "&quorlock:wake:* +subscribe +publish", failure);
        }
    }

    /// The server does not tell of changed keys.
    pub(super) fn stop_watching(&mut self, error: &ServerError) {
        self.can_watch = false;
        let refusal = Failure::Refused(error.clone());
        self.lacks.note(
            Way::Watch,
            "CLIENT TRACKING",
            "+client|tracking +client|caching",
            &refusal,
        );
    }

    pub(super) fn can_hear(&self, process: u64) -> bool {
        self.hears.get(&process).copied().unwrap_or(false)
    }

    pub(super) const fn can_watch(&self) -> bool {
        self.can_watch
    }

    fn add(&self, call: impl Future<Output = Event> + Send + 'static) {
        self.in_flight.push(call.boxed());
    }
}

/// How many calls may be under way when the place of an unknown waiter is given up.
const MOST_DROPS: usize = 1000;
