//! Opens the byte stream to a node: TCP, TLS or a unix socket. Knows no Redis.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use quorlock_protocol::{Fault, FaultKind};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::{faults, tls};
use crate::address::{Address, Place};

/// A byte stream, whatever is below it.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens the stream to `address`. The caller sets the deadline.
pub(super) async fn open(address: &Address) -> Result<Box<dyn Stream>, Fault> {
    match address.place() {
        Place::Tcp { host, port } => {
            let tcp = open_tcp(host, *port)
                .await
                .map_err(|error| unreachable_at(&error))?;
            match address.tls() {
                Some(options) => Ok(Box::new(tls::handshake(options, host, tcp).await?)),
                None => Ok(Box::new(tcp)),
            }
        }
        #[cfg(unix)]
        Place::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path).await;
            Ok(Box::new(stream.map_err(|error| unreachable_at(&error))?))
        }
        _ => Err(Fault::new(
            FaultKind::NotSent,
            "this kind of address has no connection",
        )),
    }
}

async fn open_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut failure = None;
    for address in tokio::net::lookup_host((host, port)).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                tune(&stream)?;
                return Ok(stream);
            }
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| io::Error::other("the host name has no address")))
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE_AFTER)
        .with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(GIVEN_UP_AFTER))?;
    Ok(())
}

fn unreachable_at(error: &io::Error) -> Fault {
    Fault::new(
        FaultKind::NotSent,
        format!("cannot connect: {}", faults::io_words(error)),
    )
}

/// How many bytes the other side may still send: what was asked for, and a margin.
///
/// The reader below keeps what belongs to an unfinished reply, so that a server that never finishes
/// one could fill the memory.
#[derive(Clone)]
pub(super) struct Allowance(Arc<AtomicUsize>);

impl Default for Allowance {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(Self::fair(0))))
    }
}

impl Allowance {
    /// More than any reply of ours or error message takes.
    const PER_REPLY: usize = 16 * 1024;
    /// More than all replies that are outstanding at once take together.
    const MAX: usize = 16 * 1024 * 1024;

    /// One more reply is asked for.
    pub(super) fn grow(&self) {
        let left = self.0.load(Ordering::Relaxed);
        self.0
            .store(Self::MAX.min(left + Self::PER_REPLY), Ordering::Relaxed);
    }

    /// A whole reply has come; `outstanding` are still to come.
    pub(super) fn renew(&self, outstanding: usize) {
        self.0.store(Self::fair(outstanding), Ordering::Relaxed);
    }

    fn fair(outstanding: usize) -> usize {
        Self::MAX.min((outstanding + 4) * Self::PER_REPLY)
    }

    fn take(&self, count: usize) -> bool {
        let left = self.0.load(Ordering::Relaxed);
        self.0.store(left.saturating_sub(count), Ordering::Relaxed);
        count <= left
    }
}

/// A stream that ends with an error when the other side sends more than its [`Allowance`].
pub(super) struct Metered {
    inner: Box<dyn Stream>,
    allowance: Allowance,
}

impl Metered {
    pub(super) fn new(inner: Box<dyn Stream>, allowance: Allowance) -> Self {
        Self { inner, allowance }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.inner).poll_read(context, buffer);
        if self.allowance.take(buffer.filled().len() - before) {
            result
        } else {
            Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "more than was asked for",
            )))
        }
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// An idle connection is probed by the kernel after this time...
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
/// ...and so often.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes that the other machine does not acknowledge for so long end the connection.
#[cfg(any(target_os = "linux", target_os = "android"))]
const GIVEN_UP_AFTER: Duration = Duration::from_secs(30);
