//! Turns the errors that a server replies into faults with words for people. Owns the texts;
//! decides nothing.

use quorlock_protocol::{Fault, FaultKind};
use redis::{ServerError, Value};

use super::request::Request;
use crate::redis_node::transport::{garbled, plain};

/// The fault behind an error that the server replied to `request` (to the log-in if there is none).
pub(crate) fn of_reply(error: &ServerError, request: Option<&Request>) -> Fault {
    let (code, text) = (error.code(), error.details().unwrap_or_default());
    let kind = kind_of(code, text);
    let said = said(code, text);
    let detail = match kind {
        FaultKind::Unauthenticated => unauthenticated(code, text),
        FaultKind::NotPermitted if code == "DENIED" => {
            "the node is in protected mode and takes connections from its own machine alone: set a \
             password on it, or bind it"
                .to_owned()
        }
        FaultKind::NotPermitted => not_permitted(text, request),
        FaultKind::WrongType => match request {
            Some(request) => wrong_type(request),
            None => said,
        },
        FaultKind::Replica => return replica(None),
        FaultKind::Unwritable => unwritable(code, text),
        FaultKind::Busy => format!("the node is busy: {said}"),
        FaultKind::Clustered => format!(
            "the node is part of a Redis Cluster, but Redlock needs independent masters ({said})"
        ),
        _ => format!("the node replied with an error: {said}"),
    };
    Fault::new(kind, detail)
}

/// The fault behind an error with which the server refuses the connection itself, in place of the first
/// reply; it closes the connection then. `None` if the error is an answer to a call.
pub(crate) fn of_connection(error: &ServerError) -> Option<Fault> {
    let fault = of_reply(error, None);
    let is_of_connection = fault.kind() == FaultKind::TooManyClients || error.code() == "DENIED";
    is_of_connection.then_some(fault)
}

/// The fault behind an error that the server replied to a check-up.
pub(super) fn of_checkup(error: &ServerError) -> Fault {
    let fault = of_reply(error, None);
    if fault.kind() == FaultKind::WrongType {
        let words = "a key of another type is in the place of one of the guards' keys: look at quorlock:{node}:canary \
                     and quorlock:{node}:notes with TYPE, then delete or rename what is foreign";
        return Fault::new(FaultKind::WrongType, words);
    }
    if fault.kind() != FaultKind::NotPermitted || error.code() == "DENIED" {
        return fault;
    }
    let what = lacking(error, "the guards' keys");
    let words = format!(
        "the user's access list {what}: add ~quorlock:* and +eval +get +set +pexpire +pttl +time +hgetall +hset +hdel \
         with ACL SETUSER, or set restart_guard to \"off\" and clock_guard to false"
    );
    Fault::new(FaultKind::NotPermitted, words)
}

/// The fault behind an error that the server replied when it was told to remember its fences.
pub(super) fn of_fences(error: &ServerError) -> Fault {
    let fault = of_reply(error, None);
    let words = match fault.kind() {
        FaultKind::NotPermitted => format!(
            "the user's access list {}: add ~quorlock:* and +eval +zadd +pttl +pexpire +time with ACL \
             SETUSER, or set fencing to false",
            lacking(error, "the table of fences")
        ),
        FaultKind::WrongType => {
            "a key of another type is in the place of the table of fences: look at \
                                 quorlock:{node}:fences with TYPE, then delete or rename it"
                .to_owned()
        }
        _ => return fault,
    };
    Fault::new(fault.kind(), words)
}

/// The fault behind an error that the server replied to a command for its queues of waiters.
pub(crate) fn of_queue(error: &ServerError) -> Fault {
    let fault = of_reply(error, None);
    let words = match fault.kind() {
        FaultKind::NotPermitted => format!(
            "the user's access list {}: add ~quorlock:* &quorlock:wake:* {QUEUE_RIGHTS} with ACL SETUSER, or set wait to \
             \"poll\"",
            lacking(error, "the queues of waiters")
        ),
        FaultKind::WrongType => "a key of another type is in the place of a queue of waiters: look at \
                                 quorlock:queue:* and quorlock:alive:* with TYPE, then delete or rename what is foreign"
            .to_owned(),
        _ => return fault,
    };
    Fault::new(fault.kind(), words)
}

