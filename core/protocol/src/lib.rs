//! The Redlock protocol as pure state machines: no sockets, no clock, no randomness of their own.
//!
//! A distributed lock over N independent nodes is won by a quorum of grants. It is trusted for a
//! *validity*, which leaves out the time that the round took and the drift of clocks. This crate
//! holds all of that logic. Its driver sends each [`Command`] and tells the time; that is also why
//! every schedule of messages can be searched. Users want the crate `quorlock`, which drives it
//! over Redis and Valkey.
//!
//! # Where things are
//!
//! | item | what it owns |
//! |---|---|
//! | [`Acquire`] | rounds until one is won, each lost one withdrawn, back-off in between |
//! | [`LeaseLife`] | a lease from the won round to its end: what may be done with it when, and what becomes of its keys |
//! | [`Hold`] | renewing a lease in time, and telling its loss by the clock |
//! | [`Extend`] | prolonging a lease once, or saying what is known |
//! | [`Inspect`] | what the nodes say of a claim, without changing it |
//! | [`Withdraw`] | taking a claim back from every node, for a release or after a lost round |
//! | [`WaitQueue`], [`Place`] | who waits for a lock on one node, in which order, and who is called when it is free |
//! | [`CountWaiters`] | how many wait for a lock, as a hint |
//! | [`Round`] | one command to all nodes, and their votes |
//! | [`Quorum`], [`Tally`], [`Verdict`] | what votes add up to |
//! | [`Drift`], [`Lease`] | for how long a won round may be trusted |
//! | [`Guards`] | which nodes may have forgotten locks, so that their grants must not count |
//! | [`Policy`] | every setting, with its default and bounds |
//! | [`ErrorKind`], [`FaultKind`] | what goes wrong for users, and on nodes |
//! | [`manual`] | the algorithm, what is promised, past bugs, why each default, and a glossary |
//!
//! # The life of a lock
//!
//! ```text
//!   Acquire ──won──▶ LeaseLife ──release──▶ Withdraw ──▶ released / expired / taken / unknown
//!      │              │  Hold (renews through Extend)
//!      │              │  Extend, Inspect (when its user asks)
//!      └─lost──▶ Withdraw   └──validity over, or proved gone──▶ lost, Withdraw
//! ```
//!
//! # Driving a machine
//!
//! ```
//! use quorlock_protocol::{Machine, NodeId, Output, Reply, Environment};
//!
//! fn drive<M: Machine>(
//!     machine: &mut M,
//!     env: &mut dyn Environment,
//!     mut reply_or_timeout: impl FnMut(quorlock_protocol::Moment) -> Option<(NodeId, Reply)>,
//!     mut send: impl FnMut(NodeId, quorlock_protocol::Command),
//! ) -> M::Outcome {
//!     loop {
//!         match machine.poll(env) {
//!             Output::Send(node, command) => send(node, command),
//!             Output::WakeAt(at) => match reply_or_timeout(at) {
//!                 Some((node, reply)) => machine.handle_reply(env, node, reply),
//!                 None => machine.handle_timeout(env),
//!             },
//!             Output::Done(outcome) => return outcome,
//!         }
//!     }
//! }
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test may panic"))]

mod acquire;
mod backoff;
mod command;
mod count_waiters;
mod error;
mod explain;
mod extend;
mod fault;
mod guard;
mod heal;
mod hold;
mod identity;
mod inspect;
mod lease;
mod life;
mod machine;
pub mod manual;
mod place;
mod policy;
mod queue;
mod quorum;
mod round;
mod shown;
mod time;
mod validity;
mod withdraw;

pub use acquire::{Acquire, AcquireOutcome, Won};
pub use command::{Action, Answer, Command, Fence, Frees, Reply, Ticket};
pub use count_waiters::{CountWaiters, WaitersCounted};
pub use error::{ConfigError, ErrorKind};
pub use explain::Failure;
pub use extend::{Extend, ExtendOutcome, Extension, LastRound};
pub use fault::{Fault, FaultKind};
pub use guard::{
    Canary, CanaryKey, Checkup, ClockReading, Dependence, GuardStore, Guards, HoldingNote,
    Identity, LeadNote, Membership, NoCanary, Notes, Notice, Pass, Quarantine, QuarantineReason,
    Relied, Ruling, SightingNote, Writing,
};
pub use hold::{Hold, HoldEnd, LossReason};
pub use identity::{Claim, FencingToken, HolderId, NodeId, Resource, Resources};
pub use inspect::{Inspect, Inspection, Standing};
pub use lease::Lease;
pub use life::{ExtensionEnd, LeaseLife, LeaseWork, Loss, Release, Stage, WorkEnd, WorkId};
pub use machine::{Environment, Machine, Output};
pub use place::{Place, Queued, Waiter};
pub use policy::{
    OnUnreachable, OptionDefault, OptionInfo, OptionKind, Policy, PolicyBuilder, RestartGuard,
    TO_TRY, WaitMode,
};
pub use queue::{News, Tell, WaitQueue, WakeCause};
pub use quorum::{Quorum, Tally, Verdict, Vote};
pub use round::{NodeVote, Round, RoundReport};
pub use shown::{alters_line, plain_line};
pub use time::{Moment, Ttl};
pub use validity::Drift;
pub use withdraw::{ReleaseOutcome, Withdraw, Withdrawal};
