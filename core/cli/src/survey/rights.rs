//! What the user's access list lacks, or the server has no command for. Owns the list of what is
//! needed, and how each is tried without changing anything.

use quorlock::{Fault, ServerConnection, ServerReply};

use super::UNUSED_NAME;
use crate::refusal::{is_not_permitted, is_unknown_command};

/// What the user may not do.
#[derive(Default)]
pub(super) struct Rights {
    /// What locks need, as rules of an access list.
    pub(super) lacking: Vec<String>,
    /// What it takes besides to tell waiting clients of a free lock.
    pub(super) lacking_for_push: Vec<String>,
    /// The commands that locks need and that the server does not have, as where they are renamed.
    pub(super) missing: Vec<String>,
    /// The same of waiting.
    pub(super) missing_for_push: Vec<String>,
    /// Whether the keys of locks are permitted; `None` if that depends on the locks' names.
    pub(super) has_lock_keys: Option<bool>,
}

impl Rights {
    /// Whether the server can tell waiting clients of a free lock.
    pub(super) fn has_push(&self) -> bool {
        let has_all = self.lacking_for_push.is_empty() && self.missing_for_push.is_empty();
        has_all && !self.lacking.iter().any(|it| it == KEYS)
    }

    /// Whether the node can grant no locks, or not all.
    pub(super) fn keep_locks_out(&self) -> bool {
        let is_vital = |rule: &String| !DISPENSABLE.contains(&rule.as_str());
        self.lacking.iter().any(is_vital) || self.miss_vital()
    }

    /// Whether the server does not have a command without which no lock can be had, or not each.
    pub(super) fn miss_vital(&self) -> bool {
        let is_vital = |name: &String| !DISPENSABLE_COMMANDS.contains(&name.as_str());
        self.missing.iter().any(is_vital)
    }
}

/// Tries all of it, in one round trip. The keys of locks begin with `prefix`.
pub(super) async fn ask(connection: &mut ServerConnection, prefix: &str) -> Result<Rights, Fault> {
    let lock_key = format!("{prefix}{UNUSED_NAME}");
    // Only a key that is there is changed.
    let of_a_lock: [&[&str]; 2] = [&["GET", &lock_key], &["SET", &lock_key, "1", "XX", "PX", "1"]];
    let calls = of_a_lock.into_iter().chain(NEEDED.iter().chain(PUSH).map(|(_, call)| *call));
    let replies = connection.ask_all(&calls.collect::<Vec<_>>()).await?;
    let (of_a_lock, replies) = replies.split_at(of_a_lock.len());
    let (needed, push) = replies.split_at(NEEDED.len());
    let mut rights = Rights::default();
    for ((rule, _), reply) in NEEDED.iter().zip(needed) {
        if is_unknown(reply) {
            rights.missing.push(command(rule));
        }
        let lacks = refusal(reply).map(|words| if is_about_key(words) { KEYS } else { *rule });
        if let Some(lack) = lacks.filter(|lack| !rights.lacking.iter().any(|it| it == lack)) {
            rights.lacking.push(lack.to_owned());
        }
    }
    let is_refused = of_a_lock.iter().filter_map(refusal).any(is_about_key);
    // Without a prefix, the access list may well have a pattern for the names that are used.
    rights.has_lock_keys = (!is_refused || !prefix.is_empty()).then_some(!is_refused);
    if rights.has_lock_keys == Some(false) {
        rights.lacking.push(format!("~{prefix}*"));
    }
    for ((rule, _), reply) in PUSH.iter().zip(push) {
        if is_unknown(reply) {
            rights.missing_for_push.push(command(rule));
        }
        let lacks = refusal(reply).map(|words| match words {
            words if is_about_key(words) => KEYS,
            words if is_about_channel(words) => CHANNELS,
            _ => *rule,
        });
        let mut told = rights.lacking.iter().chain(&rights.lacking_for_push);
        if let Some(lack) = lacks.filter(|lack| told.all(|other| other != lack)) {
            rights.lacking_for_push.push(lack.to_owned());
        }
    }
    Ok(rights)
}

