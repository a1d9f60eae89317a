//! The error type of the Rust API. Owns its fields; the words come from the protocol.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    Answer, ConfigError, ErrorKind, Failure, Frees, NodeVote, ReleaseOutcome, Resources,
    RoundReport, Vote,
};

use crate::owner::Holder;

/// Why a lock operation failed.
///
/// The message says what happened, to which resources and nodes, and what to do; the fields say the
/// same to a program. No part of it holds a password.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", details.message)]
pub struct LockError {
    kind: ErrorKind,
    details: Arc<Details>,
}

#[derive(Clone, Debug, Default)]
struct Details {
    message: String,
    resources: Vec<String>,
    elapsed: Duration,
    attempts: u32,
    rounds: Vec<Vec<NodeReport>>,
}

/// What one node did in one round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeReport {
    /// Where the node is, without a password.
    pub address: Arc<str>,
    /// Its vote.
    pub vote: Vote,
    /// The answer or fault behind the vote; `None` while missing.
    pub answer: Option<Result<Answer, quorlock_protocol::Fault>>,
    /// The time from the start of the round to the answer; zero while missing.
    pub latency: Duration,
}

impl NodeReport {
    /// What is known about the vote beyond its name: when the keys will be free, or what failed.
    /// `None` for a node that granted, and for one that has not answered.
    pub fn detail(&self) -> Option<String> {
        match self.answer.as_ref()? {
            Ok(Answer::Ours { .. } | Answer::Queued { .. } | Answer::Done | Answer::Waiters(_)) => {
                None
            }
            Ok(Answer::Absent) => Some("it holds no key of the lease".to_owned()),
            Ok(Answer::Theirs { frees, .. }) => Some(match frees {
                Frees::In(time) => {
                    format!("held by another for at most {:.1} s more", time.as_secs_f64())
                }
                Frees::Never => "held by a key without a ttl, which will not expire".to_owned(),
                Frees::Unknown => "held by another".to_owned(),
            }),
            Err(fault) => Some(fault.to_string()),
        }
    }
}

impl LockError {
    /// What kind of error it is.
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The stable name of the kind, for example `LEASE_LOST`.
    pub const fn code(&self) -> &'static str {
        self.kind.code()
    }

    /// The resources of the operation; empty for an error of configuration.
    pub fn resources(&self) -> &[String] {
        &self.details.resources
    }

    /// How long the operation took.
    pub fn elapsed(&self) -> Duration {
        self.details.elapsed
    }

    /// How many rounds were begun.
    pub fn attempts(&self) -> u32 {
        self.details.attempts
    }

    /// What every node did in the last round.
    pub fn votes(&self) -> &[NodeReport] {
        self.details.rounds.last().map_or(&[], Vec::as_slice)
    }

    /// What every node did, round by round, oldest first; the latest 16 rounds.
    pub fn rounds(&self) -> &[Vec<NodeReport>] {
        &self.details.rounds
    }

    pub(crate) fn new(kind: ErrorKind, resources: &Resources, message: String) -> Self {
        let resources = resources.names().map(str::to_owned).collect();
        let details = Arc::new(Details { message, resources, ..Details::default() });
        Self { kind, details }
    }

    /// The same error, saying who holds the lock.
    pub(crate) fn naming(mut self, holder: &Holder) -> Self {
        let message = format!("{self}; held by {holder}");
        Arc::make_mut(&mut self.details).message = message;
        self
    }

    /// The same error, with what every node did.
    pub(crate) fn with_votes(mut self, votes: Vec<NodeReport>) -> Self {
        if !votes.is_empty() {
            Arc::make_mut(&mut self.details).rounds = vec![votes];
        }
        self
    }

    /// The error of a machine that gave up.
    pub(crate) fn of_rounds(
        kind: ErrorKind,
        resources: &Resources,
        addresses: &[Arc<str>],
        rounds: &[RoundReport],
        (attempts, elapsed): (u32, Duration),
    ) -> Self {
        let plain: Vec<&str> = addresses.iter().map(AsRef::as_ref).collect();
        let none = RoundReport::default();
        let report = rounds.last().unwrap_or(&none);
        let failure = Failure { kind, resources, report, addresses: &plain, attempts, elapsed };
        let details = Details {
            message: failure.explain(),
            resources: resources.names().map(str::to_owned).collect(),
            elapsed,
            attempts,
            rounds: rounds.iter().map(|round| name_votes(&round.votes, addresses)).collect(),
        };
        Self { kind, details: Arc::new(details) }
    }

    /// The error of a lease that turned out at its release to have ended before.
    pub(crate) fn of_outcome(
        outcome: ReleaseOutcome,
        resources: &Resources,
        votes: Vec<NodeReport>,
    ) -> Option<Self> {
        let text = match outcome {
            ReleaseOutcome::Released | ReleaseOutcome::Unknown => return None,
            ReleaseOutcome::Expired => {
                "had expired before it was released, or somebody had deleted it"
            }
            ReleaseOutcome::Taken => "was held by another when it was released",
        };
        let message =
            format!("{resources} {text}; work under the lease may overlap another holder's");
        Some(Self::new(ErrorKind::LeaseLost, resources, message).with_votes(votes))
    }
}

impl From<ConfigError> for LockError {
    fn from(error: ConfigError) -> Self {
        let details = Details { message: error.to_string(), ..Details::default() };
        Self { kind: ErrorKind::Config, details: Arc::new(details) }
    }
}

/// The votes of a round with the addresses of their nodes.
pub(crate) fn name_votes(votes: &[NodeVote], addresses: &[Arc<str>]) -> Vec<NodeReport> {
    let name = |(vote, address): (&NodeVote, &Arc<str>)| NodeReport {
        address: Arc::clone(address),
        vote: vote.vote,
        answer: vote.answer.clone(),
        latency: vote.took,
    };
    votes.iter().zip(addresses).map(name).collect()
}
