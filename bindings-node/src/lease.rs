//! The core's lease, as an object of JavaScript. Converts in and calls; decides nothing.

use std::sync::{Arc, Weak};

use napi_derive::napi;
use quorlock::{Lease, LockError, Vote};

use crate::options;
use crate::outcome::{Outcome, millis};
use crate::queue::Bridge;
use crate::votes::NodeVote;

/// A lease in use. When the last object that knows it is collected, it is no longer renewed.
#[napi]
pub struct NativeLease {
    lease: Arc<Lease>,
}

/// The leases of one environment, as far as JavaScript still knows them.
///
/// Not every runtime collects the objects of a worker thread that is ended, and nobody would stop the
/// renewal of what they held.
#[derive(Default)]
pub(crate) struct Leases {
    known: Vec<Weak<Lease>>,
    sweep_at: usize,
}

impl Leases {
    pub(crate) fn add(&mut self, lease: &NativeLease) {
        if self.known.len() >= self.sweep_at {
            self.known.retain(|known| known.strong_count() > 0);
            self.sweep_at = 2 * self.known.len() + FEW;
        }
        self.known.push(Arc::downgrade(&lease.lease));
    }

    /// The environment ends: nobody works under them any more.
    pub(crate) fn let_run_out(self) {
        for lease in self.known.iter().filter_map(Weak::upgrade) {
            lease.let_run_out();
        }
    }
}

#[napi]
impl NativeLease {
    /// The holder id.
    #[napi(getter)]
    pub fn token(&self) -> &str {
        self.lease.token()
    }

    /// The names of what is held.
    #[napi(getter)]
    pub fn resources(&self) -> Vec<&str> {
        self.lease.resources().collect()
    }

    /// The number that the protected resource checks. Below 2^53, so that it is exact.
    #[napi(getter)]
    #[allow(clippy::cast_precision_loss)]
    pub fn fencing_token(&self) -> Option<f64> {
        self.lease.fencing_token().map(|token| token as f64)
    }

    /// What is left of the time for which the lease may be trusted, in milliseconds.
    #[napi(getter)]
    pub fn validity(&self) -> f64 {
        millis(self.lease.validity())
    }

    /// Whether renewal has failed and less than a third of the ttl is left.
    #[napi(getter)]
    pub fn at_risk(&self) -> bool {
        self.lease.is_at_risk()
    }

    /// How many rounds the acquisition took.
    #[napi(getter)]
    pub fn tries(&self) -> u32 {
        self.lease.attempts()
    }

    /// How long the acquisition took, in milliseconds.
    #[napi(getter)]
    pub fn elapsed(&self) -> f64 {
        millis(self.lease.elapsed())
    }

    /// What every node did in the last round for the lease: its acquisition, extension or renewal.
    #[napi]
    pub fn votes(&self) -> Vec<NodeVote> {
        NodeVote::list(&self.lease.votes())
    }

    /// The rounds that were lost before the one that was won, oldest first.
    #[napi]
    pub fn lost_rounds(&self) -> Vec<Vec<NodeVote>> {
        self.lease.lost_rounds().iter().map(|round| NodeVote::list(round)).collect()
    }

    /// Keeps the lease for `duration` from now; ends with its validity.
    #[napi]
    pub fn extend(&self, bridge: &Bridge, id: u32, duration: f64) {
        let lease = Lease::clone(&self.lease);
        bridge.run(self.lease.engine(), id, async move {
            let ttl = match options::ttl(duration) {
                Ok(ttl) => ttl,
                Err(error) => return LockError::from(error).into(),
            };
            match lease.extend_here(Some(ttl)).await {
                Ok(validity) => Outcome::Validity(validity),
                Err(error) => error.into(),
            }
        });
    }

    /// Asks the nodes whether they still hold the lease; ends with its validity.
    #[napi]
    pub fn check(&self, bridge: &Bridge, id: u32) {
        let lease = Lease::clone(&self.lease);
        bridge.run(self.lease.engine(), id, async move {
            match lease.check_here().await {
                Ok(validity) => Outcome::Validity(validity),
                Err(error) => error.into(),
            }
        });
    }

    /// Takes the keys back; ends with what became of them and every node's vote.
    #[napi]
    pub fn release(&self, bridge: &Bridge, id: u32) {
        let lease = Lease::clone(&self.lease);
        bridge.run(self.lease.engine(), id, async move {
            match lease.release_told().await {
                Ok((outcome, votes)) => Outcome::Released(outcome, votes, lease.loss(outcome)),
                Err(error) => error.into(),
            }
        });
    }

    /// Takes the keys back without waiting for the outcome.
    #[napi]
    pub fn withdraw(&self) {
        self.lease.withdraw();
    }

    /// Tells the loss of the lease under `id`, once, and before it every round of renewal in which a
    /// node did not consent. Does not keep the lease in memory.
    #[napi]
    pub fn watch(&self, bridge: &Bridge, id: u32) {
        let queue = bridge.queue();
        self.lease.on_renewal(move |votes| {
            let is_against = |vote: Vote| matches!(vote, Vote::Refused | Vote::Failed);
            if votes.iter().any(|report| is_against(report.vote)) {
                queue.push(id, Outcome::Renewal(votes.to_vec()));
            }
        });
        let queue = bridge.queue();
        self.lease.on_lost(move |error| queue.push(id, Outcome::Lost(error)));
    }
}

impl NativeLease {
    pub(crate) fn new(lease: Lease) -> Self {
        Self { lease: Arc::new(lease) }
    }
}

/// Not worth a look at which of them are still known.
const FEW: usize = 64;
