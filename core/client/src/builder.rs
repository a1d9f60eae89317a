//! Collects and checks what a manager is made of: nodes, settings, engine. Starts nothing before
//! `build`.

use std::sync::Arc;

use quorlock_protocol::{ConfigError, NodeId, Policy, Quorum, Resource};

use crate::address::Address;
use crate::caller_queues::{Alike, CallerQueues};
use crate::connect::connect_guarded;
use crate::engine::Engine;
use crate::error::LockError;
use crate::guards::GuardsHandle;
use crate::manager::{Manager, Redlock};
use crate::node::Node;
use crate::observe::{Event, EventListener, Interest, Listener, NoticeReport, Observer};
use crate::owner::Owner;
use crate::redis_node::NodeSettings;

/// Collects what a [`Redlock`] is made of.
#[derive(Default)]
#[must_use]
pub struct Builder {
    nodes: Vec<Result<NodeSpec, ConfigError>>,
    policy: Policy,
    settings: NodeSettings,
    engine: Option<Engine>,
    listener: Option<Listener>,
    event_listeners: Vec<(Interest, EventListener)>,
    owner: Option<Result<Owner, ConfigError>>,
    may_leave_out: bool,
}

impl Redlock {
    /// Starts a manager without nodes and with the default policy.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

enum NodeSpec {
    At(Box<Address>),
    Given(Arc<dyn Node>),
}

impl NodeSpec {
    /// Its address, as shown to people.
    fn shown(&self) -> Arc<str> {
        match self {
            Self::At(address) => address.to_string().into(),
            Self::Given(node) => node.address().into(),
        }
    }
}

impl Builder {
    /// Adds nodes by address: `redis://host:port/db`, `rediss://`, `unix:///path`, `memory://name`.
    pub fn nodes<S: AsRef<str>>(mut self, addresses: impl IntoIterator<Item = S>) -> Self {
        for address in addresses {
            let address = address.as_ref().parse::<Address>();
            self.nodes.push(address.map(|address| NodeSpec::At(Box::new(address))));
        }
        self
    }

    /// Adds one node by a parsed address.
    pub fn address(mut self, address: Address) -> Self {
        self.nodes.push(Ok(NodeSpec::At(Box::new(address))));
        self
    }

    /// Adds one node that the caller implements.
    pub fn node(mut self, node: Arc<dyn Node>) -> Self {
        self.nodes.push(Ok(NodeSpec::Given(node)));
        self
    }

    /// The settings that locks start from.
    pub const fn policy(mut self, policy: Policy) -> Self {
        self.policy = policy;
        self
    }

    /// How the nodes are connected to.
    pub fn node_settings(mut self, settings: NodeSettings) -> Self {
        self.settings = settings;
        self
    }

    /// The thread to use instead of the one that the process shares.
    pub fn engine(mut self, engine: Engine) -> Self {
        self.engine = Some(engine);
        self
    }

    /// Sets the listener for notices: events that a person should be told of, such as a node that
    /// may have forgotten locks.
    ///
    /// It is called on the engine's thread and must not block.
    pub fn on_notice(mut self, listener: impl Fn(&NoticeReport) + Send + Sync + 'static) -> Self {
        self.listener = Some(Arc::new(listener));
        self
    }

    /// Lets others see who holds the locks of this manager: `words` (such as `service` and its name),
    /// the host and the process id, 4 KiB at most. Default: nothing is told.
    ///
    /// It stands beside each lock in a key `quorlock:owner:{NAME}`, which is written after the lock
    /// was acquired, is never waited for, and goes with it. [`Redlock::holder`] and the errors of
    /// refused locks of managers that have an owner themselves show it. A wrong word is an error of
    /// [`Self::build`].
    pub fn owner<K: AsRef<str>, V: AsRef<str>>(
        mut self,
        words: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        self.owner = Some(Owner::new(words));
        self
    }

    /// Says that [`Redlock::leave_out`] will be used. Default: false.
    ///
    /// Callers of managers of a process that are alike wait in one queue. While one waits whose nodes are left out, those of
    /// managers without this setting do not wait behind it.
    pub fn may_leave_out(mut self, may_leave_out: bool) -> Self {
        self.may_leave_out = may_leave_out;
        self
    }

    /// Adds a listener for events: what happens to locks and nodes, for programs that watch.
    ///
    /// It is called on the thread on which the event happens, mostly the engine's, and must not
    /// block. Without a listener, no event is made. See also [`Redlock::subscribe`].
    pub fn on_event(self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.on_events(Interest::ALL, listener)
    }

    /// The same for some events only.
    pub fn on_events(
        mut self,
        interest: Interest,
        listener: impl Fn(&Event) + Send + Sync + 'static,
    ) -> Self {
        self.event_listeners.push((interest, Arc::new(listener)));
        self
    }

