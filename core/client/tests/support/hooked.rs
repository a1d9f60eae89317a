//! A node in memory that runs a test's function before each command.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use quorlock::{MemoryNode, Node, NodeState, ReplyTo};
use quorlock_protocol::Command;

pub struct Hooked<F> {
    node: MemoryNode,
    before: F,
}

/// The node called `name`, which has `before` called with each command first.
pub fn hooked(name: &str, before: impl Fn(&Command) + Send + Sync + 'static) -> Arc<dyn Node> {
    Arc::new(Hooked { node: MemoryNode::named(name), before })
}

impl<F: Fn(&Command) + Send + Sync + 'static> Node for Hooked<F> {
    fn address(&self) -> &str {
        self.node.address()
    }

    fn send(&self, command: Command, reply_to: ReplyTo) {
        (self.before)(&command);
        self.node.send(command, reply_to);
    }

    fn state(&self) -> NodeState {
        self.node.state()
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.node.settled()
    }

    fn close(&self) {}
}
