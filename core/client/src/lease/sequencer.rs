//! The sequencer of a lease, and the record by which others can verify it. Owns when the record is
//! written and deleted.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use redis::Value;
use tokio::time::timeout;

use super::{Lease, Shared};
use crate::sequencer::{Record, Sequencer};

impl Lease {
    /// The lease as a text that can be handed to others; `None` without a fencing token.
    pub fn sequencer(&self) -> Option<Sequencer> {
        Sequencer::new(self.resources(), self.fencing_token()?).ok()
    }

    /// Writes to the nodes which holder has the fencing token, so that
    /// [`Redlock::verify`](crate::Redlock::verify) can tell; again with each renewal from now on,
    /// until the release. Returns whether a quorum has it, at the latest after the time that a node
    /// has to answer. Dropping the future does not end the recording.
    ///
    /// ```no_run
    /// # async fn example(locks: quorlock::Redlock) -> Result<(), quorlock::LockError> {
    /// let lease = locks.lock("invoice:42").auto_extend(true).acquire().await?;
    /// lease.record_sequencer().await;
    /// if let Some(sequencer) = lease.sequencer() {
    ///     assert!(locks.verify(&sequencer).await?);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn record_sequencer(&self) -> bool {
        let lease = self.clone();
        let recording = async move { lease.record_here().await };
        if self.engine().is_current() {
            return recording.await;
        }
        self.engine().spawn_awaited(recording).await.unwrap_or(false)
    }

    async fn record_here(&self) -> bool {
        let shared = &self.shared;
        let mut asked: FuturesUnordered<_> = shared.write_record().into_iter().collect();
        shared.lock().extras().is_recorded = true;
        let (mut written, quorum) = (0, shared.manager.quorum.size());
        let writing = async {
            while let Some(answer) = asked.next().await {
                written += usize::from(matches!(answer, Ok(Value::Okay)));
                if written >= quorum {
                    break;
                }
            }
        };
        let _ = timeout(shared.manager.policy.node_timeout(), writing).await;
        written >= quorum
    }

    /// Deletes the record, if there is one.
    pub(super) fn erase_record(&self, max_remaining: Option<Duration>) {
        let mut state = self.shared.lock();
        let is_recorded =
            state.extras.as_mut().map(|extras| std::mem::take(&mut extras.is_recorded));
        drop(state);
        if is_recorded == Some(true) {
            self.shared.manager.erase_record(&self.shared.claim, max_remaining);
        }
    }
}

impl Shared {
    /// The keys are kept for longer now, and so are the records of the sequencer and of the holder.
    /// Those of a lease that was taken over stay as its holder wrote them: its fencing token may have
    /// grown since. Waits for nothing.
    pub(super) fn prolong_records(&self) {
        let state = self.lock();
        let is_recorded = state.extras.as_ref().is_some_and(|extras| extras.is_recorded);
        let key_ttl = state.life.policy().key_ttl().as_duration();
        drop(state);
        if is_recorded {
            drop(self.write_record());
        }
        if self.is_acquired() {
            return self.write_owner();
        }
        self.manager.keep_owner(&self.claim, key_ttl);
        if !is_recorded {
            self.manager.keep_record(&self.claim, key_ttl);
        }
    }

    fn write_record(&self) -> Vec<tokio::sync::oneshot::Receiver<Value>> {
        let state = self.lock();
        let (policy, token) = (**state.life.policy(), state.life.fencing_token());
        let is_valid = !state.life.validity(self.now()).is_zero();
        drop(state);
        // Afterwards the place may be another holder's.
        let Some(token) = token.filter(|_| is_valid) else {
            return Vec::new();
        };
        let record = Record::new(token.0, policy.lock_delay(), &self.claim.holder);
        let key_ttl = policy.key_ttl().as_duration();
        self.manager.write_record(&self.claim, &record, key_ttl)
    }
}
