//! The wake connections of an engine: over them, callers take places in the queues of servers and are told when their
//! turn comes. Owns which connection a node's commands go to; never carries a vote.
//!
//! They are apart from the connections for lock commands: those stay as quick as they are, and what a server or proxy
//! cannot do (RESP3, publish and subscribe, tracking) costs nobody a lock. A wake connection is opened at the first
//! command, and closed when nobody has waited for a while.

mod actor;
mod calls;
mod lacks;
mod live;
mod log_in;
mod news;
mod request;
mod scripts;
mod waiters;
mod watches;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::mpsc;

use self::actor::Actor;
pub(super) use self::actor::Message;
use self::lacks::Lacks;
pub(super) use self::request::Request;
#[cfg(test)]
pub(super) use self::scripts::Script;
use super::faults::closed;
use super::settings::NodeSettings;
use crate::address::Address;
use crate::background::{Background, BackgroundTicket};
use crate::tasks::Tasks;

/// The wake connections of an engine, one for each server and log-in, which exist as long as a node uses them.
#[derive(Default)]
pub(super) struct WakeConnections(Mutex<Vec<Weak<WakeConnection>>>);

/// A wake connection that nodes share: hands messages to its task, which ends when this is dropped.
pub(super) struct WakeConnection {
    address: Arc<Address>,
    messages: mpsc::UnboundedSender<Message>,
    lacks: Arc<Lacks>,
}

impl WakeConnection {
    /// Hands a message to the task.
    pub(super) fn send(&self, message: Message) {
        if let Err(mpsc::error::SendError(Message::Request(request))) = self.messages.send(message)
        {
            // The runtime has ended.
            request.answer(Err(closed()));
        }
    }

    /// What the server cannot do, and why.
    pub(super) fn lacks(&self) -> Option<Arc<str>> {
        self.lacks.describe()
    }
}

impl WakeConnections {
    /// Gives up all places, as background work.
    pub(super) fn leave_all(&self, background: &Arc<Background>) {
        let connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for connection in connections.iter().filter_map(Weak::upgrade) {
            connection.send(Message::LeaveAll(BackgroundTicket::new(background)));
        }
    }

    /// The wake connection to the server of `address`; `idle` says how long a new one stays open without a waiter.
    pub(super) fn find_or_start(
        &self,
        tasks: &Tasks,
        address: &Arc<Address>,
        settings: NodeSettings,
        idle: Duration,
    ) -> Arc<WakeConnection> {
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| connection.strong_count() > 0);
        let mut existing = connections.iter().filter_map(Weak::upgrade);
        if let Some(connection) =
            existing.find(|connection| connection.address.connects_as(address))
        {
            return connection;
        }
        let (messages, inbox) = mpsc::unbounded_channel();
        let (address, lacks) = (Arc::clone(address), Arc::<Lacks>::default());
        tasks.spawn(Actor::new(Arc::clone(&address), settings, idle, inbox, &lacks).run());
        let connection = Arc::new(WakeConnection { address, messages, lacks });
        connections.push(Arc::downgrade(&connection));
        connection
    }
}

/// How long a connection is kept without a waiter.
pub(super) const IDLE: Duration = Duration::from_secs(60);
