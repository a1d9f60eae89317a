//! A TCP proxy between a node and its server that loses what the test wants lost.
//!
//! Each fault is of the connections that are open when it begins; later ones are healthy.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::sleep;

/// A proxy on the runtime of the caller.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    port: AtomicU16,
    accepted: AtomicUsize,
    refuses: AtomicBool,
    closes_idle: AtomicBool,
    /// What servers send unasked to those that have subscribed is lost.
    loses_messages: AtomicBool,
    /// Connections up to this number lose what the server says.
    deaf: AtomicUsize,
    /// Connections up to this number carry nothing any more.
    stalled: AtomicUsize,
    /// Connections up to this number carry little at a time of what the server says.
    slow: AtomicUsize,
    /// The next connection stalls at its first extension.
    stalls_when_used: AtomicBool,
    /// Connections up to this number keep what the client says to themselves.
    held: watch::Sender<usize>,
    /// Connections up to this number are closed on the client's side.
    cut: watch::Sender<usize>,
    /// Connections up to the number carry this many more bytes from the client, and then are cut.
    allowance: Mutex<(usize, usize)>,
    /// What is done before the server can carry out a command with these words.
    ahead: Mutex<Option<Ahead>>,
    interjection: watch::Sender<Vec<u8>>,
    /// What the server's next words are replaced with.
    replacement: Mutex<Option<Vec<u8>>>,
}

type Ahead = (String, Box<dyn FnOnce() + Send>);

impl Proxy {
    pub async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            port: AtomicU16::new(port),
            accepted: AtomicUsize::new(0),
            refuses: AtomicBool::new(false),
            closes_idle: AtomicBool::new(false),
            loses_messages: AtomicBool::new(false),
            deaf: AtomicUsize::new(0),
            stalled: AtomicUsize::new(0),
            slow: AtomicUsize::new(0),
            stalls_when_used: AtomicBool::new(false),
            held: watch::Sender::new(0),
            cut: watch::Sender::new(0),
            ahead: Mutex::default(),
            interjection: watch::Sender::default(),
            allowance: Mutex::default(),
            replacement: Mutex::default(),
        });
        tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { address, shared }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// How many connections there have been.
    pub fn accepted(&self) -> usize {
        self.shared.accepted.load(SeqCst)
    }

    /// New connections lead to another server.
    pub fn lead_to(&self, port: u16) {
        self.shared.port.store(port, SeqCst);
    }

    pub fn lose_replies(&self) {
        self.shared.deaf.store(self.accepted(), SeqCst);
    }

    pub fn stall(&self) {
        self.shared.stalled.store(self.accepted(), SeqCst);
    }

    /// What the server says comes slowly, but comes.
    pub fn slow_down(&self) {
        self.shared.slow.store(self.accepted(), SeqCst);
    }

    /// The first connection that carries more than a log-in stalls then.
    pub fn stall_when_used(&self) {
        self.shared.stalls_when_used.store(true, SeqCst);
    }

    /// Whether [`Self::stall_when_used`] has come to pass.
    pub fn has_stalled(&self) -> bool {
        !self.shared.stalls_when_used.load(SeqCst)
    }

    /// What the client says reaches the server only after [`Self::release`], even if the client has
    /// hung up in the meantime.
    pub fn hold(&self) {
        self.shared.held.send_replace(self.accepted());
    }

    pub fn release(&self) {
        self.shared.held.send_replace(0);
    }

    /// Does `deed` once, when a client has said `words` and before the server hears all of them: nothing that the
    /// client knows of the deed can come before them.
    pub fn ahead_of(&self, words: &str, deed: impl FnOnce() + Send + 'static) {
        *self.shared.ahead.lock().expect("no panic") = Some((words.to_owned(), Box::new(deed)));
    }

    pub fn cut(&self) {
        self.shared.cut.send_replace(self.accepted());
    }

    /// The server gets this many more bytes, and does what they say; then the connection is cut.
    pub fn cut_after(&self, bytes: usize) {
        *self.shared.allowance.lock().expect("no panic") = (self.accepted(), bytes);
    }

    /// Connections are closed as soon as nothing is said for a while.
    pub fn close_idle(&self, closes: bool) {
        self.shared.closes_idle.store(closes, SeqCst);
    }

    /// What servers send unasked, of messages and of changed keys, is lost.
    pub fn lose_messages(&self, loses: bool) {
        self.shared.loses_messages.store(loses, SeqCst);
    }

    /// New connections are closed at once.
    pub fn refuse(&self, refuses: bool) {
        self.shared.refuses.store(refuses, SeqCst);
    }

    /// Says something to the client that it has not asked for.
    pub fn interject(&self, bytes: &[u8]) {
        self.shared.interjection.send_replace(bytes.to_vec());
    }

    pub fn replace_next_reply(&self, bytes: &[u8]) {
        *self.shared.replacement.lock().expect("no panic") = Some(bytes.to_vec());
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let number = shared.accepted.fetch_add(1, SeqCst) + 1;
        if !shared.refuses.load(SeqCst) {
            tokio::spawn(carry(client, number, Arc::clone(&shared)));
        }
    }
}

