//! The contract between every state machine and the driver that runs it. Owns the trait; knows no
//! particular machine.

use crate::command::{Command, Reply};
use crate::identity::{HolderId, NodeId};
use crate::queue::News;
use crate::time::Moment;

/// A part of the protocol as a state machine that does no input or output itself.
///
/// A driver polls it until it must wait, waits for a reply or for the moment named, hands that in,
/// and polls again; the crate's page shows the loop.
pub trait Machine {
    /// The result of the machine.
    type Outcome;

    /// Returns the next thing to do. Must be called again after every `Send`, and after every
    /// input.
    fn poll(&mut self, env: &mut dyn Environment) -> Output<Self::Outcome>;

    /// A node answered a command of this machine. Unknown and repeated replies are ignored.
    fn handle_reply(&mut self, env: &mut dyn Environment, node: NodeId, reply: Reply);

    /// Time has passed; called at (or after) the moment that the last poll returned.
    fn handle_timeout(&mut self, env: &mut dyn Environment);

    /// The resource may be free now. This is only a hint: a machine works without it.
    fn handle_freed(&mut self) {}

    /// A node has news for this machine's place in its queue. This is only a hint, too.
    fn handle_news(&mut self, _env: &mut dyn Environment, _node: NodeId, _news: News) {}

    /// The caller cancelled: withdraw what was asked for and finish.
    fn cancel(&mut self, env: &mut dyn Environment);
}

/// What a machine asks its driver to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// Send this command to this node, after everything that was sent to the node before.
    Send(NodeId, Command),
    /// Nothing to do before this moment, unless a reply comes.
    WakeAt(Moment),
    /// Finished. The machine must not be polled again.
    Done(T),
}

/// The clocks and the randomness that a machine may ask its driver for.
pub trait Environment {
    /// The lease clock for most machines, and a clock that is never corrected for the
    /// [guards](crate::Guards). Both are monotonic and count the time in which the computer sleeps.
    ///
    /// The lease clock shows what the other one would show if this process had not been paused: the
    /// driver sets it forward by [`Guards::take_lost_time`](crate::Guards::take_lost_time).
    fn now(&self) -> Moment;

    /// The wall clock in microseconds since 1970; only a hint for fencing tokens.
    fn wall_micros(&self) -> u64;

    /// The median of the nodes' own clocks, as far as they are known, in microseconds since 1970;
    /// `None` (the default) while none is known. Fencing tokens are proposed from it, so that they
    /// do not depend on this machine's clock.
    fn nodes_micros(&self) -> Option<u64> {
        None
    }

    /// Bytes from the operating system's cryptographic source.
    fn random(&mut self) -> [u8; HolderId::RANDOM_BYTES];
}
