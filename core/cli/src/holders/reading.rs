//! Judges what the nodes say of one lock: who holds it by quorum, and until when. Asks nothing.

use std::time::Duration;

use quorlock::{Fault, Holder, SequencerRecord};

use super::value::Value;
use crate::failure::{NodeFault, because};

/// What one node says.
pub(super) struct Reading {
    pub(super) address: String,
    pub(super) says: Says,
}

/// The lock's key, if the node has one, or why it does not tell.
pub(super) type Says = Result<Option<Key>, Fault>;

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

impl Key {
    /// Takes in what stands beside the key, if it is of the same holder: its sequencer's record, and what it says of
    /// itself. Both are of holders whose id is a text.
    pub(super) fn learn(&mut self, record: Option<&Value>, owner: Option<&Value>) {
        let Some(id) = self.holder.text() else { return };
        let record = record.and_then(Value::text).and_then(SequencerRecord::parse);
        self.token = record.filter(|it| it.holder() == id).map(|record| record.token());
        self.owner = owner.and_then(Value::text).and_then(|text| Holder::parse(text, id));
    }
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

/// What keeps nodes from telling.
pub(super) fn faults(readings: &[Reading]) -> Vec<NodeFault> {
    let fault = |it: &Reading| Some((it.address.clone(), it.says.as_ref().err()?.clone()));
    readings.iter().filter_map(fault).collect()
}

/// The sentence where too few nodes tell.
pub(super) fn unknown(name: &str, readings: &[Reading]) -> String {
    because(&format!("too few nodes tell who holds '{name}'"), &faults(readings))
}
