//! The record beside a lock that says which holder has which fencing token. Owns its key and value;
//! a record proves nothing by itself: only keys on a quorum prove who holds a lock.
//!
//! A fence cannot tell who has a token: an attempt that was refused may have raised it. So a holder
//! whose sequencer is to be verified writes `token/lock-delay/holder id` to
//! `quorlock:sequencer:{KEY}`, for as long as the lock key stands, and again with each renewal.

use std::time::Duration;

use quorlock_protocol::{Claim, HolderId};
use redis::Value;
use tokio::sync::oneshot;

use crate::manager::Manager;
use crate::node::ServerNode;
use crate::records::{self, Deed};

/// Which holder has which token, as it stands beside a lock whose holder has recorded its sequencer
/// ([`Lease::record_sequencer`](crate::Lease::record_sequencer)).
///
/// ```
/// use quorlock::SequencerRecord;
///
/// assert_eq!(SequencerRecord::key("app:invoice:42"), "quorlock:sequencer:{app:invoice:42}");
/// let record = SequencerRecord::parse("17/0/5f0c").expect("token, lock-delay, holder id");
/// assert_eq!((record.token(), record.holder()), (17, "5f0c"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Record {
    token: u64,
    /// How much longer the keys are kept than the lease lasts.
    pub(super) lock_delay: Duration,
    holder: String,
}

impl Record {
    pub(crate) fn new(token: u64, lock_delay: Duration, holder: &HolderId) -> Self {
        Self { token, lock_delay, holder: holder.as_str().to_owned() }
    }

    /// The name of the record's key; `lock_key` is the name of the lock behind the node's prefix.
    pub fn key(lock_key: &str) -> String {
        format!("quorlock:sequencer:{{{lock_key}}}")
    }

    /// The fencing token.
    pub const fn token(&self) -> u64 {
        self.token
    }

    /// The holder id, which is the value of the lock key while the record is true.
    pub fn holder(&self) -> &str {
        &self.holder
    }

    fn text(&self) -> String {
        format!("{}/{}/{}", self.token, self.lock_delay.as_millis(), self.holder)
    }

    /// Reads the value of the key; `None` if it is no record.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '/');
        let token = parts.next()?.parse().ok()?;
        let lock_delay = Duration::from_millis(parts.next()?.parse().ok()?);
        Some(Self { token, lock_delay, holder: parts.next()?.to_owned() })
    }
}

impl Manager {
    /// Writes `record` beside the locks on every server; the answers can be awaited.
    pub(crate) fn write_record(
        &self,
        claim: &Claim,
        record: &Record,
        key_ttl: Duration,
    ) -> Vec<oneshot::Receiver<Value>> {
        let value = record.text();
        let write = Deed::Write(&value, key_ttl);
        // One answer a server is enough: its calls are carried out in order.
        self.servers()
            .filter_map(|server| records::alter(server, claim, Record::key, write).pop())
            .collect()
    }

    /// Keeps the records for as long as the lock keys stand, without waiting.
    pub(crate) fn keep_record(&self, claim: &Claim, key_ttl: Duration) {
        for server in self.servers() {
            drop(records::alter(server, claim, Record::key, Deed::Keep(key_ttl)));
        }
    }

    /// Deletes the records beside the locks, without waiting; see [`Deed::Delete`].
    pub(crate) fn erase_record(&self, claim: &Claim, max_remaining: Option<Duration>) {
        let nodes = self.nodes_for_release();
        for server in nodes.iter().filter_map(|node| node.server()) {
            drop(records::alter(server, claim, Record::key, Deed::Delete(max_remaining)));
        }
    }

    fn servers(&self) -> impl Iterator<Item = &dyn ServerNode> {
        self.nodes.iter().filter_map(|node| node.server())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let holder = HolderId::adopt("a/b").unwrap();
        let record = Record::new(7, Duration::from_millis(1_500), &holder);
        assert_eq!(record.text(), "7/1500/a/b");
        assert_eq!(Record::parse(&record.text()), Some(record));
        for text in ["", "7", "7/0", "x/0/a", "7/x/a"] {
            assert_eq!(Record::parse(text), None, "{text}");
        }
    }
}
