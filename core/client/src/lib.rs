//! Quorlock for Rust.
mod clock;
mod inbox;
mod node;

pub use inbox::ReplyTo;
pub use node::{Node, NodeState};
