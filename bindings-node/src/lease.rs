//! The core's lease, in the hands of JavaScript. Converts in and calls; decides nothing.

use std::sync::{Arc, OnceLock, Weak};

use napi::bindgen_prelude::External;
use napi_derive::napi;
use quorlock::{Lease, LockError, ReleaseVotes, Vote};

use crate::options;
use crate::outcome::{Outcome, millis};
use crate::queue::Queue;
use crate::votes::NodeVote;

/// A lease in use. When the last object that knows it is collected, it is no longer renewed.
pub struct Held {
    lease: Lease,
    queue: Arc<Queue>,
    /// What the nodes answer to its release.
    votes: OnceLock<ReleaseVotes>,
}

/// The leases of one environment, as far as JavaScript still knows them.
///
/// Not every runtime collects the objects of a worker thread that is ended, and nobody would stop the
/// renewal of what they held.
#[derive(Default)]
pub(crate) struct Leases {
    known: Vec<Weak<Held>>,
    sweep_at: usize,
}

impl Leases {
    pub(crate) fn add(&mut self, lease: &Arc<Held>) {
        if self.known.len() >= self.sweep_at {
            self.known.retain(|known| known.strong_count() > 0);
            self.sweep_at = 2 * self.known.len() + FEW;
        }
        self.known.push(Arc::downgrade(lease));
    }

    /// The environment ends: nobody works under them any more.
    pub(crate) fn let_run_out(self) {
        for held in self.known.iter().filter_map(Weak::upgrade) {
            held.lease.let_run_out();
        }
    }
}

/// The number that the protected resource checks. Below 2^53, so that it is exact.
#[napi]
#[allow(clippy::cast_precision_loss)]
pub fn fencing_token(held: &External<Arc<Held>>) -> Option<f64> {
    held.lease.fencing_token().map(|token| token as f64)
}

/// What is left of the time for which the lease may be trusted, in milliseconds.
#[napi]
pub fn validity(held: &External<Arc<Held>>) -> f64 {
    millis(held.lease.validity())
}

/// What every node did in the last round for the lease: its acquisition, extension or renewal.
#[napi]
pub fn votes(held: &External<Arc<Held>>) -> Vec<NodeVote> {
    NodeVote::list(&held.lease.votes())
}

/// The rounds that were lost before the one that was won, oldest first.
#[napi]
pub fn lost_rounds(held: &External<Arc<Held>>) -> Vec<Vec<NodeVote>> {
    held.lease.lost_rounds().iter().map(|round| NodeVote::list(round)).collect()
}

/// What the nodes have answered to the release by now; nothing before it.
#[napi]
pub fn release_votes(held: &External<Arc<Held>>) -> Vec<NodeVote> {
    held.votes.get().map(|votes| NodeVote::list(&votes.now())).unwrap_or_default()
}

/// Keeps the lease for `duration` from now; ends with its validity.
#[napi]
pub fn extend(held: &External<Arc<Held>>, id: u32, duration: f64) {
    let lease = held.lease.clone();
    held.queue.run(held.lease.engine(), id, async move {
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
pub fn check(held: &External<Arc<Held>>, id: u32) {
    let lease = held.lease.clone();
    held.queue.run(held.lease.engine(), id, async move {
        match lease.check_here().await {
            Ok(validity) => Outcome::Validity(validity),
            Err(error) => error.into(),
        }
    });
}

/// Takes the keys back; ends with what became of them.
#[napi]
pub fn release(held: &External<Arc<Held>>, id: u32) {
    let held = Arc::clone(held);
    let queue = Arc::clone(&held.queue);
    let engine = held.lease.engine().clone();
    queue.run(&engine, id, async move {
        match held.lease.release_told().await {
            Ok((outcome, votes)) => {
                held.votes.get_or_init(|| votes);
                Outcome::Released(outcome, held.lease.loss(outcome))
            }
            Err(error) => error.into(),
        }
    });
}

/// Takes the keys back without waiting for the outcome.
#[napi]
pub fn withdraw(held: &External<Arc<Held>>) {
    held.lease.withdraw();
}

/// Tells the loss of the lease under `id`, once, and before it every round of renewal in which a
/// node did not consent. Does not keep the lease in memory.
#[napi]
pub fn watch(held: &External<Arc<Held>>, id: u32) {
    let queue = Arc::clone(&held.queue);
    held.lease.on_renewal(move |votes| {
        let is_against = |vote: Vote| matches!(vote, Vote::Refused | Vote::Failed);
        if votes.iter().any(|report| is_against(report.vote)) {
            queue.push(id, Outcome::Renewal(votes.to_vec()));
        }
    });
    let queue = Arc::clone(&held.queue);
    held.lease.on_lost(move |error| queue.push(id, Outcome::Lost(error)));
}

impl Held {
    pub(crate) fn new(lease: Lease, queue: &Arc<Queue>) -> Arc<Self> {
        Arc::new(Self { lease, queue: Arc::clone(queue), votes: OnceLock::new() })
    }

    /// The holder id.
    pub(crate) fn token(&self) -> &str {
        self.lease.token()
    }
}

/// Not worth a look at which of them are still known.
const FEW: usize = 64;
