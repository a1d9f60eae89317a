//! Converts the core's errors into the parts of JavaScript's. The only file that knows the class of
//! each kind.

use napi_derive::napi;
use quorlock::{ErrorKind, LockError};

use crate::numbers::millis;
use crate::spelling;
use crate::votes::NodeVote;

/// The parts of which a JavaScript error object is made.
#[napi(object, object_from_js = false)]
pub struct Failure {
    /// The name of the class in `ts/errors.ts`.
    pub class: &'static str,
    /// The stable name of the kind, such as `LEASE_LOST`.
    pub code: &'static str,
    /// What happened, to which resources and nodes, and what to do.
    pub message: String,
    /// The resources of the operation.
    pub resources: Vec<String>,
    /// How many rounds were begun.
    pub attempts: u32,
    /// How long the operation took, in milliseconds.
    pub elapsed: f64,
    /// What every node did, round by round, oldest first; the latest 16.
    pub rounds: Vec<Vec<NodeVote>>,
}

/// What `ts/native.ts` calls so.
pub(crate) type FailureFields =
    (&'static str, &'static str, String, Vec<String>, u32, f64, Vec<Vec<NodeVote>>);

impl Failure {
    pub(crate) fn new(error: &LockError) -> Self {
        Self {
            class: class_of(error.kind()),
            code: error.code(),
            message: match error.kind() {
                ErrorKind::Config => spelling::of_settings(&error.to_string()),
                _ => spelling::in_node(&error.to_string()),
            },
            resources: error.resources().to_vec(),
            attempts: error.attempts(),
            elapsed: millis(error.elapsed()),
            rounds: error.rounds().iter().map(|round| NodeVote::list(round)).collect(),
        }
    }

    /// The same in the order of the fields, which becomes an array: one is made in a third of an object's time,
    /// and thousands may fail at once.
    pub(crate) fn into_fields(self) -> FailureFields {
        let Self { class, code, message, resources, attempts, elapsed, rounds } = self;
        (class, code, message, resources, attempts, elapsed, rounds)
    }

    /// An operation that ended without an outcome.
    pub(crate) fn broken() -> Self {
        Self {
            class: "LockError",
            code: "INTERNAL",
            message: "the operation broke off because of a defect in quorlock; please report it"
                .to_owned(),
            resources: Vec::new(),
            attempts: 0,
            elapsed: 0.0,
            rounds: Vec::new(),
        }
    }
}

/// Without a wildcard, so that a new kind does not compile until it has its class.
const fn class_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotAcquired | ErrorKind::AcquireTimedOut => "ResourceLockedError",
        ErrorKind::QuorumUnreachable => "QuorumUnreachableError",
        ErrorKind::LeaseLost => "LeaseLostError",
        ErrorKind::LockNotHeld => "LockNotHeldError",
        ErrorKind::Config => "ConfigError",
        ErrorKind::Cancelled | ErrorKind::Closed => "ExecutionError",
    }
}
