//! The records beside a lock key, of its holder and of its sequencer, as calls to a server. Owns how one is written, kept
//! and deleted; what stands in them belongs to `owner` and `sequencer`.

use std::time::Duration;

use quorlock_protocol::{Claim, Resources};
use redis::{Cmd, Value};
use tokio::sync::oneshot;

use crate::keys::lock_key;
use crate::node::ServerNode;

/// What is to become of a record, while the lock key is its holder's.
#[derive(Clone, Copy)]
pub(crate) enum Deed<'a> {
    /// It has this value for as long as the lock key stands, and at least for this time.
    Write(&'a str, Duration),
    /// It stays as it is, if it is there, for as long.
    Keep(Duration),
    /// It is deleted, also where the lock key is gone; where more than this time is left of the lock key, it stays.
    Delete(Option<Duration>),
}

/// Does that with the record beside each lock key of the claim, whose name `record_key` gives.
pub(crate) fn alter(
    server: &dyn ServerNode,
    claim: &Claim,
    record_key: fn(&str) -> String,
    deed: Deed<'_>,
) -> Vec<oneshot::Receiver<Value>> {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let (ttl, value) = match deed {
        Deed::Write(value, ttl) => (millis(ttl), value.to_owned()),
        Deed::Keep(ttl) => (millis(ttl), String::new()),
        Deed::Delete(most) => (0, most.map(|most| millis(most).to_string()).unwrap_or_default()),
    };
    call_each(server, &claim.resources, record_key, |record, lock| {
        let mut call = redis::cmd("EVAL");
        call.arg(include_str!("scripts/record.lua")).arg(2).arg(record).arg(lock);
        call.arg(claim.holder.as_str()).arg(ttl).arg(&value);
        call
    })
}

/// Makes a call for the record beside each lock key of the resources, with the names of both.
pub(crate) fn call_each(
    server: &dyn ServerNode,
    resources: &Resources,
    record_key: fn(&str) -> String,
    call: impl Fn(&str, &str) -> Cmd,
) -> Vec<oneshot::Receiver<Value>> {
    let locks = resources.as_slice().iter().map(|it| lock_key(server.key_prefix(), it));
    locks.map(|lock| server.call(call(&record_key(&lock), &lock))).collect()
}
