//! What a server sends unasked over a wake connection. Owns how it is read; decides nothing.

use quorlock_protocol::{News, Waiter, WakeCause};
use redis::{PushInfo, PushKind, Value};

use crate::keys::WAKE_CHANNEL;

/// What a server sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Push {
    /// News for a waiter's place in the queue for a lock key.
    News { waiter: Waiter, news: News, lock_key: String },
    /// An empty message for a process, by which its client tests whether messages arrive.
    Test { process: u64 },
    /// These keys, which were read before, have changed since.
    Changed(Vec<String>),
    /// All keys have changed, as when they were all deleted.
    AllChanged,
}

impl Push {
    /// Reads what was sent; `None` if it says nothing to waiters.
    pub(super) fn read(push: PushInfo) -> Option<Self> {
        match (push.kind, push.data.as_slice()) {
            (PushKind::Message, [channel, text]) => {
                Self::read_message(words(channel)?, words(text)?)
            }
            (PushKind::Invalidate, [Value::Nil]) => Some(Self::AllChanged),
            (PushKind::Invalidate, [Value::Array(keys)]) => {
                Some(Self::Changed(keys.iter().filter_map(words).map(str::to_owned).collect()))
            }
            _ => None,
        }
    }

    /// Reads `word number lock key`, or nothing, on the channel of a process. Anybody may send there.
    fn read_message(channel: &str, text: &str) -> Option<Self> {
        let process = hex(channel.strip_prefix(WAKE_CHANNEL)?, 16)?;
        if text.is_empty() {
            return Some(Self::Test { process });
        }
        let mut parts = text.splitn(3, ' ');
        let news = match parts.next()? {
            "freed" => News::Freed(WakeCause::Push),
            "next" => News::Next,
            "first" => News::First,
            "ping" => News::Ping,
            _ => return None,
        };
        let number = u32::try_from(hex(parts.next()?, 8)?).ok()?;
        let lock_key = parts.next()?.to_owned();
        Some(Self::News { waiter: Waiter { process, number }, news, lock_key })
    }
}

/// Reads a number that is written in exactly this number of hex digits.
fn hex(text: &str, digits: usize) -> Option<u64> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex { u64::from_str_radix(text, 16).ok() } else { None }
}

fn words(value: &Value) -> Option<&str> {
    match value {
        Value::BulkString(bytes) => str::from_utf8(bytes).ok(),
        Value::SimpleString(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn message(channel: &str, text: &str) -> Option<Push> {
        Push::read(PushInfo { kind: PushKind::Message, data: vec![bulk(channel), bulk(text)] })
    }

    #[test]
    fn news_names_the_waiter_and_the_lock_key() {
        let waiter = Waiter { process: 0xab, number: 0x1f };
        let lock_key = || "app:a b {c}".to_owned();
        for (word, news) in [
            ("freed", News::Freed(WakeCause::Push)),
            ("next", News::Next),
            ("first", News::First),
            ("ping", News::Ping),
        ] {
            let text = format!("{word} 0000001f app:a b {{c}}");
            let read = message("quorlock:wake:00000000000000ab", &text);
            assert_eq!(read, Some(Push::News { waiter, news, lock_key: lock_key() }));
        }
    }

    #[test]
    fn an_empty_message_is_a_test() {
        let test = Some(Push::Test { process: 0xab });
        assert_eq!(message("quorlock:wake:00000000000000ab", ""), test);
        assert_eq!(message("quorlock:wake:ab", ""), None);
    }

    #[test]
    fn what_anybody_else_publishes_is_ignored() {
        let channel = "quorlock:wake:00000000000000ab";
        for text in
            [" ", "freed", "freed 1 r", "freed 0000001g r", "freed +000001f r", "hello 0000001f r"]
        {
            assert_eq!(message(channel, text), None, "{text}");
        }
        assert_eq!(message(channel, "freed 0000001f"), None);
        for channel in
            ["quorlock:wake:ab", "quorlock:wake:", "other", "quorlock:wake:+0000000000000ab"]
        {
            assert_eq!(message(channel, "freed 0000001f r"), None, "{channel}");
        }
        let data = vec![Value::BulkString(vec![0xff]), bulk("freed 0000001f r")];
        assert_eq!(Push::read(PushInfo { kind: PushKind::Message, data }), None);
    }

    #[test]
    fn changed_keys_are_listed_or_all() {
        let changed = |data| Push::read(PushInfo { kind: PushKind::Invalidate, data });
        let keys = Value::Array(vec![bulk("a"), bulk("b c")]);
        assert_eq!(
            changed(vec![keys]),
            Some(Push::Changed(vec!["a".to_owned(), "b c".to_owned()]))
        );
        assert_eq!(changed(vec![Value::Nil]), Some(Push::AllChanged));
        assert_eq!(changed(vec![]), None);
        assert_eq!(
            Push::read(PushInfo { kind: PushKind::Subscribe, data: vec![Value::Nil] }),
            None
        );
    }
}
