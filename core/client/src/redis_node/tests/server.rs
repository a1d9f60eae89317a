//! A simulated server, with as much of Redis as locks need. Owns keys, the cache of scripts, and
//! the record of what took effect.

use std::collections::BTreeMap;

use super::requests::Kind;
use crate::redis_node::session::Script;

/// The server.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) keys: BTreeMap<String, String>,
    /// Whether it knows the scripts by their digests.
    pub(super) knows_scripts: bool,
    has_deletion: bool,
    /// The connections that it was told to end.
    pub(super) killed: Vec<usize>,
    /// What it did for requests, in order.
    pub(super) runs: Vec<Run>,
}

/// One execution for one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) connection: usize,
    pub(super) holder: String,
    pub(super) kind: Kind,
    pub(super) effect: Effect,
    /// By a script, which carries out a whole request.
    pub(super) is_script: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The keys are the holder's: granted, extended or deleted.
    Done,
    /// Nothing has changed.
    Nothing,
}

/// What its clock shows, in microseconds.
pub(super) const TIME: u64 = 1_700_000_000_000_000;

impl Server {
    pub(super) fn new(has_deletion: bool) -> Self {
        let (keys, killed, runs) = (BTreeMap::new(), Vec::new(), Vec::new());
        Self { keys, knows_scripts: false, has_deletion, killed, runs }
    }

    /// Does the call that came over `connection`; gives the bytes of its reply.
    pub(super) fn run(&mut self, connection: usize, words: &[String]) -> String {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        match words.as_slice() {
            ["ROLE"] => "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_owned(),
            ["CONFIG", ..] => "*2\r\n$11\r\nappendfsync\r\n$2\r\nno\r\n".to_owned(),
            ["INFO"] if self.has_deletion => bulk("run_id:abc\r\nvalkey_version:9.0.0\r\n"),
            ["INFO"] => bulk("run_id:abc\r\nredis_version:7.2.0\r\n"),
            ["CLIENT", "INFO"] => bulk(&format!("id={connection} addr=127.0.0.1:{connection}")),
            ["CLIENT", "KILL", "ID", number, ..] => {
                self.killed.push(number.parse().expect("a number"));
                ":1\r\n".to_owned()
            }
            ["CLIENT", ..] => "+OK\r\n".to_owned(),
            ["SCRIPT", "LOAD", text] => {
                self.knows_scripts = true;
                bulk(&digest(script_of(text).expect("one of the scripts")))
            }
            ["EVAL", text, rest @ ..] => match script_of(text) {
                Some(script) => self.run_script(connection, script, rest),
                None => format!(":{TIME}\r\n"),
            },
            ["EVALSHA", _, ..] if !self.knows_scripts => "-NOSCRIPT No matching script.\r\n".into(),
            ["EVALSHA", name, rest @ ..] => {
                let script = script_by(name).expect("one of the scripts");
                self.run_script(connection, script, rest)
            }
            ["SET", key, holder, "NX", ..] => {
                let is_free = !self.keys.contains_key(*key);
                if is_free {
                    self.keys.insert((*key).to_owned(), (*holder).to_owned());
                }
                self.note(connection, holder, Kind::Grant, is_free, false);
                if is_free { "+OK\r\n".to_owned() } else { "$-1\r\n".to_owned() }
            }
            ["DELIFEQ", key, holder] => {
                let is_own = self.delete(key, holder);
                self.note(connection, holder, Kind::Revoke, is_own, false);
                format!(":{}\r\n", u8::from(is_own))
            }
            ["ZADD", ..] => ":1\r\n".to_owned(),
            ["TIME"] => {
                let (seconds, micros) = (TIME / 1_000_000, TIME % 1_000_000);
                format!("*2\r\n{}{}", bulk(&seconds.to_string()), bulk(&micros.to_string()))
            }
            other => panic!("the server has no {other:?}"),
        }
    }

