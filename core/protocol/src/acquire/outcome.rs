//! How an acquisition ended: what its caller gets, and what is left to do. Owns these types; decides nothing.

use std::time::Duration;

use crate::error::ErrorKind;
use crate::lease::Lease;
use crate::round::{Round, RoundReport};
use crate::withdraw::Withdraw;

/// A round that was won.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Won {
    /// What it gives.
    pub lease: Lease,
    /// The round, which still takes late votes.
    pub round: Round,
    /// Its caller waited in queues. Others may still wait there, so the nodes tell them of the lease's end.
    pub was_queued: bool,
}

/// How an acquisition ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AcquireOutcome {
    /// The lease, or why there is none.
    pub result: Result<Won, ErrorKind>,
    /// How many rounds were begun.
    pub attempts: u32,
    /// How long it took, by the lease clock.
    pub elapsed: Duration,
    /// The latest rounds that were lost, oldest first.
    pub lost_rounds: Vec<RoundReport>,
    /// It waited in the nodes' queues.
    pub was_waited_for: bool,
    /// Keys that are still to be taken back from nodes that have not answered.
    pub withdrawals: Vec<Withdraw>,
}
