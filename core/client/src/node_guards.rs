//! One node's side of the guards that all nodes of a manager share. Owns the sharing; judges nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorlock_protocol::{
    Checkup, ClockReading, ConfigError, Fault, Guards, Identity, Moment, NodeId, Notes, Notice,
    Policy, Quorum, Ruling,
};
use tokio::select;
use tokio::sync::watch;

use crate::clock::{self, ClockJumps, LeaseClock, Snapshot, System};
use crate::observe::Observer;

/// The guards of one manager.
#[derive(Clone)]
pub(crate) struct GuardsHandle {
    shared: Arc<Shared>,
}

struct Shared {
    guards: Mutex<Guards>,
    /// Counts what may change the ruling on another node.
    changes: watch::Sender<u64>,
    observer: Observer,
    /// The manager's, set forward by what its guards find to be lost.
    clock: LeaseClock,
    jumps: ClockJumps,
}

/// The guards as one node's connection sees them.
#[derive(Clone)]
pub(crate) struct NodeGuard {
    guards: GuardsHandle,
    node: NodeId,
    /// Whether the node is to be looked at, now and then.
    looks: bool,
    changes: watch::Receiver<u64>,
    /// Of all managers on the engine.
    jumps: watch::Receiver<()>,
}

/// What a node's connection should hear of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The ruling on the node may have changed.
    Ruling,
    /// A manager of this engine has lost time: the node is to be looked at, whatever the ruling.
    Jump,
}

impl GuardsHandle {
    pub(crate) fn new(
        policy: &Policy,
        quorum: Quorum,
        observer: Observer,
        jumps: &ClockJumps,
    ) -> Self {
        let guards = Mutex::new(Guards::new(policy, quorum));
        let (changes, jumps) = (watch::Sender::new(0), jumps.clone());
        let clock = LeaseClock::default();
        Self { shared: Arc::new(Shared { guards, changes, observer, clock, jumps }) }
    }

    /// The side of one node.
    pub(crate) fn node_guard(&self, node: NodeId) -> NodeGuard {
        let (looks, changes) = (self.guards().are_on(), self.shared.changes.subscribe());
        NodeGuard { guards: self.clone(), node, looks, changes, jumps: self.shared.jumps.listen() }
    }

    /// The lease clock of the manager.
    pub(crate) fn clock(&self) -> &LeaseClock {
        &self.shared.clock
    }

    /// Learns that locks of `policy` will be asked for.
    pub(crate) fn handle_policy(&self, policy: &Policy) {
        self.guards().handle_policy(policy);
    }

    /// A lock is about to be asked for; `None` if nobody needs to know how long it lasts. Whether the nodes are to be
    /// told first comes with what ends it.
    pub(crate) fn begin_long_lock(&self, policy: &Policy) -> Option<(LongLockNote, bool)> {
        let key_ttl = policy.longest_key_ttl();
        if key_ttl <= Guards::FLOOR {
            return None;
        }
        let wants_look = self.with(|guards| guards.begin_long_lock(&mut System, key_ttl));
        let ends_after = key_ttl + policy.drift().of(policy.ttl());
        Some((
            LongLockNote { guards: self.clone(), key_ttl, ends_after, is_over: false },
            wants_look,
        ))
    }

    /// What is wrong with the list of nodes, as far as the servers have told it.
    pub(crate) fn mistake(&self) -> Option<ConfigError> {
        let guards = self.guards();
        guards.mistake().map(|it| ConfigError::new(self.shared.observer.explain(it)))
    }