/// The fault behind a reply that is none to the question for the value of a lock's key.
pub(crate) fn of_key(reply: &Value) -> Fault {
    let Value::ServerError(error) = reply else { return garbled() };
    of_reply(error, None)
}

/// The fault behind a reply that is none to the question for the record of a sequencer.
pub(crate) fn of_record(reply: &Value) -> Fault {
    let Value::ServerError(error) = reply else { return garbled() };
    let fault = of_reply(error, None);
    let words = match fault.kind() {
        FaultKind::NotPermitted => format!(
            "the user's access list {}: add ~quorlock:* and +get with ACL SETUSER",
            lacking(error, "the records of sequencers")
        ),
        FaultKind::WrongType => "a key of another type is in the place of the record of a sequencer: look at \
                                 quorlock:sequencer:* with TYPE, then delete or rename what is foreign"
            .to_owned(),
        _ => return fault,
    };
    Fault::new(fault.kind(), words)
}

/// What a user needs for the queues of waiters.
const QUEUE_RIGHTS: &str = "+eval +evalsha +script|load +hello +publish +subscribe +client|tracking +client|caching \
                            +exists +pttl +pexpire +time +zadd +zcard +zcount +zrange +zrangebyscore +zrank +zrem \
                            +zscore";

/// What the access list lacks for `keys` of this client's own: the keys, or a command on them.
fn lacking(error: &ServerError, keys: &str) -> String {
    let text = error.details().unwrap_or_default();
    if is_about_key(text) {
        format!("does not cover {keys}")
    } else {
        format!("does not permit {} on {keys}", command_in(text))
    }
}

/// Whether the server does not know the script that was named by its digest.
pub(super) fn is_no_script(error: &ServerError) -> bool {
    error.code() == "NOSCRIPT"
}

/// Whether the user lacks the permission for what was asked.
pub(super) fn is_not_permitted(error: &ServerError) -> bool {
    kind_of(error.code(), error.details().unwrap_or_default()) == FaultKind::NotPermitted
}

/// Whether the server does not have the command, or the user may not run it.
pub(super) fn is_not_there(error: &ServerError) -> bool {
    let text = error.details().unwrap_or_default();
    is_not_permitted(error) || text.starts_with("unknown command")
}

/// The fault of a node that replicates from another server.
pub(crate) fn replica(master: Option<&str>) -> Fault {
    let whose = master.map_or_else(String::new, |master| format!(" of {master}"));
    let words =
        format!("the node is a replica{whose} and takes no writes: give the address of its master");
    Fault::new(FaultKind::Replica, words)
}

/// The fault of a server that has not read all its keys from disk yet.
pub(super) fn loading() -> Fault {
    Fault::new(FaultKind::Busy, "the server is still reading its keys from disk")
}

fn kind_of(code: &str, text: &str) -> FaultKind {
    match code {
        "NOAUTH" | "WRONGPASS" => FaultKind::Unauthenticated,
        "NOPERM" | "DENIED" => FaultKind::NotPermitted,
        "WRONGTYPE" => FaultKind::WrongType,
        "READONLY" | "MASTERDOWN" => FaultKind::Replica,
        "OOM" | "MISCONF" | "NOREPLICAS" => FaultKind::Unwritable,
        "LOADING" | "BUSY" => FaultKind::Busy,
        "MOVED" | "ASK" | "CROSSSLOT" | "CLUSTERDOWN" => FaultKind::Clustered,
        // A script of Redis 6.2 puts its own name before the error that it passes on.
        _ => kind_of_general_error(text),
    }
}

