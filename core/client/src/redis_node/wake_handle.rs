//! Passes a node's commands for queues to the wake connection of its server, which is apart from the one for locks.
//! Owns which commands are passed on; the connection does the rest.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use quorlock_protocol::{Action, Answer, Command};

use super::connections::Connections;
use super::faults::closed;
use super::settings::NodeSettings;
use super::wake::{IDLE, Message, Request, WakeConnection};
use crate::address::Address;
use crate::inbox::ReplyTo;

/// One node's handle of its server's wake connection.
pub(super) struct WakeHandle {
    connections: Connections,
    address: Arc<Address>,
    settings: NodeSettings,
    connection: OnceLock<Arc<WakeConnection>>,
    is_closed: AtomicBool,
}

impl WakeHandle {
    /// The handle of a node at `address`. The first node that sends a command decides the `settings` of the connection.
    pub(super) fn new(
        connections: Connections,
        address: Arc<Address>,
        settings: NodeSettings,
    ) -> Self {
        let (connection, is_closed) = (OnceLock::new(), AtomicBool::new(false));
        Self { connections, address, settings, connection, is_closed }
    }

    /// Hands a command for queues over; its reply goes to `reply_to`, and so does the news for the place that it takes.
    pub(super) fn send(&self, command: Command, reply_to: ReplyTo) {
        let is_leave = matches!(command.action, Action::Leave { .. });
        let request = Request::new(command, reply_to, self.address.key_prefix());
        if is_leave {
            let Some(connection) = self.connection.get() else {
                // No place was taken with this handle.
                return request.answer(Ok(Answer::Done));
            };
            let background = self.connections.tasks().background();
            return connection.send(Message::Request(request.in_background(background)));
        }
        // Made before `is_closed` is read: if `close` runs meanwhile, it finds this connection and closes it.
        let connection = self.connection();
        if self.is_closed.load(Ordering::Acquire) {
            return request.answer(Err(closed()));
        }
        connection.send(Message::Request(request));
    }

    /// Ends the connection as soon as nobody waits. Later commands are refused, except for those that give a place up.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        if let Some(connection) = self.connection.get() {
            connection.send(Message::Close);
        }
    }

    /// What the server cannot do, and why, so that callers must poll or watch: for people. `None` if it can do
    /// everything, or if no wake connection was made yet.
    pub(super) fn lacks(&self) -> Option<Arc<str>> {
        self.connection.get()?.lacks()
    }

    fn connection(&self) -> &Arc<WakeConnection> {
        self.connection.get_or_init(|| {
            let tasks = self.connections.tasks();
            self.connections.wake_connections().find_or_start(
                tasks,
                &self.address,
                self.settings,
                IDLE,
            )
        })
    }
}