    fn run_script(&mut self, connection: usize, script: Script, words: &[&str]) -> String {
        let count: usize = words[0].parse().expect("a number of keys");
        let (keys, words) = words[1..].split_at(count);
        // The queues stay empty: what they do to a grant is another test's matter.
        let keys = if script.has_queues() { &keys[..count / 3] } else { keys };
        match script {
            Script::Grant | Script::GrantFair => {
                let holder = words[2];
                let is_other = |key: &&str| self.keys.get(*key).is_some_and(|it| it != holder);
                let is_free = !keys.iter().any(is_other);
                if is_free {
                    self.keys.extend(keys.iter().map(|key| ((*key).into(), holder.to_owned())));
                }
                self.note(connection, holder, Kind::Grant, is_free, true);
                let (code, pttl) = if is_free { (1, -2) } else { (3, 10_000) };
                format!("*4\r\n:{code}\r\n:{TIME}\r\n:{pttl}\r\n:{TIME}\r\n")
            }
            Script::Extend => {
                let mut reply = format!("*{count}\r\n");
                for (key, holder) in keys.iter().zip(words.chunks(3).map(|lease| lease[0])) {
                    let found = self.keys.get(*key);
                    let code = found.map_or(2, |it| if it == holder { 1 } else { 3 });
                    self.note(connection, holder, Kind::Extend, code == 1, true);
                    reply.extend([":", &code.to_string(), "\r\n"]);
                }
                reply
            }
            Script::Revoke | Script::RevokeAndCall => {
                let (key, holder) = (keys[0], words[0]);
                let found = self.keys.get(key).cloned();
                let is_own = self.delete(key, holder);
                self.note(connection, holder, Kind::Revoke, is_own, true);
                let code = found.map_or(2, |_| if is_own { 1 } else { 3 });
                format!("*4\r\n:{code}\r\n:0\r\n:-2\r\n:0\r\n")
            }
            other => panic!("the server has no script {other:?}"),
        }
    }

    fn delete(&mut self, key: &str, holder: &str) -> bool {
        let is_own = self.keys.get(key).is_some_and(|it| it == holder);
        if is_own {
            self.keys.remove(key);
        }
        is_own
    }

    fn note(&mut self, connection: usize, holder: &str, kind: Kind, done: bool, is_script: bool) {
        let effect = if done { Effect::Done } else { Effect::Nothing };
        let holder = holder.to_owned();
        self.runs.push(Run { connection, holder, kind, effect, is_script });
    }
}

impl Run {
    /// Whether the request is finished, though it may have found nothing to do: after a command of
    /// the server's own without an effect a script follows.
    pub(super) fn counts(&self) -> bool {
        self.is_script || self.effect == Effect::Done
    }

    /// Whether no earlier request of its holder may take effect after it.
    pub(super) fn bars_what_came_before(&self) -> bool {
        self.effect == Effect::Done || self.kind == Kind::Revoke
    }
}

/// What a call does for a request; `None` if it belongs to none.
pub(super) fn kind_of(call: &[String]) -> Option<Kind> {
    let script = match call[0].as_str() {
        "SET" => return Some(Kind::Grant),
        "DELIFEQ" => return Some(Kind::Revoke),
        "EVAL" => script_of(&call[1])?,
        "EVALSHA" => script_by(&call[1])?,
        _ => return None,
    };
    match script {
        Script::Grant | Script::GrantFair => Some(Kind::Grant),
        Script::Extend => Some(Kind::Extend),
        Script::Revoke | Script::RevokeAndCall => Some(Kind::Revoke),
        Script::RaiseFence | Script::Inspect => None,
    }
}

/// Takes the whole calls from the beginning of `bytes`.
pub(super) fn take_calls(bytes: &mut Vec<u8>) -> Vec<Vec<String>> {
    let mut calls = Vec::new();
    let text = String::from_utf8(std::mem::take(bytes)).expect("text");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let count = number(&mut rest, '*');
        calls.push((0..count).map(|_| word(&mut rest)).collect());
    }
    calls
}

fn number(rest: &mut &str, kind: char) -> usize {
    let (line, behind) = rest.split_once("\r\n").expect("a whole line");
    *rest = behind;
    line.strip_prefix(kind).and_then(|digits| digits.parse().ok()).expect("a length")
}

fn word(rest: &mut &str) -> String {
    let length = number(rest, '$');
    let (word, behind) = rest.split_at(length);
    *rest = behind.strip_prefix("\r\n").expect("the end of a word");
    word.to_owned()
}

fn script_of(text: &str) -> Option<Script> {
    Script::ALL.into_iter().find(|script| script.text() == text)
}

fn script_by(name: &str) -> Option<Script> {
    Script::ALL.into_iter().find(|script| digest(*script) == name)
}

fn digest(script: Script) -> String {
    format!("{:040x}", script as usize)
}

fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}
