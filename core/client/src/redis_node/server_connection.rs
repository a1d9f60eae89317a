//! A plain connection to one server, for tools that ask it what it is and what it holds. Owns no
//! lock command, sends nothing again, and refuses no server: a replica answers here, too.

use std::future::poll_fn;
use std::time::Duration;

use quorlock_protocol::Fault;
use redis::Value;
use tokio::time::{Instant, timeout_at};

use super::faults::{not_connected, silent};
use super::session::{log_in_calls, of_connection, refused};
use super::transport::{self, Outgoing, Pipe, Socket, plain};
use crate::address::Address;
use crate::keys::lives_key;

/// A connection to one server, logged in as its address says.
///
/// Its futures need a tokio runtime with input and output, such as that of an
/// [`Engine`](crate::Engine), and have no deadline of their own. Dropping one while it waits for a
/// reply leaves the connection unusable: drop that as well.
///
/// ```no_run
/// use quorlock::{Engine, ServerConnection, ServerReply};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let address = "redis://localhost".parse()?;
/// let reply = Engine::shared()?.block_on(async {
///     let mut connection = ServerConnection::open(&address).await?;
///     connection.ask(&["PING"]).await
/// });
/// let reply = reply.map_err(|fault| fault.to_string())?;
/// assert_eq!(reply, ServerReply::Text("PONG".into()));
/// # Ok(())
/// # }
/// ```
pub struct ServerConnection {
    pipe: Pipe,
    certificate: Option<Vec<u8>>,
}

/// What a server replied to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerReply {
    /// Nothing is there.
    Nothing,
    /// A number.
    Number(i64),
    /// A text; bytes that are not UTF-8 are replaced.
    Text(String),
    /// Several replies.
    List(Vec<ServerReply>),
    /// The server refused the call, and why, in its own words.
    Refused(String),
}

impl ServerConnection {
    /// Connects and logs in.
    ///
    /// # Errors
    /// A [`Fault`] that says what is wrong: the server cannot be reached, its certificate is not
    /// trusted, it refuses the user or the database.
    pub async fn open(address: &Address) -> Result<Self, Fault> {
        Self::begin(address, transport::connect(address).await?).await
    }

    /// Connects, logs in, and has `visit` use the connection: all of it within `limit`.
    ///
    /// # Errors
    /// As for [`Self::open`] and of `visit`. After the limit, the fault's kind tells whether the
    /// server could not be connected to ([`FaultKind::NotSent`](crate::FaultKind::NotSent)) or is
    /// connected, but does not answer ([`FaultKind::TimedOut`](crate::FaultKind::TimedOut)).
    pub async fn visit<T>(
        address: &Address,
        limit: Duration,
        visit: impl AsyncFnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let deadline = Instant::now() + limit;
        let connecting = timeout_at(deadline, transport::connect(address));
        let socket = connecting.await.unwrap_or_else(|_| Err(not_connected(limit)))?;
        let visiting = async { visit(&mut Self::begin(address, socket).await?).await };
        timeout_at(deadline, visiting).await.unwrap_or_else(|_| Err(silent(address, limit)))
    }

    async fn begin(address: &Address, socket: Socket) -> Result<Self, Fault> {
        let opened = transport::secure(address, socket).await?;
        let (pipe, certificate) = (Pipe::new(opened.stream), opened.certificate);
        let mut connection = Self { pipe, certificate };
        for call in log_in_calls(address) {
            if let Value::ServerError(error) =
                connection.exchange(&mut Outgoing::from(&call)).await?
            {
                return Err(refused(&error));
            }
        }
        Ok(connection)
    }

    /// Sends one call, and waits for its reply.
    ///
    /// # Errors
    /// A [`Fault`] if the connection breaks, or the server takes no more connections, or none from
    /// this machine. Any other refusal by the server is a reply.
    pub async fn ask(&mut self, words: &[&str]) -> Result<ServerReply, Fault> {
        Ok(reply(self.exchange(&mut Outgoing::from(&call(words))).await?))
    }

    /// Sends several calls at once, and waits for the reply of each: all of it takes one round trip.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub async fn ask_all(&mut self, calls: &[&[&str]]) -> Result<Vec<ServerReply>, Fault> {
        for words in calls {
            self.pipe.request(&mut Outgoing::from(&call(words)));
        }
        let mut replies = Vec::with_capacity(calls.len());
        for _ in calls {
            replies.push(reply(self.next_reply().await?));
        }
        Ok(replies)
    }

    /// How many acquisitions wait for each of the locks with these keys, in the server's queues; `None` if the user may
    /// not read that. `now` is the first number that the server has replied to TIME.
    ///
    /// # Errors
    /// As for [`Self::ask`].
    pub async fn waiters(
        &mut self,
        lock_keys: &[&str],
        now: i64,
    ) -> Result<Vec<Option<i64>>, Fault> {
        let since = format!("({}", now.saturating_mul(1000));
        let lives: Vec<String> = lock_keys.iter().map(|key| lives_key(key)).collect();
        let calls: Vec<_> = lives.iter().map(|key| ["ZCOUNT", key, &since, "+inf"]).collect();
        let calls: Vec<&[&str]> = calls.iter().map(|call| &call[..]).collect();
        Ok(self.ask_all(&calls).await?.iter().map(ServerReply::number).collect())
    }

    /// The certificate that the server has shown, in DER; `None` without TLS.
    pub fn certificate(&self) -> Option<&[u8]> {
        self.certificate.as_deref()
    }

    async fn exchange(&mut self, outgoing: &mut Outgoing) -> Result<Value, Fault> {
        self.pipe.request(outgoing);
        self.next_reply().await
    }

    async fn next_reply(&mut self) -> Result<Value, Fault> {
        let value = poll_fn(|context| self.pipe.poll_reply(context)).await.map(Value::from)?;
        match &value {
            Value::ServerError(error) => of_connection(error).map_or(Ok(value), Err),
            _ => Ok(value),
        }
    }
}

impl ServerReply {
    /// The text, if it is one.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The number, if it is one or the text of one.
    pub fn number(&self) -> Option<i64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// The parts of a list; none for anything else.
    pub fn parts(&self) -> &[Self] {
        match self {
            Self::List(parts) => parts,
            _ => &[],
        }
    }

    /// Why the server refused the call, if it did.
    pub fn refusal(&self) -> Option<&str> {
        match self {
            Self::Refused(words) => Some(words),
            _ => None,
        }
    }
}

fn call(words: &[&str]) -> redis::Cmd {
    let (name, arguments) = words.split_first().unwrap_or((&"", &[]));
    redis::cmd(name).arg(arguments).to_owned()
}

fn reply(value: Value) -> ServerReply {
    match value {
        Value::Nil => ServerReply::Nothing,
        Value::Int(number) => ServerReply::Number(number),
        Value::BulkString(bytes) => ServerReply::Text(String::from_utf8_lossy(&bytes).into_owned()),
        Value::SimpleString(text) => ServerReply::Text(text),
        Value::Okay => ServerReply::Text("OK".to_owned()),
        Value::Array(parts) => ServerReply::List(parts.into_iter().map(reply).collect()),
        Value::ServerError(error) => ServerReply::Refused(plain(&format!(
            "{} {}",
            error.code(),
            error.details().unwrap_or_default()
        ))),
        _ => ServerReply::Refused("a reply of a kind that was not asked for".to_owned()),
    }
}
