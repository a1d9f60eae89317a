//! Counts callers that wait for a lock, and tells which nodes can notify them. Knows no connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use quorlock_protocol::{Claim, CountWaiters, NodeId, Notice, Resources};

use super::{Manager, Redlock};
use crate::error::LockError;

impl Redlock {
    /// How many acquisitions wait for the lock in the nodes' queues: the middle one of the nodes' counts. It is a hint,
    /// as it may be out of date when it is returned. Callers of one engine that wait for the same lock by equal
    /// nodes and settings count once, and those that poll do not ([`WaitMode::Poll`](crate::WaitMode::Poll)).
    ///
    /// ```
    /// use quorlock::Redlock;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), quorlock::LockError> {
    /// let locks = Redlock::builder().nodes(["memory://a", "memory://b", "memory://c"]).build()?;
    /// assert_eq!(locks.waiters(["invoice:42"]).await?, 0);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QuorumUnreachable`](crate::ErrorKind::QuorumUnreachable) if too few nodes answer.
    pub async fn waiters<S: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = S>,
    ) -> Result<u32, LockError> {
        let claim = Claim { resources: Resources::new(names)?, holder: Manager::fresh_holder() };
        let (claim, manager) = (Arc::new(claim), &self.manager);
        manager.check_open(&claim.resources)?;
        manager.settle(None).await?;
        let now = manager.clock.now();
        let mut machine = CountWaiters::new(now, &claim, &manager.policy, manager.quorum);
        let counted = manager.driver().run(&mut machine, |_| {}).await;
        counted.result.map_err(|kind| {
            let spent = (1, manager.clock.now().since(now));
            manager.error(kind, &claim.resources, std::slice::from_ref(&counted.report), spent)
        })
    }

    /// What each node cannot do for callers that wait, in one sentence, in the order given: `None` where it can tell
    /// them that a lock is free, and where nobody has waited yet.
    pub fn push_faults(&self) -> Vec<Option<Arc<str>>> {
        self.manager.push_faults().collect()
    }
}

impl Manager {
    fn push_faults(&self) -> impl Iterator<Item = Option<Arc<str>>> {
        self.nodes.iter().map(|node| node.server()?.wake_lacks())
    }

    /// Work goes on without its lock.
    pub(crate) fn tell_degraded(&self, sentence: &str) {
        self.guards.tell(Notice::Degraded(sentence.into()));
    }

    /// A caller has waited: gives one notice of each node that cannot tell waiters that a lock is free.
    pub(crate) fn tell_of_push(&self) {
        for ((id, fault), told) in
            NodeId::all(self.nodes.len()).zip(self.push_faults()).zip(&self.told_no_push)
        {
            if let Some(why) = fault
                && !told.swap(true, Ordering::Relaxed)
            {
                self.guards.tell(Notice::NoPush(id, why));
            }
        }
    }
}
