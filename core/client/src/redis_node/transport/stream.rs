//! Opens the byte stream to a server: TCP, TLS or a unix socket. Knows nothing of Redis.

use std::io;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use quorlock_protocol::{Fault, FaultKind};
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{faults, tls};
use crate::address::{Address, Place};

/// A byte stream: TCP, TLS over TCP, or a unix socket.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// An open stream.
pub(crate) struct Opened {
    pub(crate) stream: Box<dyn Stream>,
    /// The server's certificate in DER, if TLS is spoken.
    pub(crate) certificate: Option<Vec<u8>>,
}

impl Opened {
    fn plain(stream: impl Stream + 'static) -> Self {
        Self { stream: Box::new(stream), certificate: None }
    }
}

/// A connection over which nothing was sent yet.
pub(crate) enum Socket {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(tokio::net::UnixStream),
}

/// Opens the stream to `address`. The caller sets the deadline.
pub(crate) async fn open(address: &Address) -> Result<Opened, Fault> {
    secure(address, connect(address).await?).await
}

/// Connects to `address`: whether the server answers is not known then.
pub(crate) async fn connect(address: &Address) -> Result<Socket, Fault> {
    match address.place() {
        Place::Tcp { host, port } => {
            let tcp = open_tcp(host, *port).await;
            tcp.map(Socket::Tcp).map_err(|error| unreachable_at(&error))
        }
        #[cfg(unix)]
        Place::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path).await;
            stream.map(Socket::Unix).map_err(|error| unreachable_at(&error))
        }
        _ => Err(Fault::new(FaultKind::NotSent, "this kind of address has no connection")),
    }
}

/// The stream over a connection to `address`, with TLS if that is wanted.
pub(crate) async fn secure(address: &Address, socket: Socket) -> Result<Opened, Fault> {
    let tcp = match socket {
        Socket::Tcp(tcp) => tcp,
        #[cfg(unix)]
        Socket::Unix(stream) => return Ok(Opened::plain(stream)),
    };
    match (address.tls(), address.place()) {
        (Some(options), Place::Tcp { host, .. }) => {
            let stream = tls::handshake(options, host, tcp).await?;
            let certificate = tls::certificate(&stream);
            Ok(Opened { stream: Box::new(stream), certificate })
        }
        _ => Ok(Opened::plain(tcp)),
    }
}

/// Tries the addresses of `host` in order. The next one is tried when the one before has failed or
/// takes long, so that a host without a working IPv6 route is reached by IPv4.
async fn open_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut addresses =
        tokio::net::lookup_host((host, port)).await?.collect::<Vec<_>>().into_iter();
    let mut connecting = FuturesUnordered::new();
    let mut failure = io::Error::other("the host name has no address");
    loop {
        match addresses.next() {
            Some(address) => connecting.push(TcpStream::connect(address)),
            None if connecting.is_empty() => return Err(failure),
            None => {}
        }
        let patience = if addresses.len() > 0 { NEXT_ADDRESS_AFTER } else { Duration::MAX };
        match timeout(patience, connecting.next()).await {
            Ok(Some(Ok(stream))) if is_to_itself(&stream) => {
                failure = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(Some(Ok(stream))) => return tune(stream),
            Ok(Some(Err(error))) => failure = error,
            Ok(None) | Err(_) => {}
        }
    }
}

/// A connection to a local port on which nothing listens can be given that very port as its own
/// end, and is then connected to itself. As long as it lasts, no server can be started on that
/// port.
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

/// How long one address of several is waited for before the next one is tried as well.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(200);
/// The kernel probes a connection that has been idle for this time,
const KEEPALIVE_AFTER: Duration = Duration::from_secs(15);
/// and again after each of these intervals.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);
/// Bytes that the other machine does not acknowledge within this time end the connection.
#[cfg(any(target_os = "linux", target_os = "android"))]
const GIVEN_UP_AFTER: Duration = Duration::from_secs(30);
