//! The record beside a lock that says which holder has which fencing token. Owns its key and value;
//! a record proves nothing by itself: only keys on a quorum prove who holds a lock.
//!
//! A fence cannot tell who has a token: an attempt that was refused may have raised it. So a holder
//! whose sequencer is to be verified writes `token/lock-delay/holder id` to
//! `quorlock:sequencer:{KEY}`, with the ttl of the lock key, and again with each renewal.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use quorlock_protocol::{
    Claim, ErrorKind, Fault, FaultKind, HolderId, Inspect, Inspection, Resource, Resources,
    RoundReport, Standing, Vote,
};
use redis::{Cmd, Value};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::Sequencer;
use crate::error::LockError;
use crate::keys::lock_key;
use crate::manager::{Manager, Redlock};
use crate::node::{Node, ServerNode};
use crate::redis_node::of_record;

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
    lock_delay: Duration,
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
        resources: &Resources,
        record: &Record,
        key_ttl: Duration,
    ) -> Vec<oneshot::Receiver<Value>> {
        let (value, millis) = (record.text(), u64::try_from(key_ttl.as_millis()));
        let write = |key: &str| {
            let mut call = redis::cmd("SET");
            call.arg(key).arg(&value).arg("PX").arg(millis.unwrap_or(u64::MAX));
            call
        };
        // One answer a server is enough: its calls are carried out in order.
        self.servers().filter_map(|server| call_each(server, resources, write).pop()).collect()
    }

    /// Keeps the records beside the locks for `key_ttl` from now, without waiting.
    pub(crate) fn keep_record(&self, resources: &Resources, key_ttl: Duration) {
        let millis = u64::try_from(key_ttl.as_millis()).unwrap_or(u64::MAX);
        let keep = |key: &str| redis::cmd("PEXPIRE").arg(key).arg(millis).to_owned();
        for server in self.servers() {
            drop(call_each(server, resources, keep));
        }
    }

    /// Deletes the records beside the locks, without waiting.
    pub(crate) fn erase_record(&self, resources: &Resources) {
        let delete = |key: &str| redis::cmd("DEL").arg(key).to_owned();
        for server in self.servers() {
            drop(call_each(server, resources, delete));
        }
    }

    fn servers(&self) -> impl Iterator<Item = &dyn ServerNode> {
        self.nodes.iter().filter_map(|node| node.server())
    }

    /// What each node tells of the record beside the locks.
    async fn ask_records(&self, resources: &Resources) -> Told {
        let read = |key: &str| redis::cmd("GET").arg(key).to_owned();
        let asked = |node: &dyn Node| node.server().map(|it| call_each(it, resources, read));
        let mut told = Told(vec![None; self.nodes.len()]);
        let mut asking: FuturesUnordered<_> = self
            .nodes
            .iter()
            .map(|node| asked(&**node))
            .enumerate()
            .map(|(node, calls)| async move {
                let Some(calls) = calls else {
                    return (node, Err(Fault::new(FaultKind::Other, KEEPS_NONE)));
                };
                (node, common_record(calls).await)
            })
            .collect();
        let (limit, quorum) = (self.policy.node_timeout(), self.quorum.size());
        // A quorum tells of every lease that was recorded. The others are waited for as well, but not for long: some
        // of the quorum may have lost a record.
        let parts = [(limit.min(OF_ALL), usize::MAX), (limit.saturating_sub(OF_ALL), quorum)];
        for (time, enough) in parts {
            let reading = async {
                while told.answers() < enough
                    && let Some((node, says)) = asking.next().await
                {
                    told.0[node] = Some(says);
                }
            };
            // Without an answer by then, the others must do.
            let _ = timeout(time, reading).await;
        }
        drop(asking);
        told
    }
}

/// What the nodes tell of a record: `None` for one that has not answered.
struct Told(Vec<Option<Result<Option<Record>, Fault>>>);

impl Told {
    /// How many nodes have told whether there is a record.
    fn answers(&self) -> usize {
        self.0.iter().flatten().flatten().count()
    }

    /// The holders that nodes know for the token.
    fn records_of(&self, token: u64) -> BTreeSet<&Record> {
        self.0.iter().flatten().flatten().flatten().filter(|it| it.token == token).collect()
    }

    /// Puts what has kept nodes from telling into a round in which they have told something else.
    fn explain(&self, report: &mut RoundReport) {
        for (says, vote) in self.0.iter().zip(&mut report.votes) {
            let fault = match says {
                _ if vote.vote == Vote::Failed => continue,
                Some(Ok(_)) => continue,
                Some(Err(fault)) => fault.clone(),
                None => Fault::new(FaultKind::TimedOut, UNTOLD),
            };
            (vote.vote, vote.answer) = (Vote::Failed, Some(Err(fault)));
        }
    }
}

