//! One Redis or Valkey server as a node. Owns the queue from callers to the task that holds the
//! connection; never knows of other nodes, never retries a round.

mod actor;
mod backoff;
mod connection;
mod connections;
mod dialer;
mod faults;
mod link;
mod log_in;
mod server_connection;
mod session;
mod settings;
mod transport;
mod wake;
mod wake_handle;
mod wake_sources;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError};

use quorlock_protocol::{Command, Moment};
use redis::{Cmd, Value};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use self::actor::{Actor, NodeMessage};
pub(crate) use self::connections::Connections;
use self::dialer::Dialer;
use self::faults::{closed, left_out};
pub use self::server_connection::{ServerConnection, ServerReply};
use self::session::{PlainCall, Request};
pub(crate) use self::session::{of_key, of_record};
pub use self::settings::NodeSettings;
use self::wake_handle::WakeHandle;
use crate::address::Address;
use crate::clock::{self, AtomicMoment, ToldClock};
use crate::guards::GuardedNode;
use crate::inbox::ReplyTo;
use crate::node::{Node, NodeState, ServerNode};
use crate::outage::{self, Outage};
use crate::tasks::Tasks;

/// One Redis or Valkey server.
///
/// It connects at the first [`Node::send`] or [`Node::settled`], over a connection of its own.
/// (Nodes that managers create by address share their connections within an
/// [`Engine`](crate::Engine).) A lost connection is replaced at once if the server is there, and
/// commands without an answer are sent again in order, once; otherwise commands fail at once while
/// the node is tried in the background.
///
/// ```no_run
/// use quorlock::{Node as _, NodeSettings, NodeState, RedisNode};
///
/// # async fn example() -> Result<(), quorlock_protocol::ConfigError> {
/// let handle = tokio::runtime::Handle::current();
/// let node = RedisNode::new("redis://localhost".parse()?, NodeSettings::default(), handle);
/// node.settled().await;
/// if let NodeState::Down(fault) = node.state() {
///     println!("{}: {fault}", node.address());
/// }
/// # Ok(())
/// # }
/// ```
pub struct RedisNode {
    name: String,
    address: Arc<Address>,
    settings: NodeSettings,
    key_prefix: String,
    queue: mpsc::UnboundedSender<NodeMessage>,
    state: watch::Receiver<NodeState>,
    connections: Connections,
    /// For commands that concern only queues.
    wake: WakeHandle,
    /// When the latest unanswered call was sent.
    asked_at: Arc<AtomicMoment>,
    clock: Arc<ToldClock>,
    /// No keys are made on it for now.
    is_left_out: AtomicBool,
    start: Once,
    /// Present until the task is started.
    actor: Mutex<Option<(Actor, Option<Watched>)>>,
}

/// For a node of a manager: where its outages are told.
type Watched = (GuardedNode, Arc<Outage>);

impl RedisNode {
    /// The node at `address`, whose task runs on the runtime of `handle` (which must have time and
    /// input and output enabled).
    pub fn new(address: Address, settings: NodeSettings, handle: Handle) -> Arc<Self> {
        Self::guarded(address, settings, Connections::on(Tasks::on(handle)), None)
    }

    pub(crate) fn guarded(
        address: Address,
        settings: NodeSettings,
        connections: Connections,
        guarded_node: Option<GuardedNode>,
    ) -> Arc<Self> {
        let (queue, requests) = mpsc::unbounded_channel();
        let (teller, state) = watch::channel(NodeState::Connecting);
        let (name, key_prefix) = (address.to_string(), address.key_prefix().to_owned());
        let clock = Arc::<ToldClock>::default();
        let (address, told_clock) = (Arc::new(address), Arc::clone(&clock));
        let shared = connections.clone();
        let wake = WakeHandle::new(connections.clone(), Arc::clone(&address), settings);
        let watched = guarded_node.clone().map(|it| (it, connections.outages().of(&address)));
        let dialer = Dialer::new(Arc::clone(&address), settings, shared, guarded_node, told_clock);
        let asked_at = Arc::default();
        let actor = Actor::new(dialer, requests, teller, Arc::clone(&asked_at));
        let actor = Mutex::new(Some((actor, watched)));
        let start = Once::new();
        Arc::new(Self {
            name,
            address,
            settings,
            key_prefix,
            queue,
            state,
            connections,
            wake,
            asked_at,
            clock,
            is_left_out: AtomicBool::new(false),
            start,
            actor,
        })
    }

    fn start(&self) {
        self.start.call_once(|| {
            let actor = self.actor.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some((actor, watched)) = actor {
                let tasks = self.connections.tasks();
                tasks.spawn(actor.run());
                if let Some((guarded_node, outage)) = watched {
                    tasks.spawn(outage::watch(self.state.clone(), guarded_node, outage));
                }
            }
        });
    }
}

impl Node for RedisNode {
    fn address(&self) -> &str {
        &self.name
    }

    fn send(&self, command: Command, reply_to: ReplyTo) {
        if command.action.is_of_queue() {
            return self.wake.send(command, reply_to);
        }
        self.start();
        let makes_keys = command.action.makes_keys();
        let request = Request::new(command, reply_to);
        if makes_keys && self.is_left_out.load(Ordering::Relaxed) {
            return request.refuse(&left_out(), clock::now());
        }
        // For a node that is down, the command does not even go to the node's task.
        if let NodeState::Down(fault) = self.state() {
            return request.refuse(&fault, clock::now());
        }
        if let Err(mpsc::error::SendError(NodeMessage::Request(request))) =
            self.queue.send(NodeMessage::Request(request))
        {
            request.refuse(&closed(), clock::now());
        }
    }

    fn state(&self) -> NodeState {
        self.state.borrow().clone()
    }

    fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.start();
        let mut state = self.state.clone();
        Box::pin(async move {
            // An error means that the task has ended, with its runtime: there is nothing to wait for.
            let _ = state.wait_for(|state| *state != NodeState::Connecting).await;
        })
    }

    fn close(&self) {
        // An error means that it is closed.
        let _ = self.queue.send(NodeMessage::Close);
        self.wake.close();
    }

    fn server(&self) -> Option<&dyn ServerNode> {
        Some(self)
    }
}

impl ServerNode for RedisNode {
    fn unanswered_since(&self) -> Option<Moment> {
        self.asked_at.get()
    }

    fn clock_micros(&self, now: Moment) -> Option<u64> {
        self.clock.shows_at(now)
    }

    fn key_prefix(&self) -> &str {
        &self.key_prefix
    }

    fn call(&self, call: Cmd) -> oneshot::Receiver<Value> {
        self.start();
        let (asker, reply) = oneshot::channel();
        // An error means that the node is closed, and drops the asker's end.
        let _ = self.queue.send(NodeMessage::Plain(PlainCall { call, asker }));
        reply
    }

    fn probe(&self) {
        // An error means that it is closed. A node that is down is probed when it is up again.
        let _ = self.queue.send(NodeMessage::Probe);
    }

    fn reopened(&self) -> Arc<dyn Node> {
        let address = Address::clone(&self.address);
        Self::guarded(address, self.settings, self.connections.clone(), None)
    }

    fn wake_lacks(&self) -> Option<Arc<str>> {
        self.wake.lacks()
    }

    fn leave_out(&self, is_left_out: bool) {
        self.is_left_out.store(is_left_out, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
