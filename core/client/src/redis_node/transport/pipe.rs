//! One connection as a pipe: calls go in, replies come out in the same order. Owns both buffers and
//! the first error.

use std::error::Error;
use std::io;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use quorlock_protocol::{Fault, FaultKind};
use redis::{ErrorKind, RedisError};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::call::Outgoing;
use super::faults::{self, garbled};
use super::frame::{self, Frame, Reply};
use super::meter::{Allowance, Metered};
use super::stream::Stream;
use super::tls;

/// A connection whose reading and writing happens inside [`Self::poll_reply`]: no task of its own.
pub(crate) struct Pipe {
    stream: Metered,
    /// What is to be written, and how much of it was.
    outgoing: Vec<u8>,
    written: usize,
    /// Room for what is read: the first `filled` bytes were read, the first `taken` of them were handed out.
    incoming: Vec<u8>,
    filled: usize,
    taken: usize,
    outstanding: usize,
    allowance: Allowance,
    failure: Option<Fault>,
}

impl Pipe {
    /// A pipe over `stream`; nothing is sent yet.
    pub(crate) fn new(stream: Box<dyn Stream>) -> Self {
        let allowance = Allowance::default();
        Self {
            stream: Metered::new(stream, allowance.clone()),
            outgoing: Vec::new(),
            written: 0,
            incoming: Vec::new(),
            filled: 0,
            taken: 0,
            outstanding: 0,
            allowance,
            failure: None,
        }
    }

    /// Takes all calls of `outgoing` and appends them to the others. They are written by the next
    /// [`Self::poll_reply`].
    pub(crate) fn request(&mut self, outgoing: &mut Outgoing) {
        let calls = mem::take(&mut outgoing.calls);
        self.allowance.grow(calls);
        self.outstanding += calls;
        if self.outgoing.is_empty() {
            // Swapped with a buffer that has memory as well: nothing is copied.
            mem::swap(&mut self.outgoing, &mut outgoing.bytes);
        } else {
            self.outgoing.append(&mut outgoing.bytes);
            outgoing.bytes.shrink_to(KEPT);
        }
    }

    /// Ends the pipe with `fault`, unless it has ended already.
    pub(crate) fn give_up(&mut self, fault: &Fault) {
        self.failure.get_or_insert_with(|| fault.clone());
    }

    /// Whether the pipe is known to have ended.
    pub(crate) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The reply to the oldest call, or why there will be no more.
    pub(crate) fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<Reply, Fault>> {
        if let Some(fault) = &self.failure {
            return Poll::Ready(Err(fault.clone()));
        }
        // Replies first, so that those which arrived before the connection ended still count.
        loop {
            match self.take_reply() {
                Ok(Some(reply)) => return Poll::Ready(Ok(reply)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(self.fail(&error))),
            }
            let written = self.poll_write(context);
            match (self.poll_read(context), written) {
                // A server that closes the connection may have said why before: read to the end.
                (Poll::Ready(Ok(true)), _) => {}
                (Poll::Ready(Ok(false)), _) => return Poll::Ready(Err(self.fail(&hung_up()))),
                (Poll::Ready(Err(error)), _) | (Poll::Pending, Poll::Ready(Err(error))) => {
                    return Poll::Ready(Err(self.fail(&error.into())));
                }
                (Poll::Pending, _) => return Poll::Pending,
            }
        }
    }

    /// The next whole reply among what was read.
    fn take_reply(&mut self) -> Result<Option<Reply>, RedisError> {
        if self.outstanding == 0 {
            // Bytes that were not asked for are not Redis's protocol.
            return if self.filled > self.taken { Err(not_asked_for()) } else { Ok(None) };
        }
        if self.filled == self.taken {
            return Ok(None);
        }
        match frame::read(&self.incoming[self.taken..self.filled])? {
            Frame::Whole(reply, length) => {
                self.taken += length;
                self.outstanding -= 1;
                self.allowance.renew(self.outstanding);
                Ok(Some(reply))
            }
            Frame::Partial => Ok(None),
        }
    }

    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.outgoing.len() {
            let rest = &self.outgoing[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        if self.written > 0 {
            self.outgoing.clear();
            self.outgoing.shrink_to(KEPT);
            self.written = 0;
            return Pin::new(&mut self.stream).poll_flush(context);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads what is there; `false` if the other side has closed the connection.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.make_room();
        let mut buffer = ReadBuf::new(&mut self.incoming[self.filled..]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        let count = buffer.filled().len();
        self.filled += count;
        Poll::Ready(Ok(count > 0))
    }

    /// Makes room for one more read. The buffer is zeroed when it grows and not before each read.
    fn make_room(&mut self) {
        self.incoming.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.taken = 0;
        if self.incoming.len() > KEPT && self.filled < KEPT {
            self.incoming.truncate(KEPT);
            self.incoming.shrink_to_fit();
        }
        if self.incoming.len() < self.filled + READ_AT_ONCE {
            self.incoming.resize((2 * self.incoming.len()).max(self.filled + READ_AT_ONCE), 0);
        }
    }

    /// Why the connection has ended: the first reason is kept.
    fn fail(&mut self, error: &RedisError) -> Fault {
        let fault = self.failure.get_or_insert_with(|| {
            if self.allowance.is_exceeded() { garbled() } else { of_connection(error) }
        });
        fault.clone()
    }
}

/// The fault behind a connection that ended.
fn of_connection(error: &RedisError) -> Fault {
    // The redis crate keeps the inner error in an Arc, and hands out the Arc.
    let source =
        error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let inner = source.and_then(|source| source.downcast_ref::<io::Error>());
    if let Some(fault) = inner.and_then(tls::fault_in) {
        return fault;
    }
    if error.kind() == ErrorKind::Parse {
        return garbled();
    }
    let words = match inner {
        Some(error) => faults::io_words(error),
        None => "the node closed it".to_owned(),
    };
    Fault::new(FaultKind::Broken, format!("the connection was lost: {words}"))
}

fn hung_up() -> RedisError {
    io::Error::from(io::ErrorKind::UnexpectedEof).into()
}

fn not_asked_for() -> RedisError {
    (ErrorKind::Parse, "not asked for").into()
}

/// How many bytes are read at once, at least.
const READ_AT_ONCE: usize = 4 * 1024;
/// A buffer that is empty keeps this much of its memory, in bytes.
const KEPT: usize = 64 * 1024;
