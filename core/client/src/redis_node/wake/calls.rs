//! The calls on a wake connection, and how they fail. Owns the calls of a watch; keeps nothing between calls.

use quorlock_protocol::{Fault, FaultKind};
use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, Pipeline, RedisError, ServerError, Value};

use super::watches::KeyState;
use crate::redis_node::session::{of_queue, of_reply};
use crate::redis_node::transport::{garbled, plain};

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

/// Sends one call.
pub(super) async fn call(
    connection: &mut MultiplexedConnection,
    call: &Cmd,
) -> Result<Value, Failure> {
    match connection.send_packed_command(call).await? {
        Value::ServerError(error) => Err(Failure::Refused(error)),
        value => Ok(value),
    }
}

/// Sends news that says nothing, which shows whether the user may send news, and whether it arrives.
pub(super) fn publish_nothing(channel: &str) -> Cmd {
    let mut call = redis::cmd("PUBLISH");
    call.arg(channel).arg("");
    call
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

/// Makes the server tell of changed keys, but only of those that it is asked to tell of.
pub(super) fn track() -> Cmd {
    let mut call = redis::cmd("CLIENT");
    call.arg("TRACKING").arg("ON").arg("OPTIN");
    call
}

/// Makes the server tell when the keys that the next call reads have changed.
pub(super) fn tell_of_next() -> Cmd {
    let mut call = redis::cmd("CLIENT");
    call.arg("CACHING").arg("YES");
    call
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
