//! The value of a lock's key, byte for byte: other programs write what is no text, too. Owns how it
//! is read, shown, and deleted only where it is the same.

use std::fmt::Write as _;

use quorlock::embed::alters_line;
use quorlock::{Fault, FaultKind, ServerConnection, ServerReply};

use crate::refusal::{is_not_permitted, is_unknown_command};

/// A value. Two of them are equal if all their bytes are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Value {
    /// All of it, or the beginning of one that is longer than [`READ`].
    bytes: Vec<u8>,
    length: usize,
    /// The SHA-1 of one that is longer, or else empty.
    digest: String,
}

impl Value {
    /// The script that describes the value of its key; [`Self::told`] reads the reply.
    pub(super) fn script() -> String {
        script("return told")
    }

    /// What a reply to [`Self::script`] says; `None` if there is no key. The error is what the server said.
    pub(super) fn told(reply: &ServerReply) -> Result<Option<Self>, String> {
        if *reply == ServerReply::Nothing {
            return Ok(None);
        }
        let [length, hex, digest] = reply.parts() else { return Err(words_of(reply)) };
        let length = length.number().and_then(|length| usize::try_from(length).ok());
        let value = length.zip(hex.text().and_then(unhex)).zip(digest.text());
        let value = value.map(|((length, bytes), digest)| Self {
            bytes,
            length,
            digest: digest.to_owned(),
        });
        value.map(Some).ok_or_else(|| words_of(reply))
    }

    /// What a reply to GET says, which cannot tell bytes that are no text.
    pub(super) fn told_as_text(reply: &ServerReply) -> Result<Option<Self>, String> {
        match reply {
            ServerReply::Nothing => Ok(None),
            ServerReply::Text(text) if text.contains(char::REPLACEMENT_CHARACTER) => {
                Err("the key's value is no text, which takes EVAL (+eval) to read".to_owned())
            }
            ServerReply::Text(text) => {
                let bytes = text.clone().into_bytes();
                Ok(Some(Self { length: bytes.len(), bytes, digest: String::new() }))
            }
            other => Err(words_of(other)),
        }
    }

    /// Deletes the key if this is its value; whether it was.
    pub(super) async fn delete(
        &self,
        connection: &mut ServerConnection,
        key: &str,
    ) -> Result<bool, Fault> {
        let (length, hex) = (self.length.to_string(), hex(&self.bytes));
        let words = ["EVAL", &script(DELETE), "1", key, &length, &hex, &self.digest];
        let reply = connection.ask(&words).await?;
        match reply.refusal() {
            Some(words) => Err(Fault::new(FaultKind::Other, words)),
            None => Ok(reply.number() == Some(1)),
        }
    }

    /// The text that it is, if it is one and was read to its end.
    pub(super) fn text(&self) -> Option<&str> {
        let is_whole = self.length == self.bytes.len();
        std::str::from_utf8(&self.bytes).ok().filter(|_| is_whole)
    }

    /// The value for programs: a text as it is.
    pub(super) fn for_programs(&self) -> String {
        self.text().map_or_else(|| self.to_string(), str::to_owned)
    }

    /// The beginning, which tells values apart; `limit` is in characters.
    pub(super) fn shortened(&self, limit: usize) -> String {
        match self.text().filter(|text| !text.is_empty()) {
            Some(text) if text.chars().nth(limit).is_some() => {
                format!("{}...", escaped(text.chars().take(limit).collect::<String>().as_bytes()))
            }
            Some(text) => escaped(text.as_bytes()),
            None if self.bytes.len() > limit => format!("{}...", escaped(&self.bytes[..limit])),
            None => self.to_string(),
        }
    }
}

impl std::fmt::Display for Value {
    /// Without characters that a terminal would obey: others have written it.
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.length, &self.digest[..]) {
            (0, _) => to.write_str("an empty value"),
            (_, "") => to.write_str(&escaped(&self.bytes)),
            (length, digest) => {
                let begins = escaped(&self.bytes[..self.bytes.len().min(SHOWN)]);
                write!(to, "{begins}... ({length} bytes, SHA-1 {digest})")
            }
        }
    }
}

/// A text, with letters that would change how the line is shown, bytes that are no text, and the backslash as
/// in `\x1b`.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::new();
    let escape = |text: &mut String, bytes: &[u8]| {
        for byte in bytes {
            let _ = write!(text, "\\x{byte:02x}");
        }
    };
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            if letter == '\\' {
                text.push_str("\\\\");
            } else if alters_line(letter) {
                escape(&mut text, letter.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(letter);
            }
        }
        escape(&mut text, chunk.invalid());
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |letter: u8| char::from(letter).to_digit(16);
    let byte = |pair: &[u8]| match pair {
        [high, low] => u8::try_from(digit(*high)? * 16 + digit(*low)?).ok(),
        _ => None,
    };
    text.as_bytes().chunks(2).map(byte).collect()
}

fn words_of(reply: &ServerReply) -> String {
    reply.refusal().unwrap_or("it answered something else than a key").to_owned()
}

/// Whether a server refuses all scripts of this user.
pub(super) fn refuses_scripts(reply: &ServerReply) -> bool {
    reply.refusal().is_some_and(|words| {
        let is_of_eval = words.to_lowercase().contains("eval");
        is_of_eval && (is_not_permitted(words) || is_unknown_command(words))
    })
}

/// A script that describes the key's value, and then does `rest`.
fn script(rest: &str) -> String {
    format!(
        "local value = redis.pcall('GET', KEYS[1])
if type(value) ~= 'string' then return value end
local function hex(byte) return string.format('%02x', string.byte(byte)) end
local told = {{#value, (string.gsub(string.sub(value, 1, {READ}), '.', hex)), ''}}
if #value > {READ} then told[3] = redis.sha1hex(value) end
{rest}"
    )
}

const DELETE: &str =
    "if tostring(told[1]) == ARGV[1] and told[2] == ARGV[2] and told[3] == ARGV[3] then
  return redis.call('DEL', KEYS[1])
end
return 0";
/// How many bytes of a value are read, and so how large the records beside a lock may be: those of this library's are
/// smaller.
const READ: usize = 8192;
/// How many bytes of a value that is too large are shown.
const SHOWN: usize = 64;
