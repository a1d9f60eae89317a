//! The records beside a lock, of its holder and of its sequencer, as calls to a server. Owns how one is written, kept
//! and deleted; what stands in them belongs to `owner` and `sequencer`.

use std::time::Duration;

use redis::Cmd;

/// Writes `value` into the record `key`, for at least `ttl` from now.
pub(crate) fn write(key: &str, value: &str, ttl: Duration) -> Cmd {
    let millis = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    let mut call = redis::cmd("EVAL");
    call.arg(include_str!("scripts/record.lua")).arg(1).arg(key).arg(value).arg(millis);
    call
}

/// Keeps the record `key`, if there is one, for at least `ttl` from now.
pub(crate) fn keep(key: &str, ttl: Duration) -> Cmd {
    write(key, "", ttl)
}

/// Deletes the record `key`.
pub(crate) fn delete(key: &str) -> Cmd {
    redis::cmd("DEL").arg(key).to_owned()
}
