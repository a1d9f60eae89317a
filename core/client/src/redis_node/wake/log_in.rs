//! Connects and logs in to a server for callers that wait (a wake connection), by the newest protocol that it speaks.
//! Owns what follows if it does not speak RESP3.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use quorlock_protocol::Fault;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ProtocolVersion, PushInfo, RedisConnectionInfo};
use tokio::sync::mpsc;

use super::calls::Failure;
use crate::address::Address;
use crate::redis_node::transport;

/// A connection that is logged in.
pub(super) struct Connected {
    pub(super) connection: MultiplexedConnection,
    /// Reads and writes; ends with the connection.
    pub(super) driver: BoxFuture<'static, ()>,
    /// What the server sends unasked.
    pub(super) pushes: mpsc::UnboundedReceiver<PushInfo>,
    /// Why the server sends nothing unasked, if so.
    pub(super) refusal: Option<Failure>,
}

/// Connects and logs in to `address`; without RESP3 if the server does not know it.
pub(super) async fn log_in(address: &Address) -> Result<Connected, Fault> {
    let (pushes_in, pushes) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_response_timeout(Some(SILENCE));
    let with_push = config.clone().set_push_sender(pushes_in);
    let (connected, refusal) = match dial(address, ProtocolVersion::RESP3, with_push).await? {
        Ok(connected) => (connected, None),
        Err(refusal) if has_no_resp3(&refusal, address) => {
            let again = dial(address, ProtocolVersion::RESP2, config).await?;
            (again.map_err(Failure::into_login_fault)?, Some(refusal))
        }
        Err(failure) => return Err(failure.into_login_fault()),
    };
    let (connection, driver) = connected;
    Ok(Connected { connection, driver, pushes, refusal })
}

/// Connects, and logs in with this version of the protocol. The inner error is what the server replied to the log-in.
async fn dial(
    address: &Address,
    protocol: ProtocolVersion,
    config: AsyncConnectionConfig,
) -> Result<Result<(MultiplexedConnection, BoxFuture<'static, ()>), Failure>, Fault> {
    let mut login = RedisConnectionInfo::default()
        .set_protocol(protocol)
        .set_skip_set_lib_name()
        .set_db(i64::from(address.db()));
    if let Some(username) = address.username() {
        login = login.set_username(username);
    }
    if let Some(password) = address.password() {
        login = login.set_password(password);
    }
    let opened = transport::open(address).await?;
    let connected = MultiplexedConnection::new_with_config(&login, opened.stream, config).await;
    Ok(connected.map(|(connection, driver)| (connection, driver.boxed())).map_err(Failure::from))
}

/// Whether a log-in failed only because the server or the access list lacks RESP3.
fn has_no_resp3(failure: &Failure, address: &Address) -> bool {
    match failure {
        Failure::Refused(error) => {
            let text = error.details().unwrap_or_default();
            // A server that wants a password says that before it says that it does not know the command.
            let is_unread = error.code() == "NOAUTH" && address.password().is_some();
            is_unread
                || error.code() == "NOPROTO"
                || text.starts_with("unknown command")
                || (error.code() == "NOPERM" && text.contains("hello"))
        }
        Failure::NoResp3 => true,
        Failure::Lost(_) => false,
    }
}

/// How long a call may remain without an answer before the connection counts as dead.
const SILENCE: Duration = Duration::from_secs(5);
