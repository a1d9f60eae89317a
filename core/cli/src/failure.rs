//! How a command fails: the status that it exits with, and what it tells a person. Owns the exit
//! codes.

use std::io;

use quorlock::embed::plain_line;
use quorlock::{ConfigError, ErrorKind, Fault, LockError, NodeReport};
use serde_json::Value as Json;

/// The statuses that a command exits with. 64 and above follow `sysexits.h`, like `flock` and
/// `consul lock`.
pub(crate) mod code {
    pub(crate) const DONE: u8 = 0;
    /// It is held (`status`), or was not (`release`, `extend`, `verify`).
    pub(crate) const NO: u8 = 1;
    /// A lock cannot be had, or is not safe (`doctor`).
    pub(crate) const UNFIT: u8 = 2;
    pub(crate) const HELD_BY_ANOTHER: u8 = 3;
    pub(crate) const USAGE: u8 = 64;
    pub(crate) const NO_QUORUM: u8 = 69;
    pub(crate) const INTERNAL: u8 = 70;
    /// What there was to tell could not be written.
    pub(crate) const UNWRITTEN: u8 = 74;
    /// Another holds the lock.
    pub(crate) const BUSY: u8 = 75;
    pub(crate) const LOST: u8 = 76;
    pub(crate) const NOT_EXECUTABLE: u8 = 126;
    pub(crate) const NOT_FOUND: u8 = 127;
    /// Added to the number of the signal that ended the command.
    pub(crate) const SIGNAL: u8 = 128;
}

/// Why a command has ended without doing what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    message: String,
    /// Whether the status alone says it, for callers that want silence.
    is_told_by_code: bool,
    /// What programs are told of it.
    told: Option<Json>,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl AsRef<str>) -> Self {
        Self::in_lines(code, plain_line(message.as_ref()))
    }

    /// The same with a message that may be of several lines.
    pub(crate) fn in_lines(code: u8, message: String) -> Self {
        Self { code, message, is_told_by_code: false, told: None }
    }

    /// A command line that makes no sense: nothing was done.
    pub(crate) fn usage(message: impl AsRef<str>) -> Self {
        Self::new(code::USAGE, message)
    }

    /// An outcome that callers expect and read from the status.
    pub(crate) fn outcome(code: u8, message: impl AsRef<str>) -> Self {
        Self { is_told_by_code: true, ..Self::new(code, message) }
    }

    /// Tells programs more of an outcome that is not known than that.
    pub(crate) fn telling(self, told: Json) -> Self {
        Self { told: Some(told), ..self }
    }

    /// What [`Self::telling`] was given.
    pub(crate) fn told(&self) -> Option<Json> {
        self.told.clone()
    }

    /// Whether too few nodes have told.
    pub(crate) const fn is_without_quorum(&self) -> bool {
        self.code == code::NO_QUORUM
    }

    /// Writes it to standard error, unless `is_quiet` and the status says it; returns the status.
    pub(crate) fn tell(&self, is_quiet: bool) -> u8 {
        let is_told = is_quiet && self.is_told_by_code;
        if !is_told && !self.message.is_empty() {
            // A slip in the command line may have put an address anywhere.
            crate::output::complain_in_lines(&without_passwords(&self.message));
        }
        self.code
    }
}

/// `text` with `***` for the passwords of the addresses in it.
fn without_passwords(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        shown.extend([before, "://"]);
        let end = after.find(char::is_whitespace).unwrap_or(after.len());
        let end = after[..end].find("://").unwrap_or(end);
        let (place, query) = split_query(&after[..end]);
        let login = place.rfind('@').map_or("", |at| &place[..at]);
        let (user, has_password) =
            login.split_once(':').map_or((login, false), |(user, _)| (user, true));
        shown.push_str(user);
        shown.push_str(if has_password { ":***" } else { "" });
        shown.push_str(&place[login.len()..]);
        shown.push_str(if query.is_empty() { "" } else { "***" });
        rest = &after[place.len() + query.len()..];
    }
    shown.push_str(rest);
    shown
}