    /// Checks the nodes as [`Self::build`] does, without starting anything.
    ///
    /// # Errors
    /// As for [`Self::build`].
    pub fn check(&self) -> Result<(), LockError> {
        let problem = self.nodes.iter().find_map(|node| node.as_ref().err());
        let problem = problem.or_else(|| self.owner.as_ref()?.as_ref().err());
        problem.map_or(Ok(()), |error| Err(error.clone()))?;
        let specs: Vec<&NodeSpec> = self.nodes.iter().flatten().collect();
        Ok(check_nodes(&specs)?)
    }

    /// Makes the manager. Nothing is connected yet.
    ///
    /// # Errors
    /// [`Config`](crate::ErrorKind::Config) if there is no node, an address is wrong, or one is named twice.
    pub fn build(self) -> Result<Redlock, LockError> {
        self.check()?;
        let owner = self.owner.transpose()?;
        let specs: Vec<NodeSpec> = self.nodes.into_iter().flatten().collect();
        let engine = match self.engine {
            Some(engine) => engine,
            None => Engine::shared().map_err(|error| {
                ConfigError::new(format!("the lock thread could not be started: {error}"))
            })?,
        };
        let addresses = specs.iter().map(NodeSpec::shown).collect();
        let observer = Observer::new(addresses, self.listener);
        for (interest, listener) in self.event_listeners {
            observer.telemetry().add(interest, listener);
        }
        let guards =
            GuardsHandle::new(&self.policy, Quorum::of(specs.len()), observer, engine.jumps());
        let make = |(id, spec): (NodeId, &NodeSpec)| match spec {
            NodeSpec::At(address) => {
                let guarded_node = guards.guarded_node(id);
                connect_guarded(address, &self.settings, engine.connections(), Some(guarded_node))
            }
            NodeSpec::Given(node) => Arc::clone(node),
        };
        let nodes: Arc<[Arc<dyn Node>]> = NodeId::all(specs.len()).zip(&specs).map(make).collect();
        let caller_queues =
            caller_queues_of(&specs, self.policy, self.settings, self.may_leave_out, &engine);
        let mut manager =
            Manager::new(nodes, guards, self.policy, self.settings, engine, caller_queues);
        manager.owner = owner;
        Ok(Redlock::over(manager))
    }
}

/// The queues in which the callers of a manager wait: with those of managers that are alike, if other managers can have its
/// nodes too.
fn caller_queues_of(
    specs: &[NodeSpec],
    policy: Policy,
    settings: NodeSettings,
    may_leave_out: bool,
    engine: &Engine,
) -> Arc<CallerQueues> {
    let shareable = |spec: &NodeSpec| match spec {
        NodeSpec::At(address) if !address.is_own() => Some(Address::clone(address)),
        NodeSpec::At(_) | NodeSpec::Given(_) => None,
    };
    let nodes: Option<Vec<Address>> = specs.iter().map(shareable).collect();
    let alike = nodes.map(|nodes| Alike { nodes, policy, settings, may_leave_out });
    alike.map_or_else(Arc::default, |alike| engine.caller_queues().of(alike))
}

/// A lock key must not look like one of the library's own keys.
fn check_prefix(spec: &NodeSpec) -> Result<(), ConfigError> {
    let NodeSpec::At(address) = spec else {
        return Ok(());
    };
    let prefix = address.key_prefix();
    let reserved = Resource::RESERVED;
    if prefix.is_empty() || !(prefix.starts_with(reserved) || reserved.starts_with(prefix)) {
        return Ok(());
    }
    Err(ConfigError::new(format!(
        "the key prefix {prefix:?} of {} is not possible: with it, lock keys could begin with {reserved:?}, as the keys \
         do that the library keeps for itself",
        spec.shown()
    )))
}

fn check_nodes(specs: &[&NodeSpec]) -> Result<(), ConfigError> {
    for spec in specs {
        check_prefix(spec)?;
    }
    if specs.is_empty() {
        return Err(ConfigError::new(
            "no nodes were given: name at least one, such as redis://localhost:6379",
        ));
    }
    if specs.len() > NodeId::MAX_COUNT {
        return Err(ConfigError::new(format!(
            "at most {} nodes are possible, not {}",
            NodeId::MAX_COUNT,
            specs.len()
        )));
    }
    let mut endpoints: Vec<(String, &Address)> = Vec::new();
    for spec in specs {
        let NodeSpec::At(address) = spec else {
            continue;
        };
        if address.is_own() {
            continue;
        }
        let endpoint = address.endpoint();
        if let Some((_, other)) = endpoints.iter().find(|(other, _)| *other == endpoint) {
            return Err(twins(other, address));
        }
        endpoints.push((endpoint, address));
    }
    Ok(())
}

/// The error for two addresses that lead to one server.
fn twins(one: &Address, two: &Address) -> ConfigError {
    if one.to_string() == two.to_string() {
        return ConfigError::new(format!(
            "the node {one} is named twice: a quorum needs independent nodes"
        ));
    }
    ConfigError::new(format!(
        "{one} and {two} are one and the same server, but a quorum needs servers that fail independently: \
         name each once"
    ))
}
