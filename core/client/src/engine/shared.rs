//! Gives the managers of an engine access to what they share: clock jumps, connections, and the lines of callers.
//! Owns none of these.

use super::Engine;
use crate::caller_lines::SharedLines;
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

    /// The lines in which callers of this engine's managers wait.
    pub(crate) fn caller_lines(&self) -> &SharedLines {
        &self.shared.caller_lines
    }
}
