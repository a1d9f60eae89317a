//! What each node says of one lock, read without changing it. Owns what that adds up to.

use std::time::Duration;

use quorlock::{Address, Fault, FaultKind, Holder, SequencerRecord, ServerConnection};

use super::asking::Asking;
use super::value::{self, Value};
use crate::context::are_one_server;
use crate::failure::{Failure, because, code};
use crate::refusal::is_not_permitted;
use crate::server_info::ServerInfo;

/// What one node says.
pub(super) struct Reading {
    pub(super) address: String,
    pub(super) says: Result<Option<Key>, Fault>,
}

/// A lock's key on one node.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// Its value.
    pub(super) holder: Value,
    pub(super) left: Left,
    /// What the holder says of itself.
    pub(super) owner: Option<Holder>,
    /// The holder's fencing token, if it has recorded it.
    pub(super) token: Option<u64>,
    /// How many callers wait in the node's queue, if it tells.
    pub(super) waiters: Option<i64>,
}

/// How much longer a node keeps a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Left {
    In(Duration),
    /// It has no ttl.
    Never,
    /// The node does not tell, and why.
    Untold(String),
}

/// What a quorum says.
pub(super) enum Quorum {
    Free,
    /// With the value of its keys.
    Held(Value),
    /// Nobody else can get it, but no holder is known to have a quorum.
    Divided,
    Unknown,
}

/// Asks every node. Like locks, it refuses nodes of which two are one server.
pub(super) fn of(asking: &Asking<'_>, name: &str) -> Result<Vec<Reading>, Failure> {
    let reads = async |connection: &mut ServerConnection, address: &Address| {
        read(connection, address, name).await
    };
    let answers = asking.each_node(&reads);
    let mut runs: Vec<(String, &Address)> = Vec::new();
    let mut readings = Vec::new();
    for (address, answer) in asking.context.addresses.iter().zip(answers) {
        let (run, says) = match answer {
            Ok((run, key)) => (run, Ok(key)),
            Err(fault) => (None, Err(fault)),
        };
        if let Some(run) = run {
            if let Some((_, other)) = runs.iter().find(|(other, _)| *other == run) {
                return Err(Failure::usage(are_one_server(other, address)));
            }
            runs.push((run, address));
        }
        readings.push(Reading { address: address.to_string(), says });
    }
    Ok(readings)
}

/// The server's id, if it tells it, and the key.
async fn read(
    connection: &mut ServerConnection,
    address: &Address,
    name: &str,
) -> Result<(Option<String>, Option<Key>), Fault> {
    let key = format!("{}{name}", address.key_prefix());
    let (record_key, owner_key) = (SequencerRecord::key(&key), Holder::record_key(&key));
    let (tell, pttl): (_, &[&str]) = (Value::script(), &["PTTL", &key]);
    let [of_key, of_record, of_owner] =
        [&key, &record_key, &owner_key].map(|key| ["EVAL", &tell, "1", key]);
    let calls: [&[&str]; 5] = [&["INFO"], &of_key, pttl, &of_record, &of_owner];
    let replies = connection.ask_all(&calls).await?;
    let [info, holder, left, record, owner] = &replies[..] else {
        return Err(Fault::new(FaultKind::Garbled, "it gave other replies than were asked for"));
    };
    let info = ServerInfo::of(info);
    if info.is_replica() {
        return Err(Fault::new(
            FaultKind::Replica,
            "it is a replica, and its master's answer counts",
        ));
    }
    let run = info.run_id().map(str::to_owned);
    let has_scripts = !value::refuses_scripts(holder);
    let (holder, left) = if has_scripts {
        (Value::told(holder), left.clone())
    } else {
        let holder = connection.ask(&["GET", &key]).await?;
        (Value::told_as_text(&holder), connection.ask(pttl).await?)
    };
    let Some(holder) = holder.map_err(|words| untold(&words))? else { return Ok((run, None)) };
    let left = match left.number() {
        Some(-2) => return Ok((run, None)),
        Some(left) => {
            u64::try_from(left).map_or(Left::Never, |it| Left::In(Duration::from_millis(it)))
        }
        None => Left::Untold(match left.refusal() {
            Some(words) if is_not_permitted(words) => "the access list lacks +pttl".to_owned(),
            words => format!("PTTL is refused: {}", words.unwrap_or_default()),
        }),
    };
    let waiters = connection.waiters(&key).await?;
    let (record, owner) = if has_scripts {
        (Value::told(record).ok(), Value::told(owner).ok())
    } else {
        // Last, since a reply that is too large breaks the connection.
        let record = connection.ask(&["GET", &record_key]).await;
        let owner = connection.ask(&["GET", &owner_key]).await;
        [record, owner].map(|reply| Value::told_as_text(&reply.ok()?).ok()).into()
    };
    let text = |value: Option<Option<Value>>| value.flatten()?.text().map(str::to_owned);
    // Records are of holders whose id is a text.
    let id = holder.text();
    let record = text(record).and_then(|text| SequencerRecord::parse(&text));
    let token = record.filter(|it| Some(it.holder()) == id).map(|record| record.token());
    let owner = text(owner).zip(id).and_then(|(text, id)| Holder::parse(&text, id));
    Ok((run, Some(Key { holder, left, owner, token, waiters })))
}