async fn carry(client: TcpStream, number: usize, shared: Arc<Shared>) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", shared.port.load(SeqCst))).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut cut = shared.cut.subscribe();
    let up = tokio::spawn(upwards(from_client, to_server, number, Arc::clone(&shared)));
    tokio::select! {
        () = downwards(from_server, to_client, number, &shared) => {}
        _ = cut.wait_for(|cut| *cut >= number) => {}
    }
    if *shared.held.borrow() < number {
        up.abort();
    }
}

async fn upwards(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    number: usize,
    shared: Arc<Shared>,
) {
    let mut held = shared.held.subscribe();
    let mut buffer = [0; 4096];
    let mut before = Vec::new();
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        before = shared.do_ahead_of([&before, &buffer[..count]].concat(), count);
        let has = |words: &[u8]| buffer[..count].windows(words.len()).any(|window| window == words);
        let is_used = has(b"EVALSHA") || has(b"\r\nSET\r\n");
        if is_used && shared.stalls_when_used.swap(false, SeqCst) {
            shared.stalled.store(number, SeqCst);
        }
        if shared.stalled.load(SeqCst) >= number {
            continue;
        }
        // A closed channel or connection ends the test program's interest in it.
        let _ = held.wait_for(|held| *held < number).await;
        let passes = shared.pass(number, count);
        if to.write_all(&buffer[..passes]).await.is_err() {
            return;
        }
        if passes < count {
            // For the server to have done what it can.
            sleep(Duration::from_millis(2)).await;
            shared.cut.send_replace(number);
        }
    }
}

impl Shared {
    /// Does what is to be done ahead of words that end in the last `count` bytes of `said`; returns these bytes.
    fn do_ahead_of(&self, mut said: Vec<u8>, count: usize) -> Vec<u8> {
        let mut ahead = self.ahead.lock().expect("no panic");
        let is_said = |(words, _): &mut Ahead| {
            said.windows(words.len()).any(|window| window == words.as_bytes())
        };
        if let Some((_, deed)) = ahead.take_if(is_said) {
            deed();
        }
        said.split_off(said.len() - count)
    }

    /// How many of `count` bytes may pass.
    fn pass(&self, number: usize, count: usize) -> usize {
        let mut allowance = self.allowance.lock().expect("no panic");
        let (last, left) = &mut *allowance;
        if number > *last {
            return count;
        }
        let passes = count.min(*left);
        *left -= passes;
        passes
    }
}

async fn downwards(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    number: usize,
    shared: &Shared,
) {
    let mut buffer = [0; 4096];
    let mut interjection = shared.interjection.subscribe();
    loop {
        let count = tokio::select! {
            Ok(count @ 1..) = from.read(&mut buffer) => count,
            Ok(()) = interjection.changed() => {
                let words = interjection.borrow_and_update().clone();
                buffer[..words.len()].copy_from_slice(&words);
                words.len()
            }
            () = sleep(Duration::from_millis(3)), if shared.closes_idle.load(SeqCst) => return,
            else => return,
        };
        let is_lost = [&shared.stalled, &shared.deaf].iter().any(|it| it.load(SeqCst) >= number);
        if is_lost {
            continue;
        }
        let replacement = shared.replacement.lock().expect("no panic").take();
        let bytes = replacement.unwrap_or_else(|| buffer[..count].to_vec());
        let bytes =
            if shared.loses_messages.load(SeqCst) { without_messages(bytes) } else { bytes };
        let is_slow = || shared.slow.load(SeqCst) >= number;
        for piece in bytes.chunks(if is_slow() { 64 } else { bytes.len().max(1) }) {
            if to.write_all(piece).await.is_err() {
                return;
            }
            if is_slow() {
                sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// What is left of what a server says without what it sends unasked: RESP3's `>`, up to the reply behind it.
fn without_messages(mut bytes: Vec<u8>) -> Vec<u8> {
    for head in [&b">3\r\n$7\r\nmessage\r\n"[..], b">2\r\n$10\r\ninvalidate\r\n"] {
        while let Some(begin) = bytes.windows(head.len()).position(|window| window == head) {
            let behind = begin + head.len();
            // Of the lines behind it, a length and a text come together.
            let lines = if head[1] == b'3' { 4 } else { 3 };
            let ends = bytes[behind..].iter().enumerate().filter(|(_, byte)| **byte == b'\n');
            let end = ends.map(|(at, _)| behind + at + 1).nth(lines - 1).unwrap_or(bytes.len());
            bytes.drain(begin..end);
        }
    }
    bytes
}

/// A server that says `words` to everybody for ever, or nothing if there are none.
pub async fn babbler(words: &'static [u8]) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut from, mut to) = client.split();
                let talk =
                    async { while !words.is_empty() && to.write_all(words).await.is_ok() {} };
                let listen = async { copy(&mut from, &mut tokio::io::sink()).await };
                if words.is_empty() {
                    let _ = listen.await;
                } else {
                    tokio::select! { () = talk => {} _ = listen => {} }
                }
            });
        }
    });
    format!("redis://{address}")
}

/// A server that says `words` to everybody before it is asked, and hangs up or waits.
pub async fn greeter(words: &'static [u8], hangs_up: bool) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(async move {
        let mut waiting = Vec::new();
        while let Ok((mut client, _)) = listener.accept().await {
            client.write_all(words).await.expect("a new connection takes words");
            if !hangs_up {
                waiting.push(client);
            }
        }
    });
    format!("redis://{address}")
}
