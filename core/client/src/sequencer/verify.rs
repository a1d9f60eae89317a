//! Whether the lease behind a sequencer is still the one that is held. Owns when the nodes' answers are
//! enough to say so.
//!
//! A record that is missing proves nothing where its node may have lost it. So each node is also asked whose key the
//! lock is: "not held" is certain where no holder can have a quorum of keys but those who are known to be another lease.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use quorlock_protocol::{
    Answer, Claim, ErrorKind, Fault, FaultKind, Frees, HolderId, Inspect, Inspection, Moment,
    NodeVote, Quorum, Resources, RoundReport, Standing, Vote,
};
use redis::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{Record, Sequencer};
use crate::error::LockError;
use crate::keys::lock_key;
use crate::manager::{Manager, Redlock};
use crate::node::{Node, NodeState};
use crate::records;
use crate::redis_node::{of_key, of_record};

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
        let records = told.records_of(sequencer.token());
        // No two leases have the same token: once its record is known, only that lease matters.
        let is_open = records.is_empty() && !told.is_enough(manager.quorum);
        let mut unclear = is_open.then(|| told.report());
        for record in records {
            let inspection = manager.inspect_holder(record, resources).await?;
            match inspection.standing {
                Standing::Held(lease) if lease.until() > manager.clock.now() => return Ok(true),
                Standing::Held(_) | Standing::NotHeld => {}
                Standing::Unknown => unclear = Some(inspection.report),
            }
        }
        let Some(report) = unclear else { return Ok(false) };
        let spent = (1, manager.clock.now().since(report.started));
        Err(manager.error(ErrorKind::QuorumUnreachable, resources, &[report], spent))
    }
}

impl Manager {
    /// What each node tells of the record beside the locks.
    async fn ask_records(&self, resources: &Resources) -> Told {
        let began = self.clock.now();
        let mut told = Told { began, nodes: vec![None; self.nodes.len()] };
        let ask = |(number, node)| async move { (number, ask_node(node, resources).await) };
        let nodes = self.nodes.iter().map(|node| &**node).enumerate();
        let mut asking: FuturesUnordered<_> = nodes.map(ask).collect();
        let limit = self.policy.node_timeout();
        // All are waited for, but not for long: some may have lost a record.
        let parts = [(limit.min(OF_ALL), false), (limit.saturating_sub(OF_ALL), true)];
        for (time, may_end) in parts {
            let reading = async {
                while !(may_end && told.is_enough(self.quorum))
                    && let Some((node, says)) = asking.next().await
                {
                    told.nodes[node] = Some((says, self.clock.now().since(began)));
                }
            };
            // Without an answer by then, the others must do.
            let _ = timeout(time, reading).await;
        }
        drop(asking);
        told
    }

    async fn inspect_holder(
        &self,
        record: &Record,
        resources: &Resources,
    ) -> Result<Inspection, LockError> {
        let policy = self.policy.to_builder().lock_delay(record.lock_delay).build()?;
        let holder = HolderId::adopt(record.holder())?;
        let claim = Arc::new(Claim { resources: resources.clone(), holder });
        Ok(self.inspect(Inspect::new(self.clock.now(), &claim, policy, self.quorum)).await)
    }
}

/// What one server tells.
#[derive(Clone, Debug, Default)]
struct Says {
    /// The record that stands beside all of the locks.
    record: Option<Record>,
    /// The value of all of the locks' keys: those of a lease have the same.
    key: Option<Vec<u8>>,
}

impl Says {
    /// Whether the holder with this key has recorded its lease here.
    fn has_recorded(&self, key: &[u8]) -> bool {
        self.record.as_ref().is_some_and(|record| record.holder().as_bytes() == key)
    }

    /// What a look at the locks would answer somebody else.
    const fn answer(&self) -> Answer {
        match self.key {
            Some(_) => Answer::Theirs { floor: None, frees: Frees::Unknown },
            None => Answer::Absent,
        }
    }
}

/// What the nodes tell of a record, and how long each took: `None` for one that has not answered.
struct Told {
    began: Moment,
    nodes: Vec<Option<(Result<Says, Fault>, Duration)>>,
}

impl Told {
    fn answers(&self) -> impl Iterator<Item = &Says> + Clone {
        self.nodes.iter().flatten().filter_map(|(says, _)| says.as_ref().ok())
    }