/// Why the user may not make the call; `None` if it may.
fn refusal(reply: &ServerReply) -> Option<&str> {
    reply.refusal().filter(|words| is_not_permitted(words))
}

/// Whether the server does not have the command.
fn is_unknown(reply: &ServerReply) -> bool {
    reply.refusal().is_some_and(is_unknown_command)
}

/// The command of a rule: `SCRIPT LOAD` of `+script|load`.
fn command(rule: &str) -> String {
    rule.trim_start_matches('+').replace('|', " ").to_uppercase()
}

fn is_about_key(refusal: &str) -> bool {
    refusal.contains("access a key") || refusal.contains("the keys")
}

fn is_about_channel(refusal: &str) -> bool {
    refusal.contains("channel")
}

/// A key that nobody uses.
const KEY: &str = "quorlock:{node}:doctor";
/// A channel that nobody listens to.
const CHANNEL: &str = "quorlock:wake:doctor";
/// A write, which a server that takes none now refuses. Only a key that is there is changed.
pub(super) const WRITE: &[&str] = &["SET", KEY, "1", "XX", "PX", "1"];
const KEYS: &str = "~quorlock:*";
const CHANNELS: &str = "&quorlock:wake:*";

/// What locks can be had without: they end with their ttl then, or something is not told. Where the
/// guards need one of these, they do not count the node.
const DISPENSABLE: &[&str] = &["+script|load", "+del", "+hgetall", "+hset", "+hdel", "+info"];

/// The same of commands that the server does not have: the guards do without one that is not permitted, but not without
/// one that is not there.
const DISPENSABLE_COMMANDS: &[&str] = &["SCRIPT LOAD", "DEL", "HDEL", "INFO"];

/// Each rule, and a call for it that changes nothing.
const NEEDED: &[(&str, &[&str])] = &[
    ("+eval", &["EVAL", "return 1", "0"]),
    ("+evalsha", &["EVALSHA", "0000000000000000000000000000000000000000", "0"]),
    ("+script|load", &["SCRIPT", "LOAD", "return 1"]),
    ("+get", &["GET", KEY]),
    ("+set", WRITE),
    ("+del", &["DEL", KEY]),
    ("+pexpire", &["PEXPIRE", KEY, "1"]),
    ("+pttl", &["PTTL", KEY]),
    ("+time", &["TIME"]),
    ("+zadd", &["ZADD", KEY, "XX", "0", "member"]),
    ("+zscore", &["ZSCORE", KEY, "member"]),
    ("+hgetall", &["HGETALL", KEY]),
    // A field without a value is refused, after the access list was consulted.
    ("+hset", &["HSET", KEY, "field", "value", "field"]),
    ("+hdel", &["HDEL", KEY, "field"]),
    ("+info", &["INFO", "server"]),
];

/// The same for waiting. Servers permit HELLO to all, but may not have it. The last of them ends what the connection can
/// be used for.
const PUSH: &[(&str, &[&str])] = &[
    ("+hello", &["HELLO"]),
    ("+exists", &["EXISTS", KEY]),
    ("+zcard", &["ZCARD", KEY]),
    ("+zcount", &["ZCOUNT", KEY, "0", "0"]),
    ("+zrange", &["ZRANGE", KEY, "0", "0"]),
    ("+zrangebyscore", &["ZRANGEBYSCORE", KEY, "0", "0"]),
    ("+zrank", &["ZRANK", KEY, "member"]),
    ("+zrem", &["ZREM", KEY, "member"]),
    ("+client|tracking", &["CLIENT", "TRACKING", "OFF"]),
    // Refused while nothing is tracked, after the access list was consulted.
    ("+client|caching", &["CLIENT", "CACHING", "YES"]),
    ("+publish", &["PUBLISH", CHANNEL, ""]),
    ("+subscribe", &["SUBSCRIBE", CHANNEL]),
];