    fn guards(&self) -> MutexGuard<'_, Guards> {
        self.shared.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `deed` at the guards, then tells the other nodes' connections if there is news for them, the
    /// manager's lease clock and all managers if it has lost time, and people what they should hear of.
    fn with<T>(&self, deed: impl FnOnce(&mut Guards) -> T) -> T {
        let mut guards = self.guards();
        let result = deed(&mut guards);
        let (is_news, lost) = (guards.take_news(), guards.take_lost_time());
        let notices = guards.take_notices();
        drop(guards);
        if !lost.is_zero() {
            self.shared.clock.set_forward(lost);
            self.shared.jumps.tell();
        }
        if is_news {
            self.shared.changes.send_modify(|count| *count += 1);
        }
        if !notices.is_empty() {
            self.shared.observer.tell(notices);
        }
        result
    }
}

/// A long lock that may be held: while this is there, other clients know.
pub(crate) struct LongLockNote {
    guards: GuardsHandle,
    key_ttl: Duration,
    /// For how long keys may stay that nobody takes back.
    ends_after: Duration,
    is_over: bool,
}

impl LongLockNote {
    /// For how long nodes are asked to keep keys.
    pub(crate) fn key_ttl(&self) -> Duration {
        self.key_ttl
    }

    /// Nobody relies on the lock any more, whatever keys are left.
    pub(crate) fn finish(mut self) {
        self.is_over = true;
    }
}

impl Drop for LongLockNote {
    fn drop(&mut self) {
        let now = clock::now();
        let at = if self.is_over { now } else { now + self.ends_after };
        self.guards.with(|guards| guards.end_long_lock(self.key_ttl, at, now));
    }
}

impl NodeGuard {
    /// Whether the node is to be looked at, now and then.
    pub(crate) const fn looks(&self) -> bool {
        self.looks
    }

    /// Has the guards know who the node's server is; tells why it has no vote of its own, if so.
    pub(crate) fn handle_identity(&self, identity: &Identity) -> Option<Fault> {
        self.guards.with(|guards| guards.handle_identity(self.node, identity.clone()));
        self.dependence()
    }

    /// Why the node has no vote of its own, so that its grants never count; `None` if it has.
    pub(crate) fn dependence(&self) -> Option<Fault> {
        let guards = self.guards.guards();
        guards.dependence(self.node).map(|it| self.guards.shared.observer.fault_of(it))
    }

    pub(crate) fn handle_down(&self, now: Moment) {
        self.guards.with(|guards| guards.handle_down(self.node, now));
    }

    /// Tells people that the node takes no part any more, and why.
    pub(crate) fn tell_down(&self, why: Arc<str>) {
        self.guards.shared.observer.tell(vec![Notice::NodeDown(self.node, why)]);
    }

    /// Tells people that the node takes part again, after so long.
    pub(crate) fn tell_up(&self, after: Duration) {
        self.guards.shared.observer.tell(vec![Notice::NodeUp(self.node, after)]);
    }

    pub(crate) fn handle_checkup(&self, checkup: &Checkup, now: Moment) -> Ruling {
        let mut world = Snapshot::at(now);
        self.guards.with(|guards| guards.handle_checkup(&mut world, self.node, checkup))
    }

    /// Whether a clock may show what it shows, so that the grant that told it counts.
    pub(crate) fn handle_clock(&self, reading: ClockReading) -> bool {
        self.guards.with(|guards| guards.handle_clock(self.node, reading))
    }

    pub(crate) fn notes(&self, now: Moment) -> Notes {
        self.guards.guards().notes_for(self.node, now)
    }

    /// Whether other clients know that the node may be asked to keep keys for `key_ttl`.
    pub(crate) fn covers(&self, key_ttl: Duration, now: Moment) -> bool {
        self.guards.guards().covers(self.node, key_ttl, now)
    }

    /// Whether the node is to be looked at now, although its ruling may stand.
    pub(crate) fn wants_look(&self) -> bool {
        self.guards.guards().wants_look(self.node)
    }

    /// Waits for something that this node's connection should hear of.
    pub(crate) async fn news(&mut self) -> News {
        select! {
            biased;
            Ok(()) = self.jumps.changed() => News::Jump,
            Ok(()) = self.changes.changed() => News::Ruling,
            else => std::future::pending().await,
        }
    }
}
