//! Opens the byte stream to a node: TCP, TLS or a unix socket. Knows no Redis.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};
use quorlock_protocol::{Fault, FaultKind};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{faults, tls};
use crate::address::{Address, Place};

/// A byte stream, whatever is below it.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Opens the stream to `address`. The caller sets the deadline.
pub(super) async fn open(address: &Address) -> Result<Box<dyn Stream>, Fault> {
    match address.place() {
        Place::Tcp { host, port } => {
            let tcp = open_tcp(host, *port).await.map_err(|error| unreachable_at(&error))?;
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
        _ => Err(Fault::new(FaultKind::NotSent, "this kind of address has no connection")),
    }
}

/// Tries the addresses of `host` in their order. The next one is tried when the one before has failed
/// or taken long, so that a host whose IPv6 leads nowhere is reached by IPv4 all the same.
async fn open_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut addresses =
        tokio::net::lookup_host((host, port)).await?.collect::<Vec<_>>().into_iter();
    let mut attempts = FuturesUnordered::new();
    let mut failure = io::Error::other("the host name has no address");
    loop {
        match addresses.next() {
            Some(address) => attempts.push(TcpStream::connect(address)),
            None if attempts.is_empty() => return Err(failure),
            None => {}
        }
        let patience = if addresses.len() > 0 { NEXT_ADDRESS_AFTER } else { Duration::MAX };
        match timeout(patience, attempts.next()).await {
            Ok(Some(Ok(stream))) if is_to_itself(&stream) => {
                failure = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(Some(Ok(stream))) => return tune(stream),
            Ok(Some(Err(error))) => failure = error,
            Ok(None) | Err(_) => {}
        }
    }
}

/// Whoever connects to a port of his own machine where nobody listens may get that port for his own end,
/// and is connected to himself. While that lasts, no server could be started there.
fn is_to_itself(stream: &TcpStream) -> bool {
    matches!((stream.local_addr(), stream.peer_addr()), (Ok(own), Ok(other)) if own == other)
}

fn tune(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    let keepalive =
        TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_INTERVAL);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(GIVEN_UP_AFTER))?;
    Ok(stream)
}

fn unreachable_at(error: &io::Error) -> Fault {
    Fault::new(FaultKind::NotSent, format!("cannot connect: {}", faults::io_words(error)))
}

/// How many bytes the other side may still send: what was asked for, and not a byte more.
///
/// Whoever reads keeps what belongs to an unfinished reply, so that a server that never finishes one
/// could fill the memory; and it throws away what was not asked for, so that a server which is no
/// Redis would go unnoticed.
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

    /// One more reply is asked for.
    pub(super) fn grow(&self) {
        let left = self.0.left.load(Ordering::Relaxed) + Self::PER_REPLY;
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
/// Nothing is read before the first call was written: a server that refuses a connection may say why
/// and hang up without having heard a word, and that is to be taken for the reply to the first call.
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

/// How long one address of several is waited for before the next one is tried as well.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(200);
/// An idle connection is probed by the kernel after this time...
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
/// ...and so often.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes that the other machine does not acknowledge for so long end the connection.
#[cfg(any(target_os = "linux", target_os = "android"))]
const GIVEN_UP_AFTER: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[test]
    fn nothing_is_read_before_the_first_write() {
        let (ours, mut theirs) = duplex(64);
        let allowance = Allowance::default();
        allowance.grow();
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
        allowance.grow();
        theirs.write_all(&vec![0; Allowance::PER_REPLY + 1]).now_or_never().unwrap().unwrap();
        let mut buffer = vec![0; Allowance::PER_REPLY];
        assert!(metered.read_exact(&mut buffer).now_or_never().unwrap().is_ok());
        assert!(!allowance.is_exceeded());
        let error = metered.read(&mut buffer).now_or_never().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
        assert!(allowance.is_exceeded());
        // A reply that has come gives back what it did not use, but no more than is fair.
        allowance.renew(2);
        assert!(allowance.take(2 * Allowance::PER_REPLY).is_ok());
        assert!(allowance.take(1).is_err());
        allowance.renew(usize::MAX);
        assert!(allowance.take(Allowance::MAX + 1).is_err());
    }
}
