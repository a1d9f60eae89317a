//! Quorlock for Rust.
mod address;
mod clock;
mod driver;
mod engine;
mod error;
mod guard;
mod inbox;
mod keys;
mod lease;
mod lock;
mod manager;
mod memory_node;
mod node;
mod redis_node;
mod replies;

pub use address::{Address, Tls, Verification};
pub use engine::{Engine, Task};
pub use error::{LockError, NodeReport};
pub use guard::LeaseGuard;
pub use inbox::ReplyTo;
pub use lease::Lease;
pub use lock::Lock;
pub use manager::{Builder, Redlock};
pub use clock::now as lease_clock;
pub use memory_node::MemoryNode;
pub use node::{Node, NodeState, connect};
pub use redis_node::{NodeSettings, RedisNode};
pub use replies::Replies;
pub use quorlock_protocol::{
    Answer, ConfigError, ErrorKind, Fault, FaultKind, Frees, OptionDefault, OptionInfo, Policy,
    PolicyBuilder, ReleaseOutcome, Vote,
};
