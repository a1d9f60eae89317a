//! A hostile server: it speaks Redis until it attacks, in one of several ways. Knows no lock, and
//! grants everything before the attack.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorlock::Redlock;

/// When it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strikes {
    /// As soon as somebody has connected and said something.
    AtOnce,
    /// At the first command that is about a lock.
    AfterLogin,
    /// At the first lock that is asked for without a script: a client that knows the clock of a server, from an
    /// earlier grant, does so.
    AfterAGrant,
}

/// What it does then.
#[derive(Clone, Debug)]
pub enum Attack {
    /// Says this and then nothing more; the connection stays open.
    Says(Vec<u8>),
    /// Says this, and hangs up.
    SaysAndLeaves(Vec<u8>),
    /// Says this for every command, as fast as they come.
    AlwaysSays(Vec<u8>),
    /// Says the first once and the second without end, until a gigabyte is through.
    Floods(Vec<u8>, Vec<u8>),
    /// Sends this, one byte at a time, with this time between two.
    Drips(Vec<u8>, Duration),
}

/// One such server on a port of this machine; it ends when it is dropped.
pub struct HostileServer {
    port: u16,
    shared: Arc<Shared>,
}

struct Shared {
    strikes: Strikes,
    attack: Attack,
    is_over: AtomicBool,
    struck: AtomicUsize,
    most_said: AtomicUsize,
}

impl HostileServer {
    pub fn new(strikes: Strikes, attack: Attack) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared {
            strikes,
            attack,
            is_over: AtomicBool::new(false),
            struck: AtomicUsize::new(0),
            most_said: AtomicUsize::new(0),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if accepting.is_over.load(Ordering::Relaxed) {
                    return;
                }
                let shared = Arc::clone(&accepting);
                // An error means that the other side has hung up, as it should.
                thread::spawn(move || shared.serve(stream));
            }
        });
        Self { port, shared }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How often it has struck.
    pub fn struck(&self) -> usize {
        self.shared.struck.load(Ordering::Relaxed)
    }

    /// How many bytes went through at most before the other side hung up.
    pub fn most_said(&self) -> usize {
        self.shared.most_said.load(Ordering::Relaxed)
    }
}

impl Drop for HostileServer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

impl Shared {
    fn serve(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        // Whatever happens, a thread does not wait for ever for a client that does not read.
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        let mut stream = BufReader::new(stream);
        loop {
            let words = read_call(&mut stream)?;
            if let Some(reply) = self.polite_reply(&words) {
                stream.get_mut().write_all(reply.as_bytes())?;
                continue;
            }
            self.struck.fetch_add(1, Ordering::Relaxed);
            if !matches!(self.attack, Attack::AlwaysSays(_)) {
                return self.strike(stream.get_mut());
            }
            self.strike(stream.get_mut())?;
        }
    }

    fn polite_reply(&self, words: &[String]) -> Option<String> {
        let has_struck = self.struck.load(Ordering::Relaxed) > 0;
        match self.strikes {
            Strikes::AtOnce => None,
            Strikes::AfterAGrant if !has_struck => reply_to_login(words).or_else(|| granted(words)),
            Strikes::AfterLogin | Strikes::AfterAGrant => reply_to_login(words),
        }
    }

    fn strike(&self, stream: &mut TcpStream) -> io::Result<()> {
        match &self.attack {
            Attack::Says(bytes) => {
                stream.write_all(bytes)?;
                // Until the other side has had enough.
                io::copy(stream, &mut io::sink())?;
            }
            Attack::SaysAndLeaves(bytes) | Attack::AlwaysSays(bytes) => stream.write_all(bytes)?,
            Attack::Floods(first, rest) => {
                stream.write_all(first)?;
                let block = rest.repeat(1 + (64 << 10) / rest.len());
                let mut said = 0;
                while said < GIGABYTE && !self.is_over.load(Ordering::Relaxed) {
                    said += stream.write(&block)?;
                    self.most_said.fetch_max(said, Ordering::Relaxed);
                }
            }
            Attack::Drips(bytes, pause) => {
                for byte in bytes {
                    if self.is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    stream.write_all(&[*byte])?;
                    thread::sleep(*pause);
                }
            }
        }
        Ok(())
    }
}

fn read_call(stream: &mut BufReader<TcpStream>) -> io::Result<Vec<String>> {
    let count = read_length(stream)?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut bytes = vec![0; read_length(stream)? + 2];
        stream.read_exact(&mut bytes)?;
        bytes.truncate(bytes.len() - 2);
        words.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    Ok(words)
}

fn read_length(stream: &mut BufReader<TcpStream>) -> io::Result<usize> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    let number = line.trim_end().get(1..).and_then(|number| number.parse().ok());
    number.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// What a server would say to what belongs to logging in.
fn reply_to_login(words: &[String]) -> Option<String> {
    let word = |place: usize| words.get(place).map_or("", String::as_str);
    match (word(0), word(1)) {
        ("ROLE", _) => Some("*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_owned()),
        ("CLIENT", "INFO") => Some("$22\r\nid=1 addr=127.0.0.1:99\r\n".to_owned()),
        ("INFO", _) => Some("$21\r\nredis_version:7.4.0\r\n\r\n".to_owned()),
        ("SCRIPT", _) => Some(format!("$40\r\n{}\r\n", "a".repeat(40))),
        ("EVAL" | "EVALSHA" | "SET" | "ZADD" | "GET" | "TIME", _) => None,
        _ => Some("+OK\r\n".to_owned()),
    }
}

/// What a server would say to a script: all that is asked for is done.
fn granted(words: &[String]) -> Option<String> {
    let [name, _, keys, arguments @ ..] = words else {
        return None;
    };
    let arguments = arguments.get(keys.parse().unwrap_or(usize::MAX)..)?;
    // Of a grant: the canary's name and text, the holder, the ttl, the token.
    let token = arguments.get(4).map_or("0", String::as_str);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
    if words.iter().any(|word| word.ends_with(":fences")) && arguments.len() == 1 {
        // How long it is to be remembered.
        return Some(format!(":{time}\r\n"));
    }
    name.starts_with("EVAL").then(|| format!("*4\r\n:1\r\n:{token}\r\n:-2\r\n:{time}\r\n"))
}

/// What the servers need to have seen before they strike.
pub async fn gain_trust(strikes: Strikes, locks: &Redlock) {
    if strikes == Strikes::AfterAGrant {
        // Once, and with time enough: a server that has granted a round that was lost strikes already.
        let lock = locks.lock("warm-up").timeout(Duration::from_secs(20));
        lock.acquire().await.expect("they do no harm yet").release().await.expect("it was granted");
    }
}

/// As much as a flood has.
pub const GIGABYTE: usize = 1 << 30;
