//! The calls on a wake connection. Owns the scripts of the queues, what their replies mean, and the calls of a watch;
//! keeps nothing between calls.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Action, Answer, Fault, FaultKind, Frees, Place, Queued, Waiter};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerError, Value};

use super::watches::KeyState;
use crate::keys::{lives_key, queue_key};
use crate::redis_node::session::{of_queue, of_reply};
use crate::redis_node::transport::{garbled, plain};

/// The text of a script, behind what the scripts of the queues have in common.
macro_rules! script {
    ($name:literal) => {
        concat!(
            include_str!("../../scripts/queue.lua"),
            include_str!(concat!("../../scripts/", $name, ".lua"))
        )
    };
}

/// A script of the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Enqueue,
    Leave,
    CountWaiters,
}

/// What a call has failed with.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server replied with an error.
    Refused(ServerError),
    /// The server does not know the protocol that brings news.
    NoResp3,
    /// No reply came.
    Lost(Fault),
}

/// The digests of the scripts by which a server knows them; without them they are sent whole.
#[derive(Clone, Default)]
pub(super) struct Digests([Option<Arc<str>>; 3]);

/// A call of a script.
pub(super) struct ScriptCall {
    script: Script,
    lock_keys: Vec<Arc<str>>,
    arguments: Vec<String>,
}

impl Script {
    pub(super) const ALL: [Self; 3] = [Self::Enqueue, Self::Leave, Self::CountWaiters];

    const fn text(self) -> &'static str {
        match self {
            Self::Enqueue => script!("enqueue"),
            Self::Leave => script!("leave"),
            Self::CountWaiters => script!("count_waiters"),
        }
    }

    /// The call that makes the server know it; the reply is its digest.
    pub(super) fn load(self) -> Cmd {
        let mut call = redis::cmd("SCRIPT");
        call.arg("LOAD").arg(self.text());
        call
    }
}

impl Digests {
    /// Those that the server told, in the order of [`Script::ALL`].
    pub(super) fn read(replies: &[Value]) -> Self {
        let digest = |index: usize| match replies.get(index)? {
            Value::BulkString(bytes) => str::from_utf8(bytes).ok().map(Arc::from),
            _ => None,
        };
        Self([digest(0), digest(1), digest(2)])
    }

    fn of(&self, script: Script) -> Option<&str> {
        self.0[script as usize].as_deref()
    }
}

impl ScriptCall {
    /// The call for a command; `None` if the command is not about queues.
    pub(super) fn of(action: &Action, lock_keys: &[Arc<str>]) -> Option<Self> {
        let (script, arguments) = match action {
            Action::Enqueue { place: Place { arrived, waiter } } => {
                (Script::Enqueue, vec![waiter.to_string(), arrived.to_string()])
            }
            Action::Leave { place } => (Script::Leave, vec![place.waiter.to_string()]),
            Action::CountWaiters => (Script::CountWaiters, Vec::new()),
            _ => return None,
        };
        Some(Self { script, lock_keys: lock_keys.to_vec(), arguments })
    }

    /// The call that gives up the place of a waiter that is not known here.
    pub(super) fn leave(waiter: Waiter, lock_key: &str) -> Self {
        let arguments = vec![waiter.to_string()];
        Self { script: Script::Leave, lock_keys: vec![lock_key.into()], arguments }
    }

    /// Sends it; the server need not know the script any more.
    pub(super) async fn send(
        &self,
        connection: &mut MultiplexedConnection,
        digests: &Digests,
    ) -> Result<Value, Failure> {
        if let Some(digest) = digests.of(self.script) {
            match call(connection, &self.encode("EVALSHA", digest)).await {
                Err(Failure::Refused(error)) if error.code() == "NOSCRIPT" => {}
                result => return result,
            }
        }
        call(connection, &self.encode("EVAL", self.script.text())).await
    }

    fn encode(&self, name: &str, script: &str) -> Cmd {
        let mut call = redis::cmd(name);
        call.arg(script).arg(3 * self.lock_keys.len());
        call.arg(self.lock_keys.iter().map(|it| &**it).collect::<Vec<_>>());
        call.arg(self.lock_keys.iter().map(|it| queue_key(it)).collect::<Vec<_>>());
        call.arg(self.lock_keys.iter().map(|it| lives_key(it)).collect::<Vec<_>>());
        call.arg(&self.arguments);
        call
    }
}