    /// Whether no node that has not told could make a difference: nobody can have a quorum of the keys but holders whose
    /// record is known, or whose key a quorum has without a record.
    fn is_enough(&self, quorum: Quorum) -> bool {
        let silent = self.nodes.len() - self.answers().count();
        let keys: BTreeSet<_> = self.answers().filter_map(|says| says.key.as_deref()).collect();
        let is_clear = |key: &&[u8]| {
            let with_key = self.answers().filter(|says| says.key.as_deref() == Some(*key)).count();
            let is_recorded = self.answers().any(|says| says.has_recorded(key));
            is_recorded || with_key >= quorum.size() || with_key + silent < quorum.size()
        };
        silent < quorum.size() && keys.iter().all(is_clear)
    }

    /// The records of the token.
    fn records_of(&self, token: u64) -> BTreeSet<&Record> {
        let records = self.answers().filter_map(|says| says.record.as_ref());
        records.filter(|record| record.token() == token).collect()
    }

    /// The same as the votes of a round.
    fn report(&self) -> RoundReport {
        let vote = |told: &Option<(Result<Says, Fault>, Duration)>| {
            let (answer, took) = match told {
                Some((Ok(says), took)) => (Ok(says.answer()), *took),
                Some((Err(fault), took)) => (Err(fault.clone()), *took),
                None => (Err(Fault::new(FaultKind::TimedOut, UNTOLD)), Duration::ZERO),
            };
            NodeVote { vote: Vote::of(Some(&answer)), answer: Some(answer), took }
        };
        let votes = self.nodes.iter().map(vote).collect();
        RoundReport { started: self.began, votes, ..RoundReport::default() }
    }
}

/// What one node tells.
async fn ask_node(node: &dyn Node, resources: &Resources) -> Result<Says, Fault> {
    let calls = node.server().map(|server| {
        let read = |key: &str| redis::cmd("GET").arg(key).to_owned();
        let key = |resource| server.call(read(&lock_key(server.key_prefix(), resource)));
        // In this order, a record that a holder makes meanwhile is not missed.
        let keys: Vec<_> = resources.as_slice().iter().map(key).collect();
        (keys, records::call_each(server, resources, Record::key, |record, _| read(record)))
    });
    let Some((keys, records)) = calls else {
        return Err(Fault::new(FaultKind::Other, KEEPS_NONE));
    };
    let told = async {
        let key = common(keys, holder_of).await?;
        Ok::<_, Fault>(Says { record: common(records, record_of).await?, key })
    };
    match (told.await, node.state()) {
        (Err(fault), NodeState::Down(why)) if fault.kind() == FaultKind::Broken => Err(why),
        (told, _) => told,
    }
}

/// What stands beside, or in, all of the locks on one server.
async fn common<T: PartialEq>(
    calls: Vec<oneshot::Receiver<Value>>,
    read: impl Fn(Value) -> Result<Option<T>, Fault>,
) -> Result<Option<T>, Fault> {
    let mut common: Option<Option<T>> = None;
    for call in calls {
        let value = read(call.await.map_err(cut_off)?)?;
        common = Some(match common {
            Some(other) if other != value => None,
            _ => value,
        });
    }
    Ok(common.flatten())
}

fn record_of(reply: Value) -> Result<Option<Record>, Fault> {
    match reply {
        Value::BulkString(bytes) => Ok(std::str::from_utf8(&bytes).ok().and_then(Record::parse)),
        Value::Nil => Ok(None),
        other => Err(of_record(&other)),
    }
}

fn holder_of(reply: Value) -> Result<Option<Vec<u8>>, Fault> {
    match reply {
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::Nil => Ok(None),
        other => match of_key(&other) {
            // No lease has such a key.
            fault if fault.kind() == FaultKind::WrongType => Ok(None),
            fault => Err(fault),
        },
    }
}

fn cut_off(_: oneshot::error::RecvError) -> Fault {
    Fault::new(FaultKind::Broken, CUT_OFF)
}

const KEEPS_NONE: &str = "nodes of memory:// keep no records of sequencers";
const CUT_OFF: &str = "the connection was lost before it told its record of the sequencer, as it is by one above \
                       64 KiB: look at quorlock:sequencer:* with STRLEN, then delete or rename what is foreign";
/// How long all nodes are waited for: as long as one has to answer if nothing else is set.
const OF_ALL: Duration = Duration::from_millis(250);
const UNTOLD: &str = "it has not told its record of the sequencer in time";
