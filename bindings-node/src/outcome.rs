//! What an operation ended with. Knows no JavaScript.

use std::time::Duration;

use quorlock::embed::UndeliveredLease;
use quorlock::{LockError, NodeReport, ReleaseOutcome};

/// What an operation ended with.
pub(crate) enum Outcome {
    Acquired(UndeliveredLease),
    Validity(Duration),
    /// With the error that the outcome amounts to, if it does.
    Released(ReleaseOutcome, Option<LockError>),
    Answer(bool),
    Failed(LockError),
    /// The operation broke off because of a defect.
    Broken,
    /// Not an operation's end: a lease that is watched has been lost.
    Lost(LockError),
    /// Not an operation's end: what the nodes did in a round that was to renew a watched lease.
    Renewal(Vec<NodeReport>),
}

impl From<LockError> for Outcome {
    fn from(error: LockError) -> Self {
        Self::Failed(error)
    }
}
