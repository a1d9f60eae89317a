//! Writes and reads the records that say who holds a lock. Owns their key, and how a quorum of them is
//! read; nothing that is written is waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use quorlock_protocol::{Claim, ErrorKind, Resource, Resources};
use redis::Value;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::error::LockError;
use crate::keys::lock_key;
use crate::manager::{Manager, Redlock};
use crate::node::Node;
use crate::owner::{Holder, Owner};
use crate::records::{self, Deed};

impl Manager {
    /// Writes who holds the locks beside them, for as long as their keys stand, without waiting.
    pub(crate) fn write_owner(
        &self,
        owner: &Owner,
        claim: &Claim,
        (since, key_ttl): (SystemTime, Duration),
    ) {
        let value = owner.record(&claim.holder, since);
        Self::alter_owner(&self.nodes, claim, Deed::Write(&value, key_ttl));
    }

    /// Keeps what a holder has written for as long as the keys stand, without waiting.
    pub(crate) fn keep_owner(&self, claim: &Claim, key_ttl: Duration) {
        Self::alter_owner(&self.nodes, claim, Deed::Keep(key_ttl));
    }

    /// Deletes what was written, without waiting.
    pub(crate) fn erase_owner(&self, claim: &Claim, max_remaining: Option<Duration>) {
        Self::alter_owner(&self.nodes_for_release(), claim, Deed::Delete(max_remaining));
    }

    fn alter_owner(nodes: &[Arc<dyn Node>], claim: &Claim, deed: Deed<'_>) {
        for server in nodes.iter().filter_map(|node| node.server()) {
            drop(records::alter(server, claim, Holder::record_key, deed));
        }
    }

    /// Who holds the resource by a quorum; `None` if nobody does, or too few nodes tell.
    pub(crate) async fn holder_of(&self, resource: &Resource) -> Option<Holder> {
        let read = |key: &str| redis::cmd("GET").arg(key).to_owned();
        let servers = self.nodes.iter().filter_map(|node| node.server());
        let mut asked: FuturesUnordered<_> = servers
            .map(|server| {
                let lock = lock_key(server.key_prefix(), resource);
                let holder = server.call(read(&lock));
                let owner = server.call(read(&Holder::record_key(&lock)));
                async { (text(holder).await, text(owner).await) }
            })
            .collect();
        let mut known: BTreeMap<String, (usize, Option<Holder>)> = BTreeMap::new();
        let quorum = self.quorum.size();
        let reading = async {
            while let Some((holder, owner)) = asked.next().await {
                let Some(holder) = holder else { continue };
                let told = owner.and_then(|text| Holder::parse(&text, &holder));
                let entry = known.entry(holder).or_default();
                entry.0 += 1;
                entry.1 = entry.1.take().or(told);
                if entry.0 >= quorum && entry.1.is_some() {
                    break;
                }
            }
        };
        // What has not come by then is not waited for.
        let _ = timeout(self.policy.node_timeout(), reading).await;
        let held = known.into_values().find(|(nodes, _)| *nodes >= quorum);
        held.map(|(_, holder)| holder.unwrap_or_default())
    }

    /// Says in the error of a refused lock who holds it, where managers tell of themselves.
    pub(crate) async fn name_holder(&self, resources: &Resources, error: LockError) -> LockError {
        let is_refused =
            matches!(error.kind(), ErrorKind::NotAcquired | ErrorKind::AcquireTimedOut);
        if self.owner.is_none() || !is_refused {
            return error;
        }
        for resource in resources.as_slice() {
            if let Some(holder) = self.holder_of(resource).await.filter(|it| it.since.is_some()) {
                return error.naming(&holder);
            }
        }
        error
    }
}

impl Redlock {
    /// Who holds the resource `name`: what its holder says of itself, if its manager was built with
    /// [`Builder::owner`](crate::Builder::owner). `None` if nobody holds it, or too few nodes tell.
    /// Nodes of `memory://` keep no such records.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the name is not valid, [`ErrorKind::Closed`] after a close.
    pub async fn holder(&self, name: &str) -> Result<Option<Holder>, LockError> {
        let resources = Resources::new([name])?;
        self.manager.check_open(&resources)?;
        let locks = self.clone();
        let asking = async move {
            locks.manager.settle(None).await?;
            let resource = &resources.as_slice()[0];
            Ok(locks.manager.holder_of(resource).await)
        };
        if self.engine().is_current() {
            return asking.await;
        }
        self.engine().spawn_awaited(asking).await.unwrap_or(Ok(None))
    }
}

async fn text(answer: oneshot::Receiver<Value>) -> Option<String> {
    match answer.await.ok()? {
        Value::BulkString(bytes) => String::from_utf8(bytes).ok(),
        _ => None,
    }
}