/// The fault of a node that does not tell.
fn untold(words: &str) -> Fault {
    Fault::new(FaultKind::Other, format!("it does not tell: {words}"))
}

/// What the readings add up to.
pub(super) fn quorum(readings: &[Reading]) -> Quorum {
    let majority = readings.len() / 2 + 1;
    let keys: Vec<&Key> = keys(readings).collect();
    if keys.len() > readings.len() - majority {
        let count = |holder: &Value| keys.iter().filter(|key| key.holder == *holder).count();
        let most = keys.iter().map(|key| &key.holder).max_by_key(|holder| count(holder));
        let most = most.filter(|holder| count(holder) >= majority);
        return most.map_or(Quorum::Divided, |holder| Quorum::Held(holder.clone()));
    }
    if free(readings) >= majority { Quorum::Free } else { Quorum::Unknown }
}

/// The different values of the keys.
pub(super) fn holders(readings: &[Reading]) -> Vec<Value> {
    let mut holders: Vec<Value> = keys(readings).map(|key| key.holder.clone()).collect();
    holders.sort();
    holders.dedup();
    holders
}

/// What the holder with this id says of itself, to any node.
pub(super) fn owner<'a>(readings: &'a [Reading], holder: &Value) -> Option<&'a Holder> {
    keys(readings).filter(|key| key.holder == *holder).find_map(|key| key.owner.as_ref())
}

/// The holder in words: its id, and what it says of itself.
pub(super) fn named(readings: &[Reading], holder: &Value) -> String {
    match owner(readings, holder) {
        None => holder.to_string(),
        Some(owner) => format!("{holder} ({owner})"),
    }
}

/// Whether a quorum has no key of this holder any more.
pub(super) fn is_rid_of(readings: &[Reading], holder: &Value) -> bool {
    let is_rid = |reading: &&Reading| {
        reading.says.as_ref().is_ok_and(|key| key.as_ref().is_none_or(|key| key.holder != *holder))
    };
    readings.iter().filter(is_rid).count() > readings.len() / 2
}

/// After what time a quorum will be free if nobody renews or takes a key.
pub(super) fn left(readings: &[Reading]) -> Left {
    let majority = readings.len() / 2 + 1;
    let lefts = || readings.iter().map(|reading| reading.says.as_ref().map(Option::as_ref));
    let mut ends: Vec<Duration> = lefts()
        .filter_map(|says| match says.map(|key| key.map(|key| &key.left)) {
            Ok(None) => Some(Duration::ZERO),
            Ok(Some(Left::In(left))) => Some(*left),
            _ => None,
        })
        .collect();
    ends.sort();
    if let Some(end) = ends.get(majority - 1) {
        return Left::In(*end);
    }
    let never = keys(readings).filter(|key| key.left == Left::Never).count();
    if never > readings.len() - majority {
        return Left::Never;
    }
    let why = keys(readings).find_map(|key| match &key.left {
        Left::Untold(why) => Some(why.clone()),
        _ => None,
    });
    Left::Untold(why.unwrap_or_else(|| "too few nodes tell".to_owned()))
}

/// How many nodes have no key of it.
pub(super) fn free(readings: &[Reading]) -> usize {
    readings.iter().filter(|reading| matches!(reading.says, Ok(None))).count()
}

pub(super) fn keys(readings: &[Reading]) -> impl Iterator<Item = &Key> {
    readings.iter().filter_map(|reading| reading.says.as_ref().ok()?.as_ref())
}

/// The failure where too few nodes tell.
pub(super) fn unknown(name: &str, readings: &[Reading]) -> Failure {
    let fault = |it: &Reading| Some((it.address.clone(), it.says.as_ref().err()?.clone()));
    let faults: Vec<_> = readings.iter().filter_map(fault).collect();
    let message = because(&format!("too few nodes tell who holds '{name}'"), &faults);
    Failure::new(code::NO_QUORUM, message)
}
