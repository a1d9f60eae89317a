//! The simplest client there is: one call, one reply, as text. The tests look at servers with it.

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
        Some(Self {
            stream: BufReader::new(stream),
        })
    }

    /// Whether it answers, even if only to say that a password is wanted.
    pub fn is_alive(&mut self) -> bool {
        let reply = self.call(&["PING"]);
        reply == "PONG" || reply.starts_with("NOAUTH")
    }

    /// The reply as text: errors as they are, `(nil)`, arrays with spaces between their items.
    pub fn call(&mut self, words: &[&str]) -> String {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n{word}\r\n", word.len()).into_bytes());
        }
        self.stream
            .get_mut()
            .write_all(&bytes)
            .expect("the server takes the call");
        self.read()
    }

    pub fn number(&mut self, words: &[&str]) -> i64 {
        let reply = self.call(words);
        reply
            .parse()
            .unwrap_or_else(|_| panic!("{words:?} replied {reply}"))
    }

    fn read(&mut self) -> String {
        let mut line = String::new();
        self.stream
            .read_line(&mut line)
            .expect("the server replies");
        let (kind, rest) = line.trim_end().split_at_checked(1).unwrap_or_default();
        match kind {
            "$" | "*" if rest == "-1" => "(nil)".to_owned(),
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().expect("a length") + 2];
                self.stream
                    .read_exact(&mut bytes)
                    .expect("the rest of the reply");
                bytes.truncate(bytes.len() - 2);
                String::from_utf8(bytes).expect("a reply in UTF-8")
            }
            "*" => {
                let count: usize = rest.parse().expect("a length");
                (0..count)
                    .map(|_| self.read())
                    .collect::<Vec<_>>()
                    .join(" ")
            }
            _ => rest.to_owned(),
        }
    }
}
