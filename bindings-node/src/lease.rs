//! The functions that JavaScript calls on a lease of the core. Converts in and calls; decides
//! nothing.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use napi::bindgen_prelude::External;
use napi_derive::napi;
use quorlock::embed::UndeliveredLease;
use quorlock::{Lease, LeaseGuard, LockError, ReleaseVotes, Vote};

use crate::errors::Failure;
use crate::leases::RunsOut;
use crate::numbers::millis;
use crate::options;
use crate::outcome::Outcome;
use crate::queue::Queue;
use crate::votes::NodeVote;

/// A held lease. Once JavaScript has collected the last object that refers to it, it is no longer
/// renewed.
pub struct LeaseHandle {
    lease: Lease,
    /// Present until [`deliver`]; takes the lease back when it is dropped.
    undelivered: Mutex<Option<UndeliveredLease>>,
    queue: Arc<Queue>,
    /// The nodes' answers to its release.
    votes: OnceLock<ReleaseVotes>,
}

/// The caller of `acquire` continues with the lease now. Until then, the end of the environment takes it back.
#[napi]
pub fn deliver(handle: &External<Arc<LeaseHandle>>) {
    let delivered = handle.take_undelivered().map(UndeliveredLease::deliver);
    delivered.map(LeaseGuard::into_lease);
}

/// The number that the protected resource checks. Below 2^53, so that it is exact.
#[napi]
#[allow(clippy::cast_precision_loss)]
pub fn fencing_token(handle: &External<Arc<LeaseHandle>>) -> Option<f64> {
    handle.lease.fencing_token().map(|token| token as f64)
}

/// Whether it is no lock, and the work goes on without it.
#[napi]
pub fn degraded(handle: &External<Arc<LeaseHandle>>) -> bool {
    handle.lease.is_degraded()
}

/// Why it could not be locked, if it is degraded.
#[napi]
pub fn why_degraded(handle: &External<Arc<LeaseHandle>>) -> Option<Failure> {
    handle.lease.why_degraded().map(|error| Failure::new(&error))
}

/// How much longer the lease may be trusted, in milliseconds.
#[napi]
pub fn validity(handle: &External<Arc<LeaseHandle>>) -> f64 {
    millis(handle.lease.validity())
}

/// What every node did in the last round for the lease: its acquisition, extension or renewal.
#[napi]
pub fn votes(handle: &External<Arc<LeaseHandle>>) -> Vec<NodeVote> {
    NodeVote::list(&handle.lease.votes())
}

/// The rounds that were lost before the one that was won, oldest first.
#[napi]
pub fn lost_rounds(handle: &External<Arc<LeaseHandle>>) -> Vec<Vec<NodeVote>> {
    handle.lease.lost_rounds().iter().map(|round| NodeVote::list(round)).collect()
}

/// The nodes' answers to the release so far; empty before the release.
#[napi]
pub fn release_votes(handle: &External<Arc<LeaseHandle>>) -> Vec<NodeVote> {
    handle.votes.get().map(|votes| NodeVote::list(&votes.now())).unwrap_or_default()
}

/// Keeps the lease for `duration` from now; ends with its validity.
#[napi]
pub fn extend(handle: &External<Arc<LeaseHandle>>, id: u32, duration: f64) {
    let lease = handle.lease.clone();
    handle.queue.run(handle.lease.engine(), id, async move {
        let ttl = match options::ttl(duration) {
            Ok(ttl) => ttl,
            Err(error) => return LockError::from(error).into(),
        };
        match lease.extend(Some(ttl)).await {
            Ok(validity) => Outcome::Validity(validity),
            Err(error) => error.into(),
        }
    });
}

/// Asks the nodes whether they still hold the lease; ends with its validity.
#[napi]
pub fn check(handle: &External<Arc<LeaseHandle>>, id: u32) {
    let lease = handle.lease.clone();
    handle.queue.run(handle.lease.engine(), id, async move {
        match lease.check().await {
            Ok(validity) => Outcome::Validity(validity),
            Err(error) => error.into(),
        }
    });
}

/// Takes the keys back; ends with what became of them.
#[napi]
pub fn release(handle: &External<Arc<LeaseHandle>>, id: u32) {
    let handle = Arc::clone(handle);
    let queue = Arc::clone(&handle.queue);
    let engine = handle.lease.engine().clone();
    // From here on, not from the end of JavaScript's turn: the manager may be closed in between.
    let releasing = handle.lease.release_told();
    queue.run_to_end(&engine, id, async move {
        match releasing.await {
            Ok((outcome, votes)) => {
                handle.votes.get_or_init(|| votes);
                Outcome::Released(outcome, handle.lease.loss(outcome))
            }
            Err(error) => error.into(),
        }
    });
}

/// Takes the keys back without waiting for the outcome.
#[napi]
pub fn withdraw(handle: &External<Arc<LeaseHandle>>) {
    drop(handle.take_undelivered());
    handle.lease.withdraw();
}

/// Tells the loss of the lease under `id`, once, and before it every round of renewal in which a
/// node did not agree. Does not keep the lease in memory.
#[napi]
pub fn watch(handle: &External<Arc<LeaseHandle>>, id: u32) {
    let queue = Arc::clone(&handle.queue);
    handle.lease.on_renewal(move |votes| {
        let is_against = |vote: Vote| matches!(vote, Vote::Refused | Vote::Failed);
        if votes.iter().any(|report| is_against(report.vote)) {
            queue.push(id, Outcome::Renewal(votes.to_vec()));
        }
    });
    let queue = Arc::clone(&handle.queue);
    handle.lease.on_lost(move |error| queue.push(id, Outcome::Lost(error)));
}

impl LeaseHandle {
    /// A lease that its user has.
    pub(crate) fn new(lease: Lease, queue: &Arc<Queue>) -> Arc<Self> {
        Self::with(lease, None, queue)
    }

    /// A lease whose user has it after [`deliver`].
    pub(crate) fn undelivered(lease: UndeliveredLease, queue: &Arc<Queue>) -> Arc<Self> {
        Self::with(lease.lease().clone(), Some(lease), queue)
    }

    fn with(lease: Lease, undelivered: Option<UndeliveredLease>, queue: &Arc<Queue>) -> Arc<Self> {
        let (undelivered, queue) = (Mutex::new(undelivered), Arc::clone(queue));
        Arc::new(Self { lease, undelivered, queue, votes: OnceLock::new() })
    }

    fn take_undelivered(&self) -> Option<UndeliveredLease> {
        self.undelivered.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(crate) const fn lease(&self) -> &Lease {
        &self.lease
    }

    pub(crate) const fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl RunsOut for LeaseHandle {
    fn take_back_undelivered(&self) -> bool {
        self.take_undelivered().is_some()
    }

    fn let_run_out(&self) {
        self.lease.let_run_out();
    }
}
