//! A byte stream in memory with the test at its other end.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Both directions of one connection; clones are the same connection.
#[derive(Clone, Default)]
pub(super) struct Wire(Arc<Mutex<Bytes>>);

#[derive(Default)]
pub(super) struct Bytes {
    /// What the client wrote and the server has not taken.
    pub(super) to_server: Vec<u8>,
    /// What the client can read.
    pub(super) to_client: VecDeque<u8>,
    pub(super) is_cut: bool,
}

impl Wire {
    pub(super) fn lock(&self) -> MutexGuard<'_, Bytes> {
        self.0.lock().expect("no test panics while it has the bytes")
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut bytes = self.lock();
        // Nobody is woken: the search polls every user after each step.
        if bytes.to_client.is_empty() && !bytes.is_cut {
            return Poll::Pending;
        }
        let count = bytes.to_client.len().min(buffer.remaining());
        bytes.to_client.drain(..count).for_each(|byte| buffer.put_slice(&[byte]));
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        written: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut bytes = self.lock();
        if bytes.is_cut {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        bytes.to_server.extend_from_slice(written);
        Poll::Ready(Ok(written.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
