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
#[cfg(test)]
mod tests;
mod waiters;
mod watches;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use quorlock_protocol::{Action, Answer, Command};
use tokio::sync::mpsc;

use self::actor::{Actor, Message};
use self::lacks::Lacks;
use self::request::Request;
use super::actor::closed;
use super::connections::Connections;
use super::settings::NodeSettings;
use crate::address::Address;
use crate::inbox::ReplyTo;
use crate::tasks::Tasks;

/// One node's way to its server's wake connection.
pub(super) struct WakeLine {
    connections: Connections,
    address: Arc<Address>,
    settings: NodeSettings,
    shared: OnceLock<Arc<SharedLine>>,
    is_closed: AtomicBool,
}

/// The wake connections of an engine, one for each server and log-in, which exist as long as a node uses them.
#[derive(Default)]
pub(super) struct WakeLines(Mutex<Vec<Weak<SharedLine>>>);

/// The way to the task that holds a wake connection. The task ends when it is dropped.
struct SharedLine {
    address: Arc<Address>,
    messages: mpsc::UnboundedSender<Message>,
    lacks: Arc<Lacks>,
}

impl WakeLine {
    /// The way from a node at `address`. The first node that sends a command decides the `settings` of the connection.
    pub(super) fn new(
        connections: Connections,
        address: Arc<Address>,
        settings: NodeSettings,
    ) -> Self {
        let (shared, is_closed) = (OnceLock::new(), AtomicBool::new(false));
        Self { connections, address, settings, shared, is_closed }
    }

    /// Hands a command for queues over; its reply goes to `reply_to`, and so does the news for the place that it takes.
    pub(super) fn send(&self, command: Command, reply_to: ReplyTo) {
        let is_leave = matches!(command.action, Action::Leave { .. });
        let request = Request::new(command, reply_to, self.address.key_prefix());
        let shared = if is_leave { self.shared.get() } else { Some(self.shared()) };
        let Some(shared) = shared else {
            // No place was taken over this line.
            return request.answer(Ok(Answer::Done));
        };
        if self.is_closed.load(Ordering::Acquire) && !is_leave {
            return request.answer(Err(closed()));
        }
        if let Err(mpsc::error::SendError(Message::Request(request))) =
            shared.messages.send(Message::Request(request))
        {
            request.answer(Err(closed()));
        }
    }

    /// Ends the connection as soon as nobody waits. Later commands are refused, except for those that give a place up.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        if let Some(shared) = self.shared.get() {
            // An error means that the runtime has ended.
            let _ = shared.messages.send(Message::Close);
        }
    }

    /// What the server cannot do, and why, so that callers must poll or watch: for people. `None` if it can do
    /// everything, or if no wake connection was made yet.
    pub(super) fn lacks(&self) -> Option<Arc<str>> {
        self.shared.get()?.lacks.describe()
    }

    fn shared(&self) -> &Arc<SharedLine> {
        self.shared.get_or_init(|| {
            let tasks = self.connections.tasks();
            self.connections.wake_lines().find_or_start(tasks, &self.address, self.settings, IDLE)
        })
    }
}

impl WakeLines {
    /// The line to the server of `address`; `idle` says how long a new one keeps a connection without a waiter.
    fn find_or_start(
        &self,
        tasks: &Tasks,
        address: &Arc<Address>,
        settings: NodeSettings,
        idle: Duration,
    ) -> Arc<SharedLine> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.retain(|line| line.strong_count() > 0);
        let mut existing = lines.iter().filter_map(Weak::upgrade);
        if let Some(line) = existing.find(|line| line.address.connects_as(address)) {
            return line;
        }
        let (messages, inbox) = mpsc::unbounded_channel();
        let (address, lacks) = (Arc::clone(address), Arc::<Lacks>::default());
        tasks.spawn(Actor::new(Arc::clone(&address), settings, idle, inbox, &lacks).run());
        let line = Arc::new(SharedLine { address, messages, lacks });
        lines.push(Arc::downgrade(&line));
        line
    }
}

/// How long a connection is kept without a waiter.
const IDLE: Duration = Duration::from_secs(60);
