//! One Redis or Valkey server as a node. Owns the way from the caller to the task that holds the
//! connection; never knows of other nodes, never retries a round.

mod actor;
mod batch;
mod batcher;
mod call;
mod connection;
mod connections;
mod contention_cache;
mod dialer;
mod facts;
mod faults;
mod fence_expiry_cache;
mod frame;
mod gate;
mod guard_probe;
mod link;
mod login;
mod native;
mod pipe;
mod scripts;
mod stream;
mod tls;
mod wake_sources;
mod wire;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use quorlock_protocol::{Command, Moment};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};

use self::actor::{Actor, closed, refuse};
use self::batch::{NodeMessage, Request};
pub(crate) use self::connections::Connections;
use self::dialer::Dialer;
use crate::address::Address;
use crate::clock::{ToldClock, ToldMoment};
use crate::inbox::ReplyTo;
use crate::node::{Node, NodeState};
use crate::outage;
use crate::sentry::Sentry;
use crate::tasks::Tasks;

/// How a node's connection is made and watched.
///
/// ```
/// use quorlock::NodeSettings;
/// use std::time::Duration;
///
/// let far_away = NodeSettings { connect_timeout: Duration::from_secs(3), ..NodeSettings::default() };
/// assert_eq!(far_away.hang_after, Duration::from_millis(250));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// How long connecting may take, with TLS and log-in: 1 s by default. Longer for nodes far away;
    /// shorter to learn sooner that a node is gone.
    pub connect_timeout: Duration,
    /// A node that leaves a command unanswered for so long is taken for hung and gets no new grants
    /// until it answers: 250 ms by default. Longer for servers that run slow scripts; shorter to spare
    /// callers the wait.
    pub hang_after: Duration,
    /// The first delay before a lost node is tried again: 50 ms by default. It doubles each time.
    pub backoff_min: Duration,
    /// The longest such delay: 2 s by default.
    pub backoff_max: Duration,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(1),
            hang_after: Duration::from_millis(250),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
        }
    }
}

/// One Redis or Valkey server.
///
/// It connects at the first [`Node::send`] or [`Node::settled`], over a connection that is its own. (Those that
/// managers make by address share theirs within an [`Engine`](crate::Engine).) A lost connection is replaced at once if the server is there, and what was not answered is
/// sent again in order, once; otherwise commands fail at once while the node is tried in the background.
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
    queue: mpsc::UnboundedSender<NodeMessage>,
    state: watch::Receiver<NodeState>,
    connections: Connections,
    /// When the latest call was sent that is not answered.
    asked_at: Arc<ToldMoment>,
    clock: Arc<ToldClock>,
    start: Once,
    /// Until it is started.
    actor: Mutex<Option<(Actor, Option<Sentry>)>>,
}

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
        sentry: Option<Sentry>,
    ) -> Arc<Self> {
        let (queue, requests) = mpsc::unbounded_channel();
        let (teller, state) = watch::channel(NodeState::Connecting);
        let name = address.to_string();
        let clock = Arc::<ToldClock>::default();
        let (address, told_clock) = (Arc::new(address), Arc::clone(&clock));
        let shared = connections.clone();
        let dialer = Dialer::new(address, settings, shared, sentry.clone(), told_clock);
        let asked_at = Arc::default();
        let actor = Actor::new(dialer, requests, teller, Arc::clone(&asked_at));
        let actor = Mutex::new(Some((actor, sentry)));
        let start = Once::new();
        Arc::new(Self { name, queue, state, connections, asked_at, clock, start, actor })
    }

    fn start(&self) {
        self.start.call_once(|| {
            let actor = self.actor.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some((actor, sentry)) = actor {
                let tasks = self.connections.tasks();
                tasks.spawn(actor.run());
                if let Some(sentry) = sentry {
                    tasks.spawn(outage::watch(self.state.clone(), sentry));
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
        self.start();
        let request = Request::new(command, reply_to);
        // A node that is down costs the caller not even the way to its task.
        if let NodeState::Down(fault) = self.state() {
            return refuse(request, &fault);
        }
        if let Err(mpsc::error::SendError(NodeMessage::Request(request))) =
            self.queue.send(NodeMessage::Request(request))
        {
            refuse(request, &closed());
        }
    }

    fn owes_answer_since(&self) -> Option<Moment> {
        self.asked_at.get()
    }

    fn clock_micros(&self, now: Moment) -> Option<u64> {
        self.clock.shows_at(now)
    }

    fn look(&self) {
        // An error means that it is closed. A node that is down is looked at when it is up again.
        let _ = self.queue.send(NodeMessage::Probe);
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
    }
}
