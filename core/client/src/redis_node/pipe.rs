//! One connection as a pipe: calls go in, replies come out in the same order. Knows no lock.

use std::future::ready;
use std::io;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesOrdered, StreamExt as _};
use futures_util::task::noop_waker_ref;
use quorlock_protocol::Fault;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, RedisConnectionInfo, RedisError, RedisResult, Value};
use tokio::task::unconstrained;

use super::faults;
use super::stream::{Allowance, Metered, Stream};

/// A connection whose reading and writing happens inside [`Self::poll_reply`]: no task of its own.
pub(super) struct Pipe {
    connection: MultiplexedConnection,
    /// Reads and writes; `None` once the connection is over.
    driver: Option<BoxFuture<'static, ()>>,
    replies: FuturesOrdered<BoxFuture<'static, RedisResult<Value>>>,
    allowance: Allowance,
    failure: Option<Fault>,
}

impl Pipe {
    /// The most calls that can be outstanding at once without waiting inside the connection.
    pub(super) const CAPACITY: usize = 64 * 1024;

    /// A pipe over `stream`; nothing is sent yet.
    pub(super) async fn new(stream: Box<dyn Stream>) -> Result<Self, Fault> {
        let allowance = Allowance::default();
        // Logging in is done by hand, where each refusal gets its own words; deadlines are the machines'.
        let bare = RedisConnectionInfo::default().set_skip_set_lib_name();
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_write_backpressure_boundary(WRITE_AT_ONCE)
            .set_pipeline_buffer_size(Self::CAPACITY);
        let metered = Metered::new(stream, allowance.clone());
        let (connection, driver) = MultiplexedConnection::new_with_config(&bare, metered, config)
            .await
            .map_err(|error| faults::of_connection(&error))?;
        Ok(Self {
            connection,
            driver: Some(Box::pin(driver)),
            replies: FuturesOrdered::new(),
            allowance,
            failure: None,
        })
    }

    /// Puts a call in, behind all others. It is written by the next [`Self::poll_reply`].
    pub(super) fn request(&mut self, call: Cmd) {
        self.allowance.grow();
        let mut connection = self.connection.clone();
        let mut reply: BoxFuture<'static, _> =
            Box::pin(unconstrained(async move { connection.send_packed_command(&call).await }));
        // The first look at a call puts it into the connection's queue, which has room. It happens here
        // and without tokio's budget for a task: with it, the calls that come after the budget is used
        // up would be looked at again in another order.
        let mut context = Context::from_waker(noop_waker_ref());
        if let Poll::Ready(failed) = reply.as_mut().poll(&mut context) {
            reply = Box::pin(ready(failed));
        }
        self.replies.push_back(reply);
    }

    /// The reply to the oldest call, or why there will be no more.
    pub(super) fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<Value, Fault>> {
        // Replies first, so that what arrived before the connection ended still counts; the driver
        // sees the calls that the first look has put into its queue; and what it reads is seen at once.
        if let Poll::Ready(reply) = self.poll_queue(context) {
            return Poll::Ready(reply);
        }
        if let Some(driver) = &mut self.driver {
            if driver.as_mut().poll(context).is_ready() {
                self.driver = None;
            }
            if let Poll::Ready(reply) = self.poll_queue(context) {
                return Poll::Ready(reply);
            }
        }
        match self.driver {
            Some(_) => Poll::Pending,
            None => Poll::Ready(Err(self.fail(&hung_up()))),
        }
    }

    fn poll_queue(&mut self, context: &mut Context<'_>) -> Poll<Result<Value, Fault>> {
        if self.failure.is_some() || self.replies.is_empty() {
            return Poll::Pending;
        }
        match self.replies.poll_next_unpin(context) {
            Poll::Ready(Some(Ok(value))) => {
                self.allowance.renew(self.replies.len());
                Poll::Ready(Ok(value))
            }
            Poll::Ready(Some(Err(error))) => {
                self.driver = None;
                Poll::Ready(Err(self.fail(&error)))
            }
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Why the connection is over: the first reason stays.
    fn fail(&mut self, error: &RedisError) -> Fault {
        let fault = self.failure.get_or_insert_with(|| {
            if self.allowance.is_exceeded() {
                faults::garbled()
            } else {
                faults::of_connection(error)
            }
        });
        fault.clone()
    }
}

fn hung_up() -> RedisError {
    io::Error::from(io::ErrorKind::UnexpectedEof).into()
}

/// As many bytes are gathered for one write. More than logging in takes: a server that refuses a
/// connection with a word and hangs up is heard only if nothing is written after that.
const WRITE_AT_ONCE: usize = 256 * 1024;
