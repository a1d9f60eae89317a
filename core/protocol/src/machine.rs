//! The contract between every machine and its driver. Owns the trait; knows no particular machine.

use crate::command::{Command, Reply};
use crate::identity::{HolderId, NodeId};
use crate::time::Moment;

/// A part of the protocol as a state machine without input or output of its own.
///
/// A driver polls it until it must wait, waits for a reply or for the moment named, hands that in
/// and polls again; see the crate's page for the loop.
pub trait Machine {
    /// What the machine is for.
    type Outcome;

    /// The next thing to do. Must be called again after every `Send`, and after every input.
    fn poll(&mut self, env: &mut dyn Environment) -> Output<Self::Outcome>;

    /// A node answered a command of this machine. Unknown and repeated replies are ignored.
    fn handle_reply(&mut self, env: &mut dyn Environment, node: NodeId, reply: Reply);

    /// Time has passed; called at (or after) the moment that the last poll named.
    fn handle_timeout(&mut self, env: &mut dyn Environment);

    /// What is waited for may be free now: a hint, which is never needed.
    fn handle_freed(&mut self) {}

    /// The caller gave up: withdraw what was asked for and finish.
    fn cancel(&mut self, env: &mut dyn Environment);
}

/// What a machine wants of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output<T> {
    /// Send this command to this node, in order with what was sent to it before.
    Send(NodeId, Command),
    /// Nothing to do before this moment, unless a reply comes.
    WakeAt(Moment),
    /// Finished. The machine must not be polled again.
    Done(T),
}

/// What a machine may ask of the world around it.
pub trait Environment {
    /// For machines the lease clock, for the [guards](crate::Guards) a clock that is never corrected; both monotonic,
    /// and counting the time that the computer sleeps.
    ///
    /// The lease clock is what the other would show, had it not stood still with its machine: the driver sets it
    /// forward by [`Guards::take_lost_time`](crate::Guards::take_lost_time).
    fn now(&self) -> Moment;

    /// The wall clock in microseconds since 1970: only ever a hint for fencing tokens.
    fn wall_micros(&self) -> u64;

    /// The middle one of the nodes' own clocks, as far as they are known, in microseconds since 1970; `None`
    /// (the default) while none is known. Fencing tokens are proposed by it, so that they do not depend on the
    /// clock of this machine.
    fn nodes_micros(&self) -> Option<u64> {
        None
    }

    /// Bytes from the operating system's cryptographic source.
    fn random(&mut self) -> [u8; HolderId::RANDOM_BYTES];
}