/// Sends one call.
async fn call(connection: &mut MultiplexedConnection, call: &Cmd) -> Result<Value, Failure> {
    match connection.send_packed_command(call).await? {
        Value::ServerError(error) => Err(Failure::Refused(error)),
        value => Ok(value),
    }
}

/// Sends calls in one piece; each has a reply of its own, which may be an error.
pub(super) async fn call_all(
    connection: &mut MultiplexedConnection,
    calls: &[Cmd],
) -> Result<Vec<Value>, Failure> {
    let mut pipeline = Pipeline::with_capacity(calls.len());
    for call in calls {
        pipeline.add_command(call.clone());
    }
    Ok(connection.send_packed_commands(&pipeline, 0, calls.len()).await?)
}

/// Reads a key in such a way that the server tells when it changes.
///
/// `CLIENT CACHING YES` counts for the call behind it alone, and no other user of the connection can come between:
/// both are written as one message. The key is only read for its ttl, which a user who may lock can see.
pub(super) async fn watch(
    connection: &mut MultiplexedConnection,
    key: &str,
) -> Result<KeyState, Failure> {
    let mut read = redis::cmd("PTTL");
    read.arg(key);
    let replies = call_all(connection, &[tell_of_next(), read]).await?;
    match replies.as_slice() {
        [Value::ServerError(error), _] | [_, Value::ServerError(error)] => {
            Err(Failure::Refused(error.clone()))
        }
        [Value::Okay, Value::Int(millis)] => Ok(KeyState::of_pttl(*millis)),
        _ => Err(Failure::Lost(garbled())),
    }
}

/// Makes the server tell when the keys that the next call reads have changed.
pub(super) fn tell_of_next() -> Cmd {
    let mut call = redis::cmd("CLIENT");
    call.arg("CACHING").arg("YES");
    call
}

/// What the server answered to a command; for a place, without whether it is told.
pub(super) fn answer(action: &Action, value: &Value) -> Result<Answer, Fault> {
    match (action, value) {
        (Action::Enqueue { .. }, Value::Array(items)) => queued(items),
        (Action::Leave { .. }, Value::Int(_)) => Some(Answer::Done),
        (Action::CountWaiters, Value::Int(count)) => {
            u32::try_from(*count).ok().map(Answer::Waiters)
        }
        _ => None,
    }
    .ok_or_else(garbled)
}

fn queued(items: &[Value]) -> Option<Answer> {
    let [Value::Int(free), Value::Int(rank), Value::Int(left)] = items else {
        return None;
    };
    let frees = match u64::try_from(*left) {
        Ok(millis) => Frees::In(Duration::from_millis(millis)),
        Err(_) if *left == -1 => Frees::Never,
        Err(_) => Frees::In(Duration::ZERO),
    };
    let rank = u32::try_from(*rank).ok();
    Some(Answer::Queued { queued: Queued { rank, is_free: *free == 1, is_told: false }, frees })
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        let error = match ServerError::try_from(error) {
            Ok(error) => return Self::Refused(error),
            Err(error) => error,
        };
        if error.kind() == ErrorKind::RESP3NotSupported {
            return Self::NoResp3;
        }
        let (kind, words) = if error.kind() == ErrorKind::AuthenticationFailed {
            (
                FaultKind::Unauthenticated,
                "the node does not accept this user name and password".to_owned(),
            )
        } else if error.is_timeout() {
            (FaultKind::TimedOut, "the node does not answer on its wake connection".to_owned())
        } else if error.is_io_error() {
            return Self::broken();
        } else {
            (
                FaultKind::Garbled,
                format!("the wake connection failed: {}", plain(&error.to_string())),
            )
        };
        Self::Lost(Fault::new(kind, words))
    }
}

impl Failure {
    /// The connection has ended.
    pub(super) fn broken() -> Self {
        Self::Lost(Fault::new(FaultKind::Broken, "the wake connection broke"))
    }

    /// The fault of a command for queues.
    pub(super) fn into_fault(self) -> Fault {
        match self {
            Self::Refused(error) => of_queue(&error),
            Self::NoResp3 => garbled(),
            Self::Lost(fault) => fault,
        }
    }

    /// The fault of a log-in.
    pub(super) fn into_login_fault(self) -> Fault {
        match self {
            Self::Refused(error) => of_reply(&error, None),
            // Nothing was asked of the server yet.
            Self::Lost(fault) if fault.kind() == FaultKind::Broken => Fault::new(
                FaultKind::NotSent,
                "cannot connect: the node closed the wake connection",
            ),
            other => other.into_fault(),
        }
    }
}
