//! The list of results that an operation can have. Knows no JavaScript.

use std::time::Duration;

use quorlock::embed::UndeliveredLease;
use quorlock::{Holder, LockError, NodeReport, ReleaseOutcome};

use crate::errors::Failure;

/// The result of an operation.
pub(crate) enum Outcome {
    Acquired(UndeliveredLease),
    Validity(Duration),
    /// With the error that the outcome corresponds to, if there is one.
    Released(ReleaseOutcome, Option<LockError>),
    Answer(bool),
    Count(u32),
    Holder(Option<Holder>),
    /// Described on the core's thread, to leave JavaScript's the more time for all its code.
    Failed(Box<Failure>),
    /// The operation panicked.
    Broken,
    /// Not the end of an operation: a watched lease was lost.
    Lost(LockError),
    /// Not the end of an operation: what the nodes did in a round that was to renew a watched
    /// lease.
    Renewal(Vec<NodeReport>),
}

impl From<LockError> for Outcome {
    fn from(error: LockError) -> Self {
        Self::Failed(Box::new(Failure::new(&error)))
    }
}
