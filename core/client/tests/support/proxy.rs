//! A TCP proxy between a node and its server that loses what the test wants lost.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What is done to the connections.
#[derive(Default)]
pub struct Faults {
    /// Replies of the server are dropped.
    pub deaf: AtomicBool,
    /// Neither side hears the other, but no connection is closed.
    pub stalled: AtomicBool,
    /// New connections are closed at once.
    pub refusing: AtomicBool,
    /// How many bytes the server has received through it.
    pub sent: AtomicUsize,
    /// How many connections were accepted.
    pub accepted: AtomicUsize,
}

/// A proxy to `target`, on the runtime of the caller.
pub struct Proxy {
    address: SocketAddr,
    faults: Arc<Faults>,
    cuts: watch::Sender<u32>,
}

impl Proxy {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a free port");
        let address = listener.local_addr().expect("its address");
        let faults = Arc::new(Faults::default());
        let (cuts, cut) = watch::channel(0);
        tokio::spawn(accept(listener, port, Arc::clone(&faults), cut));
        Self {
            address,
            faults,
            cuts,
        }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// From now on the server's replies are lost.
    pub fn lose_replies(&self, lost: bool) {
        self.faults.deaf.store(lost, Ordering::SeqCst);
    }

    /// From now on the open connections carry nothing; new ones do.
    pub fn stall_open_connections(&self) {
        self.faults.stalled.store(true, Ordering::SeqCst);
    }

    /// Closes every open connection on the client's side, and on the server's.
    pub fn cut(&self) {
        self.cuts.send_modify(|count| *count += 1);
    }

    pub fn refuse_connections(&self, refuses: bool) {
        self.faults.refusing.store(refuses, Ordering::SeqCst);
    }

    pub fn accepted(&self) -> usize {
        self.faults.accepted.load(Ordering::SeqCst)
    }

    pub fn bytes_sent(&self) -> usize {
        self.faults.sent.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, port: u16, faults: Arc<Faults>, cut: watch::Receiver<u32>) {
    while let Ok((client, _)) = listener.accept().await {
        if faults.refusing.load(Ordering::SeqCst) {
            continue;
        }
        faults.accepted.fetch_add(1, Ordering::SeqCst);
        // A stall is of the connections that were open when it began.
        let healthy = !faults.stalled.load(Ordering::SeqCst);
        let (faults, mut cut) = (Arc::clone(&faults), cut.clone());
        cut.mark_unchanged();
        tokio::spawn(async move {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
                return;
            };
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            tokio::select! {
                _ = upwards(from_client, to_server, &faults, healthy) => {}
                _ = downwards(from_server, to_client, &faults, healthy) => {}
                _ = cut.changed() => {}
            }
        });
    }
}

async fn upwards(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    faults: &Faults,
    healthy: bool,
) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        if healthy && faults.stalled.load(Ordering::SeqCst) {
            continue;
        }
        to.write_all(&buffer[..count]).await?;
        faults.sent.fetch_add(count, Ordering::SeqCst);
    }
}

async fn downwards(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    faults: &Faults,
    healthy: bool,
) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let count = from.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        let is_stalled = healthy && faults.stalled.load(Ordering::SeqCst);
        if !is_stalled && !faults.deaf.load(Ordering::SeqCst) {
            to.write_all(&buffer[..count]).await?;
        }
    }
}
