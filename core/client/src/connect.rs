//! Creates the node for an address: a connection to a server, or a node in this process's memory.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::address::{Address, Place};
use crate::guards::GuardedNode;
use crate::memory_node::MemoryNode;
use crate::node::Node;
use crate::redis_node::{Connections, NodeSettings, RedisNode};
use crate::tasks::Tasks;

/// The node at `address`; the kind of address decides the kind of node. If the node needs a task,
/// that runs on the runtime of `handle`.
///
/// ```
/// use quorlock::{Address, Node as _, NodeSettings, connect};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # let handle = runtime.handle();
/// let address: Address = "redis://:secret@cache.example/1".parse()?;
/// let node = connect(&address, &NodeSettings::default(), handle);
/// assert_eq!(node.address(), "redis://cache.example:6379/1");
/// # Ok::<(), quorlock_protocol::ConfigError>(())
/// ```
pub fn connect(address: &Address, settings: &NodeSettings, handle: &Handle) -> Arc<dyn Node> {
    let connections = Connections::on(Tasks::on(handle.clone()));
    connect_guarded(address, settings, &connections, None)
}

/// The same, with the guards of a manager.
pub(crate) fn connect_guarded(
    address: &Address,
    settings: &NodeSettings,
    connections: &Connections,
    guarded_node: Option<GuardedNode>,
) -> Arc<dyn Node> {
    match address.place() {
        Place::Memory(Some(name)) => {
            Arc::new(MemoryNode::with_key_prefix(name, address.key_prefix()))
        }
        Place::Memory(None) => Arc::new(MemoryNode::own(address.key_prefix())),
        Place::Tcp { .. } | Place::Unix(_) => {
            RedisNode::guarded(address.clone(), *settings, connections.clone(), guarded_node)
        }
    }
}
