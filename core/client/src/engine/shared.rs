//! Gives the managers of an engine access to what they share: clock jumps, connections, and the queues of callers.
//! Owns none of these.

use super::Engine;
use crate::caller_queues::SharedQueues;
use crate::clock::ClockJumps;
use crate::redis_node::Connections;

impl Engine {
    /// The clock jumps that this engine's managers have noticed.
    pub(crate) fn jumps(&self) -> &ClockJumps {
        &self.shared.jumps
    }

    /// The connections that this engine's managers share.
    pub(crate) fn connections(&self) -> &Connections {
        &self.shared.connections
    }

    /// The queues in which callers of this engine's managers wait.
    pub(crate) fn caller_queues(&self) -> &SharedQueues {
        &self.shared.caller_queues
    }
}
