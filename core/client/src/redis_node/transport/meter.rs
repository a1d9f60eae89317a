//! Limits how many bytes are read from a server to the most that its replies can take. Knows
//! nothing of Redis.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::Stream;

/// How many bytes the other side may still send: as many as were asked for.
///
/// The bytes of an unfinished reply are kept in memory, so a server that never finishes one could
/// fill the memory. And a server that is not Redis is detected by bytes that were not asked for.
#[derive(Clone, Default)]
pub(super) struct Allowance(Arc<Account>);

#[derive(Default)]
struct Account {
    left: AtomicUsize,
    is_exceeded: AtomicBool,
}

impl Allowance {
    /// More than any reply of ours or error message takes.
    const PER_REPLY: usize = 64 * 1024;
    /// More than all replies that are outstanding at once take together.
    const MAX: usize = 16 * 1024 * 1024;

    /// This many more replies were asked for.
    pub(super) fn grow(&self, replies: usize) {
        let more = replies.saturating_mul(Self::PER_REPLY);
        let left = self.0.left.load(Ordering::Relaxed).saturating_add(more);
        self.0.left.store(left.min(Self::MAX), Ordering::Relaxed);
    }

    /// A whole reply has come; `outstanding` are still to come.
    pub(super) fn renew(&self, outstanding: usize) {
        let fair = outstanding.saturating_mul(Self::PER_REPLY);
        self.0.left.store(fair.min(Self::MAX), Ordering::Relaxed);
    }

    /// Whether the other side has sent more than it was allowed.
    pub(super) fn is_exceeded(&self) -> bool {
        self.0.is_exceeded.load(Ordering::Relaxed)
    }

    fn take(&self, count: usize) -> io::Result<()> {
        let left = self.0.left.load(Ordering::Relaxed);
        self.0.left.store(left.saturating_sub(count), Ordering::Relaxed);
        if count <= left {
            return Ok(());
        }
        self.0.is_exceeded.store(true, Ordering::Relaxed);
        Err(io::Error::new(io::ErrorKind::InvalidData, "more than was asked for"))
    }
}

/// A stream that ends with an error when the other side sends more than its [`Allowance`].
///
/// Nothing is read before the first call was written: a server that refuses a connection may say
/// why and close it without reading anything, and that text must count as the reply to the first
/// call.
pub(super) struct Metered {
    inner: Box<dyn Stream>,
    allowance: Allowance,
    has_written: bool,
    reader: Option<Waker>,
}

impl Metered {
    pub(super) fn new(inner: Box<dyn Stream>, allowance: Allowance) -> Self {
        Self { inner, allowance, has_written: false, reader: None }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.has_written {
            self.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        Poll::Ready(self.allowance.take(buffer.filled().len() - before))
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.has_written = true;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[test]
    fn nothing_is_read_before_the_first_write() {
        let (ours, mut theirs) = duplex(64);
        let allowance = Allowance::default();
        allowance.grow(1);
        let (mut reader, mut writer) = tokio::io::split(Metered::new(Box::new(ours), allowance));
        theirs.write_all(b"-ERR full").now_or_never().unwrap().unwrap();
        let mut buffer = [0; 16];
        assert!(reader.read(&mut buffer).now_or_never().is_none());
        writer.write_all(b"PING").now_or_never().unwrap().unwrap();
        let count = reader.read(&mut buffer).now_or_never().unwrap().unwrap();
        assert_eq!(&buffer[..count], b"-ERR full");
    }

    #[test]
    fn no_more_is_read_than_was_asked_for() {
        let (ours, mut theirs) = duplex(1024 * 1024);
        let allowance = Allowance::default();
        let mut metered = Metered::new(Box::new(ours), allowance.clone());
        metered.write_all(b"PING").now_or_never().unwrap().unwrap();
        allowance.grow(1);
        theirs.write_all(&vec![0; Allowance::PER_REPLY + 1]).now_or_never().unwrap().unwrap();
        let mut buffer = vec![0; Allowance::PER_REPLY];
        assert!(metered.read_exact(&mut buffer).now_or_never().unwrap().is_ok());
        assert!(!allowance.is_exceeded());
        let error = metered.read(&mut buffer).now_or_never().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(allowance.is_exceeded());
        // A reply that has come returns the unused part of its allowance, up to the limit.
        allowance.renew(2);
        assert!(allowance.take(2 * Allowance::PER_REPLY).is_ok());
        assert!(allowance.take(1).is_err());
        allowance.renew(usize::MAX);
        assert!(allowance.take(Allowance::MAX + 1).is_err());
    }
}
