//! The simplest client: one call, one reply, as text. Tests use it to look at servers.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A blocking connection.
pub struct Ask {
    stream: BufReader<UnixStream>,
}

impl Ask {
    pub fn unix(path: &Path) -> Self {
        Self::try_unix(path).expect("the server's socket can be connected to")
    }

    pub fn try_unix(path: &Path) -> Option<Self> {
        let stream = UnixStream::connect(path).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        Some(Self { stream: BufReader::new(stream) })
    }

    /// Whether it answers, even if only to say that a password is wanted.
    pub fn is_alive(&mut self) -> bool {
        let reply = self.try_call(&["PING"]);
        reply.is_some_and(|reply| reply == "PONG" || reply.starts_with("NOAUTH"))
    }

    /// The reply as text: errors as they are, `(nil)`, arrays with spaces between their items.
    pub fn call(&mut self, words: &[&str]) -> String {
        self.try_call(words).unwrap_or_else(|| panic!("no reply to {words:?}"))
    }

    pub fn try_call(&mut self, words: &[&str]) -> Option<String> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
        }
        self.stream.get_mut().write_all(&bytes).ok()?;
        self.read()
    }

    pub fn number(&mut self, words: &[&str]) -> i64 {
        let reply = self.call(words);
        reply.parse().unwrap_or_else(|_| panic!("{words:?} replied {reply}"))
    }

    fn read(&mut self) -> Option<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line).ok().filter(|count| *count > 0)?;
        let (kind, rest) = line.trim_end().split_at_checked(1)?;
        match kind {
            "$" | "*" if rest == "-1" => Some("(nil)".to_owned()),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().ok()? + 2];
                self.stream.read_exact(&mut bytes).ok()?;
                bytes.truncate(bytes.len() - 2);
                String::from_utf8(bytes).ok()
            }
            "*" => {
                let items: Option<Vec<_>> = (0..rest.parse().ok()?).map(|_| self.read()).collect();
                Some(items?.join(" "))
            }
            _ => Some(rest.to_owned()),
        }
    }
}
