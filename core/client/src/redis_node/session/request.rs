//! One command for a node, and where its answer goes. Owns the shortcuts that read the command;
//! knows no wire format.

#[cfg(test)]
use std::fmt;
use std::time::Duration;

use quorlock_protocol::{Action, Answer, Command, Fault, FaultKind, Moment, Reply, Ticket, Ttl};
use redis::{Cmd, Value};
use tokio::sync::oneshot;

use crate::inbox::ReplyTo;

/// One command, and where its answer goes.
pub(crate) struct Request {
    pub(crate) command: Command,
    reply_to: ReplyTo,
}

/// A call that is no lock command, and where its reply goes. It is sent once at most, in order with
/// the commands; if the connection is lost before the reply, the asker finds its channel closed.
pub(crate) struct PlainCall {
    pub(crate) call: Cmd,
    pub(crate) asker: oneshot::Sender<Value>,
}

#[cfg(test)]
impl fmt::Debug for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {:?}", self.command.claim.holder.as_str(), self.command.action)
    }
}

impl Request {
    pub(crate) fn new(command: Command, reply_to: ReplyTo) -> Self {
        Self { command, reply_to }
    }

    /// Hands the answer, which came at `at`, to the operation that asked. `repeated` says that the command went out
    /// more than once.
    pub(super) fn answer(self, answer: Result<Answer, Fault>, repeated: bool, at: Moment) {
        self.reply_to.deliver_at(at, Reply { ticket: self.command.ticket, answer, repeated });
    }

    /// Answers a command that was never sent, because of `fault`.
    pub(crate) fn refuse(self, fault: &Fault, at: Moment) {
        self.answer(Err(unsent(fault)), false, at);
    }

    pub(crate) fn is_revoke(&self) -> bool {
        matches!(self.command.action, Action::Revoke { .. })
    }

    pub(super) fn is_grant(&self) -> bool {
        matches!(self.command.action, Action::Grant { .. })
    }

    /// Whether it is the grant of one resource in the first round of an acquisition, when the lock
    /// is usually free.
    pub(super) fn is_first_grant(&self) -> bool {
        let is_plain = matches!(self.command.action, Action::Grant { place: None, .. });
        is_plain && self.keys() == 1 && self.command.ticket == Ticket::default()
    }

    /// Whether it is a grant in the order of coming.
    pub(super) fn is_fair(&self) -> bool {
        matches!(self.command.action, Action::Grant { place: Some(_), .. })
    }

    pub(super) fn is_fenced(&self) -> bool {
        matches!(self.command.action, Action::Grant { fence: Some(_), .. })
    }

    /// How long the node is to keep the lock keys, for a command that takes or prolongs a lock.
    pub(super) fn keeps(&self) -> Option<Duration> {
        match self.command.action {
            Action::Grant { key_ttl, .. }
            | Action::Extend { key_ttl, .. }
            | Action::Restore { key_ttl } => Some(key_ttl.as_duration()),
            _ => None,
        }
    }

    /// The same for a grant alone.
    pub(super) fn grant_keeps(&self) -> Option<Duration> {
        self.keeps().filter(|_| self.is_grant())
    }

    /// How long the node is to remember the fence, for a command with one.
    pub(super) fn fence_retention(&self) -> Option<Ttl> {
        match self.command.action {
            Action::Grant { fence, .. } => fence.map(|fence| fence.retention),
            Action::RaiseFence { retention, .. } => Some(retention),
            _ => None,
        }
    }

    pub(super) fn is_extend(&self) -> bool {
        matches!(self.command.action, Action::Extend { .. })
    }

    /// Whether both are of the same holder, whose commands must keep their order.
    pub(super) fn is_of_same_holder(&self, other: &Self) -> bool {
        self.command.claim.holder == other.command.claim.holder
    }

    /// The number of lock keys.
    pub(super) fn keys(&self) -> usize {
        self.command.claim.resources.as_slice().len()
    }
}

/// The fault of a command that was never sent because of `fault`. A kind that only a person can
/// correct is kept, so that the caller learns of it.
fn unsent(fault: &Fault) -> Fault {
    if fault.kind().is_permanent() || fault.kind() == FaultKind::Late {
        fault.clone()
    } else {
        Fault::new(FaultKind::NotSent, fault.detail())
    }
}
