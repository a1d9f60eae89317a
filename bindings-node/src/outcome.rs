//! What an operation ended with, on its way into JavaScript. Converts; decides nothing.

use std::sync::Arc;
use std::time::Duration;

use napi::bindgen_prelude::{Either8, External};
use quorlock::{LeaseGuard, LockError, NodeReport, ReleaseOutcome};

use crate::errors::Failure;
use crate::lease::LeaseHandle;
use crate::queue::Queue;
use crate::votes::NodeVote;

/// What an operation ended with.
pub(crate) enum Outcome {
    Acquired(LeaseGuard),
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

/// One value on its way into JavaScript.
pub type Part =
    Either8<u32, f64, bool, String, External<Arc<LeaseHandle>>, Failure, Vec<NodeVote>, ()>;

impl Outcome {
    /// As `ts/bridge.ts` reads it: a value, and what goes with it. A list of such parts is made much
    /// faster than objects with names.
    pub(crate) fn parts(self, queue: &Arc<Queue>) -> (Part, Part) {
        match self {
            Self::Acquired(guard) => {
                let handle = LeaseHandle::new(guard.into_lease(), queue);
                queue.add_lease(&handle);
                let token = handle.token().to_owned();
                (Part::E(External::new(handle)), Part::D(token))
            }
            Self::Validity(validity) => (Part::B(millis(validity)), NOTHING),
            Self::Released(outcome, loss) => {
                let loss = loss.map_or(NOTHING, |error| Part::F(Failure::new(&error)));
                (Part::D(outcome.name().to_owned()), loss)
            }
            Self::Answer(answer) => (Part::C(answer), NOTHING),
            Self::Failed(error) | Self::Lost(error) => (NOTHING, Part::F(Failure::new(&error))),
            Self::Renewal(votes) => (Part::G(NodeVote::list(&votes)), NOTHING),
            Self::Broken => (NOTHING, Part::F(Failure::broken())),
        }
    }
}

impl From<LockError> for Outcome {
    fn from(error: LockError) -> Self {
        Self::Failed(error)
    }
}

/// JavaScript's unit of time.
pub(crate) fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

const NOTHING: Part = Part::H(());