/// Errors without a code of their own, among them those that a script of Redis 6.2 passes on.
fn kind_of_general_error(text: &str) -> FaultKind {
    const SIGNS: [(&str, FaultKind); 14] = [
        ("WRONGTYPE ", FaultKind::WrongType),
        ("READONLY ", FaultKind::Replica),
        ("OOM ", FaultKind::Unwritable),
        ("MISCONF ", FaultKind::Unwritable),
        ("NOREPLICAS ", FaultKind::Unwritable),
        ("NOPERM ", FaultKind::NotPermitted),
        ("ACL failure in script", FaultKind::NotPermitted),
        ("The user executing the script can't", FaultKind::NotPermitted),
        ("without any password configured", FaultKind::Unauthenticated),
        ("Client sent AUTH", FaultKind::Unauthenticated),
        ("invalid password", FaultKind::Unauthenticated),
        ("max number of clients", FaultKind::TooManyClients),
        ("in cluster mode", FaultKind::Clustered),
        ("DB index", FaultKind::NoDatabase),
    ];
    let found = SIGNS.iter().find(|(sign, _)| text.contains(sign));
    found.map_or(FaultKind::Other, |(_, kind)| *kind)
}

fn unauthenticated(code: &str, text: &str) -> String {
    if code == "NOAUTH" {
        "the node wants a password, but the address has none".to_owned()
    } else if code == "WRONGPASS" || text.contains("invalid password") {
        "the node does not accept this user name and password".to_owned()
    } else {
        "the node has no password set, but the address has one".to_owned()
    }
}

fn not_permitted(text: &str, request: Option<&Request>) -> String {
    if is_about_key(text) {
        let names = request.map(|it| it.command.claim.resources.to_string());
        let names = names.unwrap_or_else(|| "its keys".to_owned());
        return format!(
            "the user's access list does not cover the keys of {names}: add a pattern for them and \
             ~quorlock:* with ACL SETUSER"
        );
    }
    let fair = if request.is_some_and(Request::is_fair) {
        format!(", and for fair locks &quorlock:wake:* {QUEUE_RIGHTS},")
    } else {
        String::new()
    };
    format!(
        "the user's access list does not permit {}: add +eval +evalsha +script|load +get +set +del \
         +pexpire +pttl +time +zadd +zscore +hgetall +hset +hdel{fair} with ACL SETUSER",
        command_in(text)
    )
}

fn is_about_key(text: &str) -> bool {
    text.contains("access a key") || text.contains("the keys") || text.contains("channel")
}

/// The command that a user may not run, where the server says which.
fn command_in(text: &str) -> String {
    let command = text.split(" '").nth(1).and_then(|rest| rest.split('\'').next());
    let name = command.map(|name| plain(name).to_uppercase());
    name.map_or_else(|| "a command".to_owned(), |name| format!("the command {name}"))
}

fn unwritable(code: &str, text: &str) -> String {
    let is = |sign: &str| code == sign || text.contains(&format!("{sign} "));
    if is("OOM") {
        return "the node's memory is full (maxmemory), so it takes no writes: raise the limit, or give \
                locks a server of their own"
            .to_owned();
    }
    if is("NOREPLICAS") {
        return "too few replicas follow the node (min-replicas-to-write), so it takes no writes"
            .to_owned();
    }
    if is("MISCONF") {
        return "the node cannot save its data to disk, so it takes no writes: see its log"
            .to_owned();
    }
    format!("the node takes no writes now: {}", said(code, text))
}

fn said(code: &str, text: &str) -> String {
    let text = plain(text);
    if code == "ERR" || code.starts_with('@') { text } else { format!("{} {text}", plain(code)) }
}

/// The sentence for a key of another type that stands in the way of `request`.
pub(super) fn wrong_type(request: &Request) -> String {
    let names = &request.command.claim.resources;
    let beside = if request.is_fenced() {
        " and at the table of fences (quorlock:{node}:fences)"
    } else {
        ""
    };
    format!(
        "a key of another type is in the way of {names}: look at it{beside} with TYPE, then delete or \
         rename what is foreign, or lock under another name"
    )
}
