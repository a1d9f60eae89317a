//! One command for the queues of a server, and where its answer goes. Owns its keys; knows no wire format.

use std::sync::Arc;

use quorlock_protocol::{Action, Answer, Command, Fault, FaultKind, Reply, Waiter};

use crate::background::{Background, BackgroundTicket};
use crate::clock;
use crate::inbox::ReplyTo;
use crate::keys::lock_key;

/// One command, and where its answer goes.
pub(in crate::redis_node) struct Request {
    pub(super) command: Command,
    pub(super) lock_keys: LockKeys,
    pub(super) reply_to: ReplyTo,
    /// Counts as background work until the command is answered: nobody waits for it.
    background: Option<BackgroundTicket>,
}

/// The lock keys that a caller waits for.
pub(super) type LockKeys = Arc<[Arc<str>]>;

impl Request {
    pub(in crate::redis_node) fn new(command: Command, reply_to: ReplyTo, prefix: &str) -> Self {
        let names = command.claim.resources.as_slice().iter();
        let lock_keys = names.map(|name| lock_key(prefix, name).into()).collect();
        Self { command, lock_keys, reply_to, background: None }
    }

    /// Makes it background work, which the end of the process waits for.
    pub(in crate::redis_node) fn in_background(self, background: &Arc<Background>) -> Self {
        Self { background: Some(BackgroundTicket::new(background)), ..self }
    }

    /// Whose place it is about.
    pub(super) fn waiter(&self) -> Option<Waiter> {
        match self.command.action {
            Action::Enqueue { place } | Action::Leave { place } => Some(place.waiter),
            _ => None,
        }
    }

    pub(super) fn is_leave(&self) -> bool {
        matches!(self.command.action, Action::Leave { .. })
    }

    /// Whether it must not be sent any more.
    pub(super) fn is_late(&self) -> bool {
        self.command.not_after < clock::now()
    }

    /// Hands the answer to the operation that asked.
    pub(in crate::redis_node) fn answer(self, answer: Result<Answer, Fault>) {
        let Self { command, reply_to, background, .. } = self;
        reply_to.deliver(Reply { ticket: command.ticket, answer, repeated: false });
        drop(background);
    }

    /// Answers a command that was not sent because the server cannot be reached. A place that cannot be given up ends
    /// by itself.
    pub(super) fn refuse(self, fault: &Fault) {
        let answer = if self.is_leave() { Ok(Answer::Done) } else { Err(fault.clone()) };
        self.answer(answer);
    }

    /// Answers a command that is read too late.
    pub(super) fn refuse_late(self) {
        self.answer(Err(Fault::new(
            FaultKind::Late,
            "this process came to it too late to send it",
        )));
    }
}
