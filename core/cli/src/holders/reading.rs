//! What each node says of one lock, read without changing it. Owns what that adds up to.

use std::time::Duration;

use quorlock::{Address, Fault, Holder, SequencerRecord, ServerConnection, ServerReply};

use crate::context::Context;
use crate::failure::{Failure, code};

/// What one node says.
pub(super) struct Reading {
    pub(super) address: String,
    pub(super) says: Result<Option<Key>, Fault>,
}

/// A lock's key on one node.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Key {
    /// Its value.
    pub(super) holder: String,
    /// How much longer the node keeps it; `None` for ever.
    pub(super) left: Option<Duration>,
    /// What the holder says of itself.
    pub(super) owner: Option<Holder>,
    /// The holder's fencing token, if it has recorded it.
    pub(super) token: Option<u64>,
    /// How many callers wait in the node's queue, if it tells.
    pub(super) waiters: Option<i64>,
}

/// What a quorum says.
pub(super) enum Quorum {
    Free,
    /// Nobody else can get it; with the value of most of the keys.
    Held(String),
    Unknown,
}

/// Asks every node.
pub(super) fn of(context: &Context, name: &str) -> Vec<Reading> {
    let reads = async |connection: &mut ServerConnection, address: &Address| {
        read(connection, address, name).await
    };
    let answers = context.engine.block_on(context.each_node(&reads));
    let readings = context.addresses.iter().zip(answers);
    readings.map(|(address, says)| Reading { address: address.to_string(), says }).collect()
}

async fn read(
    connection: &mut ServerConnection,
    address: &Address,
    name: &str,
) -> Result<Option<Key>, Fault> {
    let key = format!("{}{name}", address.key_prefix());
    let holder = match connection.ask(&["GET", &key]).await? {
        ServerReply::Text(holder) => holder,
        ServerReply::Nothing => return Ok(None),
        other => return Err(refused(&other)),
    };
    let left = match connection.ask(&["PTTL", &key]).await?.number() {
        Some(-2) => return Ok(None),
        Some(left) => u64::try_from(left).ok().map(Duration::from_millis),
        None => None,
    };
    let record = connection.ask(&["GET", &SequencerRecord::key(&key)]).await?;
    let record = record.text().and_then(SequencerRecord::parse);
    let token = record.filter(|record| record.holder() == holder).map(|record| record.token());
    let owner = connection.ask(&["GET", &Holder::record_key(&key)]).await?;
    let owner = owner.text().and_then(|text| Holder::parse(text, &holder));
    let waiters = connection.waiters(&key).await?;
    Ok(Some(Key { holder, left, owner, token, waiters }))
}

/// The fault of a node that does not tell.
fn refused(reply: &ServerReply) -> Fault {
    let words = reply.refusal().unwrap_or("it answered something else than a key");
    Fault::new(quorlock::FaultKind::Other, format!("it does not tell: {words}"))
}

/// What the readings add up to.
pub(super) fn quorum(readings: &[Reading]) -> Quorum {
    let majority = readings.len() / 2 + 1;
    let keys: Vec<&Key> = keys(readings).collect();
    let free = readings.iter().filter(|reading| matches!(reading.says, Ok(None))).count();
    if keys.len() > readings.len() - majority {
        let count = |holder: &str| keys.iter().filter(|key| key.holder == holder).count();
        let most = keys.iter().max_by_key(|key| count(&key.holder));
        return Quorum::Held(most.map_or_else(String::new, |key| key.holder.clone()));
    }
    if free >= majority { Quorum::Free } else { Quorum::Unknown }
}

/// The different values of the keys.
pub(super) fn holders(readings: &[Reading]) -> Vec<String> {
    let mut holders: Vec<String> = keys(readings).map(|key| key.holder.clone()).collect();
    holders.sort();
    holders.dedup();
    holders
}

/// What the holder with this id says of itself, to any node.
pub(super) fn owner<'a>(readings: &'a [Reading], holder: &str) -> Option<&'a Holder> {
    keys(readings).filter(|key| key.holder == holder).find_map(|key| key.owner.as_ref())
}

/// The holder in words: its id, and what it says of itself.
pub(super) fn named(readings: &[Reading], holder: &str) -> String {
    match owner(readings, holder) {
        None => printable(holder),
        Some(owner) => format!("{} ({owner})", printable(holder)),
    }
}

/// The holder's id without characters that a terminal would obey: others have written it. (What it
/// says of itself has none any more when it has been read.)
pub(super) fn printable(id: &str) -> String {
    id.replace(char::is_control, "\u{fffd}")
}

pub(super) fn keys(readings: &[Reading]) -> impl Iterator<Item = &Key> {
    readings.iter().filter_map(|reading| reading.says.as_ref().ok()?.as_ref())
}

/// The failure where too few nodes tell.
pub(super) fn unknown(name: &str, readings: &[Reading]) -> Failure {
    let faults: Vec<String> = readings
        .iter()
        .filter_map(|it| Some(format!("{}: {}", it.address, it.says.as_ref().err()?)))
        .collect();
    Failure::new(
        code::NO_QUORUM,
        format!("too few nodes tell who holds '{name}': {}", faults.join("; ")),
    )
}