impl Redlock {
    /// Whether the lease behind `sequencer` is still the one that a quorum holds. The holder must
    /// have recorded it ([`Lease::record_sequencer`](crate::Lease::record_sequencer)).
    ///
    /// The answer is about the moment of the question: work that must never overlap checks the
    /// fencing token where it writes. Nodes of `memory://` keep no records.
    ///
    /// # Errors
    /// [`ErrorKind::QuorumUnreachable`] if too few nodes answer to tell.
    pub async fn verify(&self, sequencer: &Sequencer) -> Result<bool, LockError> {
        let resources = Resources::new(sequencer.resources())?;
        self.manager.check_open(&resources)?;
        if self.engine().is_current() {
            return self.verify_here(sequencer, &resources).await;
        }
        let (locks, asked, names) = (self.clone(), sequencer.clone(), resources.clone());
        let task = async move { locks.verify_here(&asked, &names).await };
        let closed =
            || Err(self.manager.error(ErrorKind::Closed, &resources, &[], (0, Duration::ZERO)));
        self.engine().spawn_awaited(task).await.unwrap_or_else(closed)
    }

    async fn verify_here(
        &self,
        sequencer: &Sequencer,
        resources: &Resources,
    ) -> Result<bool, LockError> {
        let manager = &*self.manager;
        manager.settle(None).await?;
        let told = manager.ask_records(resources).await;
        // A quorum was told of every lease that was recorded, so that one of any quorum knows it.
        let mut is_certain = told.answers() >= manager.quorum.size();
        let mut unclear = None;
        for record in told.records_of(sequencer.token()) {
            let inspection = manager.inspect_holder(record, resources).await?;
            match &inspection.standing {
                Standing::Held(lease) if lease.until() > manager.clock.now() => return Ok(true),
                Standing::Held(_) | Standing::NotHeld => {}
                Standing::Unknown => (is_certain, unclear) = (false, Some(inspection)),
            }
        }
        if is_certain {
            return Ok(false);
        }
        let inspection = if let Some(inspection) = unclear {
            inspection
        } else {
            // Which nodes cannot be asked is told by a round.
            let holder = Manager::fresh_holder();
            let mut inspection = manager.look(holder, resources, manager.policy).await;
            told.explain(&mut inspection.report);
            inspection
        };
        let spent = (1, manager.clock.now().since(inspection.report.started));
        let rounds = [inspection.report];
        Err(manager.error(ErrorKind::QuorumUnreachable, resources, &rounds, spent))
    }
}

impl Manager {
    async fn inspect_holder(
        &self,
        record: &Record,
        resources: &Resources,
    ) -> Result<Inspection, LockError> {
        let policy = self.policy.to_builder().lock_delay(record.lock_delay).build()?;
        Ok(self.look(HolderId::adopt(&record.holder)?, resources, policy).await)
    }

    async fn look(
        &self,
        holder: HolderId,
        resources: &Resources,
        policy: quorlock_protocol::Policy,
    ) -> Inspection {
        let claim = Arc::new(Claim { resources: resources.clone(), holder });
        self.inspect(Inspect::new(self.clock.now(), &claim, policy, self.quorum)).await
    }
}

/// The record that stands beside all of the locks on one server.
async fn common_record(calls: Vec<oneshot::Receiver<Value>>) -> Result<Option<Record>, Fault> {
    let mut common: Option<Option<Record>> = None;
    for call in calls {
        let Ok(reply) = call.await else {
            return Err(Fault::new(FaultKind::Broken, CUT_OFF));
        };
        let record = match reply {
            Value::BulkString(bytes) => std::str::from_utf8(&bytes).ok().and_then(Record::parse),
            Value::Nil => None,
            other => return Err(of_record(&other)),
        };
        common = Some(match common {
            Some(other) if other != record => None,
            _ => record,
        });
    }
    Ok(common.flatten())
}

/// Makes a call for each of the records on one server.
fn call_each(
    server: &dyn ServerNode,
    resources: &Resources,
    call: impl Fn(&str) -> Cmd,
) -> Vec<oneshot::Receiver<Value>> {
    let key = |resource: &Resource| Record::key(&lock_key(server.key_prefix(), resource));
    resources.as_slice().iter().map(|resource| server.call(call(&key(resource)))).collect()
}

const KEEPS_NONE: &str = "nodes of memory:// keep no records of sequencers";
const CUT_OFF: &str = "the connection was lost before it told its record of the sequencer, as it is by one above \
                       64 KiB: look at quorlock:sequencer:* with STRLEN, then delete or rename what is foreign";
/// How long all nodes are waited for: as long as one has to answer if nothing else is set.
const OF_ALL: Duration = Duration::from_millis(250);
const UNTOLD: &str = "it has not told its record of the sequencer in time";

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
