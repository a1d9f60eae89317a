//! The Redlock protocol as pure state machines.
mod command;
mod error;
mod fault;
mod identity;
mod machine;
mod time;

pub use command::{Action, Answer, Command, Fence, Frees, Reply, Ticket};
pub use error::{ConfigError, ErrorKind};
pub use fault::{Fault, FaultKind};
pub use identity::{Claim, FencingToken, HolderId, NodeId, Resource, Resources};
pub use machine::{Machine, Output, Surroundings};
pub use time::{Moment, Ttl};
