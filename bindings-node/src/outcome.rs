//! What an operation ended with, on its way into JavaScript. Converts; decides nothing.

use std::time::Duration;

use napi_derive::napi;
use quorlock::{LeaseGuard, LockError, NodeReport, ReleaseOutcome, ReleaseVotes};

use crate::errors::Failure;
use crate::lease::NativeLease;
use crate::votes::{NativeVotes, NodeVote};

/// What an operation ended with.
pub(crate) enum Outcome {
    Acquired(LeaseGuard),
    Validity(Duration),
    /// With the error that the outcome amounts to, if it does.
    Released(ReleaseOutcome, ReleaseVotes, Option<LockError>),
    Answer(bool),
    Failed(LockError),
    /// The operation broke off because of a defect.
    Broken,
    /// Not an operation's end: a lease that is watched has been lost.
    Lost(LockError),
    /// Not an operation's end: what the nodes did in a round that was to renew a watched lease.
    Renewal(Vec<NodeReport>),
}

/// One result on its way into JavaScript.
#[napi(object, object_from_js = false)]
pub struct Settled {
    /// Which operation it answers.
    pub id: u32,
    /// The lease that was acquired.
    pub lease: Option<NativeLease>,
    /// What is left of the validity, in milliseconds.
    pub validity: Option<f64>,
    /// What became of a released lease: `released`, `expired`, `taken` or `unknown`.
    pub outcome: Option<&'static str>,
    /// What the nodes answer to a release.
    pub votes: Option<NativeVotes>,
    /// The answer to a question.
    pub answer: Option<bool>,
    /// Why it failed, or why a watched lease was lost.
    pub error: Option<Failure>,
    /// What the nodes did in a round that was to renew a watched lease.
    pub renewal: Option<Vec<NodeVote>>,
}

impl Settled {
    pub(crate) fn new(id: u32, outcome: Outcome) -> Self {
        let mut settled = Self {
            id,
            lease: None,
            validity: None,
            outcome: None,
            votes: None,
            answer: None,
            error: None,
            renewal: None,
        };
        match outcome {
            Outcome::Acquired(guard) => settled.lease = Some(NativeLease::new(guard.into_lease())),
            Outcome::Validity(validity) => settled.validity = Some(millis(validity)),
            Outcome::Released(outcome, votes, loss) => {
                settled.outcome = Some(outcome.name());
                settled.votes = Some(NativeVotes::new(votes));
                settled.error = loss.as_ref().map(Failure::new);
            }
            Outcome::Answer(answer) => settled.answer = Some(answer),
            Outcome::Failed(error) | Outcome::Lost(error) => {
                settled.error = Some(Failure::new(&error));
            }
            Outcome::Renewal(votes) => settled.renewal = Some(NodeVote::list(&votes)),
            Outcome::Broken => settled.error = Some(Failure::broken()),
        }
        settled
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