/// An address up to its query, and the query, if a password may be in it. The query begins with the address
/// where an '@' is in it, since then the '?' may be part of a login.
fn split_query(address: &str) -> (&str, &str) {
    let Some(at) = address.find('?').filter(|&at| address[at..].contains("pass")) else {
        return (address, "");
    };
    let end = address.trim_end_matches(['\'', ',', '.', ':', ';', ')', ']']).len().max(at);
    let begin = if address[at..end].contains('@') { 0 } else { at + 1 };
    (&address[..begin], &address[begin..end])
}

/// What has kept a node, by its address, from doing what it was asked.
pub(crate) type NodeFault = (String, Fault);

/// The faults among the nodes' answers.
pub(crate) fn faults(votes: &[NodeReport]) -> Vec<NodeFault> {
    let fault = |vote: &NodeReport| vote.answer.as_ref()?.as_ref().err().cloned();
    votes.iter().filter_map(|it| Some((it.address.to_string(), fault(it)?))).collect()
}

/// `message`, with the faults that are the reason, if any are known.
pub(crate) fn because(message: &str, faults: &[NodeFault]) -> String {
    if faults.is_empty() { message.to_owned() } else { format!("{message}: {}", list(faults)) }
}

/// The faults in one line.
pub(crate) fn list(faults: &[NodeFault]) -> String {
    Fault::list(faults.iter().map(|(address, fault)| (address.as_str(), fault)))
}

/// That it is not known whether a quorum has released `names`, and why.
pub(crate) fn unconfirmed(names: &str, votes: &[NodeReport]) -> String {
    because(&format!("too few nodes have confirmed the release of {names}"), &faults(votes))
}

/// The status to exit with in place of `code`, and a message on standard error, if standard output could
/// not be written, since the output is incomplete then. If the reader has closed the pipe, `code` stays and
/// there is no message.
pub(crate) fn of_output(code: u8) -> u8 {
    match crate::output::unwritten() {
        Some(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let message = format!("standard output cannot be written: {error}");
            Failure::new(code::UNWRITTEN, message).tell(false)
        }
        _ => code,
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        let message = error.to_string();
        match error.kind() {
            ErrorKind::NotAcquired | ErrorKind::AcquireTimedOut => {
                Self::outcome(code::BUSY, message)
            }
            ErrorKind::QuorumUnreachable => Self::new(code::NO_QUORUM, message),
            ErrorKind::LeaseLost => Self::new(code::LOST, message),
            ErrorKind::LockNotHeld => Self::outcome(code::NO, message),
            ErrorKind::Config => Self::usage(message),
            ErrorKind::Cancelled | ErrorKind::Closed => Self::new(code::INTERNAL, message),
        }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::usage(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::without_passwords;

    #[test]
    fn a_message_has_no_password() {
        for (text, shown) in [
            ("no 'redis://u:p@w@h:1'", "no 'redis://u:***@h:1'"),
            ("redis://:p@a,rediss://u:q@b x@y", "redis://:***@a,rediss://u:***@b x@y"),
            ("see https://a.b/c and redis://u@h", "see https://a.b/c and redis://u@h"),
            ("a:b@c", "a:b@c"),
            ("no 'redis://h:1?password=p' found", "no 'redis://h:1?***' found"),
            ("redis://u:p@h?db=1&pass=q redis://u:p@i", "redis://u:***@h?*** redis://u:***@i"),
            ("no 'redis://h?password=p@q' found", "no 'redis://***' found"),
            ("no 'redis://u:p?pass@h' found", "no 'redis://***' found"),
            ("redis://u:p?q@h/1 https://a.b/c?d=e", "redis://u:***@h/1 https://a.b/c?d=e"),
        ] {
            assert_eq!(without_passwords(text), shown);
        }
    }
}
