//! One connection as a pipe: calls go in, replies come out in the same order. Knows no lock.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use quorlock_protocol::Fault;
use redis::{Cmd, RedisError, Value};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::faults;
use super::frame::{self, Frame};
use super::stream::{Allowance, Metered, Stream};

/// A connection whose reading and writing happens inside [`Self::poll_reply`]: no task of its own.
pub(super) struct Pipe {
    stream: Metered,
    /// What is to be written, and how much of it was.
    outgoing: Vec<u8>,
    written: usize,
    /// What was read, and how much of it was taken.
    incoming: Vec<u8>,
    taken: usize,
    outstanding: usize,
    allowance: Allowance,
    failure: Option<Fault>,
}

impl Pipe {
    /// A pipe over `stream`; nothing is sent yet.
    pub(super) fn new(stream: Box<dyn Stream>) -> Self {
        let allowance = Allowance::default();
        Self {
            stream: Metered::new(stream, allowance.clone()),
            outgoing: Vec::new(),
            written: 0,
            incoming: Vec::with_capacity(READ_AT_ONCE),
            taken: 0,
            outstanding: 0,
            allowance,
            failure: None,
        }
    }

    /// Puts a call in, behind all others. It is written by the next [`Self::poll_reply`].
    pub(super) fn request(&mut self, call: &Cmd) {
        self.allowance.grow();
        self.outstanding += 1;
        call.write_packed_command(&mut self.outgoing);
    }

    /// The reply to the oldest call, or why there will be no more.
    pub(super) fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<Value, Fault>> {
        if let Some(fault) = &self.failure {
            return Poll::Ready(Err(fault.clone()));
        }
        // Replies first, so that what arrived before the connection ended still counts.
        loop {
            match self.take_reply() {
                Ok(Some(value)) => return Poll::Ready(Ok(value)),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Err(self.fail(&error))),
            }
            let written = self.poll_write(context);
            match (self.poll_read(context), written) {
                // Who closes the connection may have said why before: read to the end.
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
    fn take_reply(&mut self) -> Result<Option<Value>, RedisError> {
        if self.outstanding == 0 {
            // What nobody asked for is not Redis's protocol.
            return if self.incoming.len() > self.taken { Err(garbled()) } else { Ok(None) };
        }
        match frame::read(&self.incoming[self.taken..])? {
            Frame::Whole(value, length) => {
                self.taken += length;
                if self.taken == self.incoming.len() {
                    self.incoming.clear();
                    self.taken = 0;
                }
                self.outstanding -= 1;
                self.allowance.renew(self.outstanding);
                Ok(Some(value))
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

    /// Reads what is there; `false` if the other side has hung up.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        if self.taken > 0 {
            self.incoming.drain(..self.taken);
            self.taken = 0;
        }
        let before = self.incoming.len();
        self.incoming.resize(before + READ_AT_ONCE, 0);
        let mut buffer = ReadBuf::new(&mut self.incoming[before..]);
        let result = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
        let count = buffer.filled().len();
        self.incoming.truncate(before + count);
        ready!(result)?;
        Poll::Ready(Ok(count > 0))
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

fn garbled() -> RedisError {
    (redis::ErrorKind::Parse, "not asked for").into()
}

const READ_AT_ONCE: usize = 4 * 1024;
/// So much of the buffer for writing is kept when it has been written.
const KEPT: usize = 64 * 1024;
