//! A distributed lock over N independent Redis or Valkey masters (the Redlock algorithm).
//!
//! ```
//! use quorlock::Redlock;
//! use std::time::Duration;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), quorlock::LockError> {
//! // memory:// nodes live in this process; use redis://, rediss:// or unix:// for real ones.
//! let locks = Redlock::builder().nodes(["memory://a", "memory://b", "memory://c"]).build()?;
//!
//! let lock = locks.lock("invoice:42").ttl(Duration::from_secs(5)).auto_extend(true);
//! let lease = lock.timeout(Duration::from_secs(30)).acquire().await?;
//! // Whatever the lock protects should refuse a token below the highest it has seen.
//! println!("held, fencing token {:?}", lease.fencing_token());
//! lease.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! - [`Redlock`] knows the nodes; [`Lock`] says what to lock and how; [`LeaseGuard`] is a lock that is
//!   held, and releases it when dropped; [`Lease`] is the same without that rule.
//! - One background thread ([`Engine`]) serves all of them: it renews leases and tells their loss also
//!   while the caller's own runtime is blocked. Futures of this crate need no particular runtime.
//! - Every failure is a [`LockError`], whose [`ErrorKind`] tells contention from broken nodes.
//!
//! What the lock promises and why is in [the protocol's manual](quorlock_protocol::manual).

#![forbid(unsafe_code)]

mod acquiring;
mod acquisition_report;
mod address;
mod background;
mod builder;
mod caller_queues;
mod clock;
mod connect;
mod contention;
mod driver;
mod engine;
mod error;
mod guards;
mod holders;
mod inbox;
mod keys;
mod lease;
mod lease_guard;
mod lock;
mod manager;
mod memory_node;
mod node;
mod node_state;
mod observe;
mod outage;
mod owner;
mod records;
mod redis_node;
mod renewal;
mod replies;
mod sequencer;
mod tasks;
mod watching;

pub use address::{Address, Tls, Verification};
pub use builder::Builder;
pub use clock::now as boot_clock;
pub use connect::connect;
pub use engine::{Engine, Task};
pub use error::{LockError, NodeReport};
pub use inbox::ReplyTo;
pub use lease::{Lease, ReleaseVotes};
pub use lease_guard::LeaseGuard;
pub use lock::Lock;
pub use manager::Redlock;
pub use memory_node::MemoryNode;
pub use node::{Node, NodeState};
pub use observe::{
    Event, EventKind, EventName, HistogramStats, Interest, LeaseInfo, NodeStats, NoticeReport,
    Stats, Subscription, WakeCause,
};
pub use owner::Holder;
pub use quorlock_protocol::{
    Answer, ConfigError, Dependence, ErrorKind, Fault, FaultKind, Frees, LossReason, Notice,
    OnUnreachable, OptionDefault, OptionInfo, OptionKind, Policy, PolicyBuilder, Quarantine,
    QuarantineReason, ReleaseOutcome, RestartGuard, Vote, WaitMode,
};
pub use redis_node::{NodeSettings, RedisNode, ServerConnection, ServerReply};
pub use replies::Replies;
pub use sequencer::{Record as SequencerRecord, Sequencer};

/// For the command and the bindings for Python and Node: what they share, and how event loops drive an [`Engine`] on
/// their own thread.
pub mod embed {
    pub use quorlock_protocol::{alters_line, plain_line};

    pub use crate::engine::{AdaptiveBackoff, Drive};
    pub use crate::lease_guard::UndeliveredLease;
    pub use crate::observe::Value;

    /// The script behind the helpers that fence writes to one server. Compares tokens as texts, since Lua's numbers are
    /// exact up to 2^53 only. KEYS: the key of the fence. ARGV: the fencing token,
    /// and the words of a command. Replies `{1, reply}`, or `{0, the highest token}` if a later holder has written.
    pub const FENCE: &str = include_str!("scripts/fence.lua");
}

/// The Rust examples of the README and the guide, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/guide.md")]
struct Readme;
