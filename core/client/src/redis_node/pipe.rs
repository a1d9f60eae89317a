//! One connection as a pipe: calls go in, replies come out in the same order. Knows no lock.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use quorlock_protocol::Fault;
use redis::{Cmd, RedisError};
use tokio::io::{AsyncRead as _, AsyncWrite as _, ReadBuf};

use super::call::Call;
use super::faults;
use super::frame::{self, Frame, Reply};
use super::stream::{Allowance, Metered, Stream};

/// A connection whose reading and writing happens inside [`Self::poll_reply`]: no task of its own.
pub(super) struct Pipe {
    stream: Metered,
    /// What is to be written, and how much of it was.
    outgoing: Vec<u8>,
    written: usize,
    /// Room for what is read: of it, so much is filled, and of that so much was taken.
    incoming: Vec<u8>,
    filled: usize,
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
            incoming: Vec::new(),
            filled: 0,
            taken: 0,
            outstanding: 0,
            allowance,
            failure: None,
        }
    }

    /// Puts a call in, behind all others. It is written by the next [`Self::poll_reply`].
    pub(super) fn request(&mut self, call: &Cmd) {
        self.expect_reply();
        call.write_packed_command(&mut self.outgoing);
    }

    /// The same for a call that was put together here.
    pub(super) fn request_call(&mut self, call: &Call) {
        self.expect_reply();
        call.write_to(&mut self.outgoing);
    }

    fn expect_reply(&mut self) {
        self.allowance.grow();
        self.outstanding += 1;
    }

    /// There will be no more replies, unless that was known before.
    pub(super) fn give_up(&mut self, fault: &Fault) {
        self.failure.get_or_insert_with(|| fault.clone());
    }

    /// Whether there will be no more replies, as far as was seen.
    pub(super) fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// The reply to the oldest call, or why there will be no more.
    pub(super) fn poll_reply(&mut self, context: &mut Context<'_>) -> Poll<Result<Reply, Fault>> {
        if let Some(fault) = &self.failure {
            return Poll::Ready(Err(fault.clone()));
        }
        // Replies first, so that what arrived before the connection ended still counts.
        loop {
            match self.take_reply() {
                Ok(Some(reply)) => return Poll::Ready(Ok(reply)),
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
    fn take_reply(&mut self) -> Result<Option<Reply>, RedisError> {
        if self.outstanding == 0 {
            // What nobody asked for is not Redis's protocol.
            return if self.filled > self.taken { Err(garbled()) } else { Ok(None) };
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

    /// Reads what is there; `false` if the other side has hung up.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.make_room();
        let mut buffer = ReadBuf::new(&mut self.incoming[self.filled..]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        let count = buffer.filled().len();
        self.filled += count;
        Poll::Ready(Ok(count > 0))
    }

    /// Room for one reading more. It is filled with zeros when it grows and not before each reading.
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
/// So much of a buffer is kept when it is empty.
const KEPT: usize = 64 * 1024;
