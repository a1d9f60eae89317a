//! The contract of a node: an ordered queue of commands to one independent master. Owns the trait;
//! knows no transport.
//!
//! # The contract
//! - Commands reach the node in the order of the calls to [`Node::send`]; none overtakes another, also
//!   over a reconnection. A revoke that overtook its grant would leave a key that no one owns.
//! - Every command takes effect on the node as if in one step, with the meaning that [`Action`] gives it.
//! - Every command is answered once, or not at all when the node hangs: the machines have deadlines of
//!   their own. A node known to be down answers [`FaultKind::NotSent`] at once.
//! - A node never retries a round and never knows of other nodes.
//!
//! The test suite in `tests/node_contract/main.rs` holds every kind of node to it.
//!
//! [`Action`]: quorlock_protocol::Action
//! [`FaultKind::NotSent`]: quorlock_protocol::FaultKind::NotSent

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use quorlock_protocol::{Command, Moment};
use redis::{Cmd, Value};
use tokio::sync::oneshot;

use crate::inbox::ReplyTo;
pub use crate::node_state::NodeState;

/// One independent master.
pub trait Node: Send + Sync + 'static {
    /// Its address, as shown to people; never with a password.
    fn address(&self) -> &str;

    /// Hands a command over; its reply goes to `reply_to`. Never waits.
    ///
    /// [`Command::not_after`] is a moment of [`boot_clock`](crate::boot_clock): a node that reads
    /// the command later must not carry it out.
    fn send(&self, command: Command, reply_to: ReplyTo);

    /// Its state, as far as it is known now.
    fn state(&self) -> NodeState;

    /// Starts to connect if it has not, and waits until it is known whether the node is up or down
    /// (not until it is up).
    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Closes the connection once the commands handed over so far have been written.
    fn close(&self);

    /// What only nodes of this crate can do; `None` for any other.
    #[doc(hidden)]
    fn server(&self) -> Option<&dyn ServerNode> {
        None
    }
}

/// A node that is a server.
pub trait ServerNode {
    /// When, by the boot clock, the latest unanswered command was sent; `None` if all are answered.
    fn unanswered_since(&self) -> Option<Moment>;

    /// What the server's clock shows at `now` of the boot clock, in microseconds since 1970, if
    /// that is known.
    fn clock_micros(&self, now: Moment) -> Option<u64>;

    /// What every lock key on the server begins with.
    fn key_prefix(&self) -> &str;

    /// Sends a call that is no lock command, in order with the commands. The channel is closed
    /// without a reply if the server cannot be asked, or the connection is lost meanwhile.
    fn call(&self, call: Cmd) -> oneshot::Receiver<Value>;

    /// Writes the guards' notes to the server, before the commands that are sent from now on.
    fn probe(&self);

    /// The same server as a new node, which takes part in no guards: for keys that are taken back after a close.
    fn reopened(&self) -> Arc<dyn Node>;

    /// What the server cannot do for callers that wait, and why, so that they must poll: for people. `None` if it can do
    /// everything, or if nobody has waited yet.
    fn wake_lacks(&self) -> Option<Arc<str>>;

    /// See [`Redlock::leave_out`](crate::Redlock::leave_out).
    fn leave_out(&self, is_left_out: bool);
}

/// [`Node::send`] for a node that a user may have implemented: if it panics (which is printed on
/// standard error), that counts as no answer.
///
/// Only here a machine's lease clock is converted to the boot clock that nodes use;
/// [`ReplyTo::deliver_at`] converts back.
pub(crate) fn hand_over(node: &dyn Node, mut command: Command, reply_to: ReplyTo) {
    command.not_after = reply_to.clock().to_boot(command.not_after);
    let _ = catch_unwind(AssertUnwindSafe(|| node.send(command, reply_to)));
}
