//! Gives each node's connection its part of the guards that all nodes of a manager share. Owns the
//! sharing and the news between them; decides nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorlock_protocol::{
    Checkup, ClockReading, ConfigError, Fault, Guards, Identity, Moment, NodeId, Notes, Notice,
    Policy, Quorum, Ruling,
};
use tokio::select;
use tokio::sync::watch;

use crate::clock::{self, ClockJumps, LeaseClock, Snapshot, System};
use crate::node::NodeState;
use crate::observe::{Observer, Telemetry};

/// The guards of one manager.
#[derive(Clone)]
pub(crate) struct GuardsHandle {
    shared: Arc<Shared>,
}

struct Shared {
    guards: Mutex<Guards>,
    /// A counter of changes that may affect the ruling on another node.
    changes: watch::Sender<u64>,
    observer: Observer,
    /// The manager's lease clock, which is set forward by the time that its guards find to be lost.
    clock: LeaseClock,
    jumps: ClockJumps,
}

/// One node of the manager, as its guards know it: the node's connection reports to the guards and asks them.
#[derive(Clone)]
pub(crate) struct GuardedNode {
    guards: GuardsHandle,
    node: NodeId,
    /// Whether the node must be looked at from time to time.
    looks: bool,
    changes: watch::Receiver<u64>,
    /// Clock jumps of all managers on the engine.
    jumps: watch::Receiver<()>,
}

/// News for a node's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The ruling on the node may have changed.
    Ruling,
    /// A manager of this engine has lost time: look at the node, whatever its ruling.
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

    /// One of the nodes.
    pub(crate) fn guarded_node(&self, node: NodeId) -> GuardedNode {
        let (looks, changes) = (self.guards().are_on(), self.shared.changes.subscribe());
        GuardedNode {
            guards: self.clone(),
            node,
            looks,
            changes,
            jumps: self.shared.jumps.listen(),
        }
    }

    /// The lease clock of the manager.
    pub(crate) fn clock(&self) -> &LeaseClock {
        &self.shared.clock
    }

    /// The events and figures of the manager.
    pub(crate) fn telemetry(&self) -> &Arc<Telemetry> {
        self.shared.observer.telemetry()
    }

    /// Takes note of the settings of locks that will be acquired.
    pub(crate) fn handle_policy(&self, policy: &Policy) {
        self.guards().handle_policy(policy);
    }

    /// Call before asking for a lock; `None` if no other client needs to know how long it lasts.
    /// The result also tells whether the nodes must be told first.
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

    /// Tells people of what concerns no guard.
    pub(crate) fn tell(&self, notice: Notice) {
        self.shared.observer.tell(vec![notice]);
    }

    fn guards(&self) -> MutexGuard<'_, Guards> {
        self.shared.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies `deed` to the guards. Then informs the other nodes' connections if there is news,
    /// the manager's lease clock and all managers if time was lost, and people of notices.
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

/// A long lock that may be held: other clients know of it while this value exists.
pub(crate) struct LongLockNote {
    guards: GuardsHandle,
    key_ttl: Duration,
    /// How long keys may stay that no operation takes back.
    ends_after: Duration,
    is_over: bool,
}

impl LongLockNote {
    /// For how long nodes are asked to keep keys.
    pub(crate) fn key_ttl(&self) -> Duration {
        self.key_ttl
    }

    /// No client relies on the lock any more, whatever keys are left.
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

impl GuardedNode {
    /// Whether the node must be looked at from time to time.
    pub(crate) const fn looks(&self) -> bool {
        self.looks
    }

    /// Tells the guards who the node's server is; returns why the node has no vote, if so.
    pub(crate) fn handle_identity(&self, identity: &Identity) -> Option<Fault> {
        self.guards.with(|guards| guards.handle_identity(self.node, identity.clone()));
        self.dependence()
    }

    /// Why the node has no vote, so that its grants never count; `None` if it has one.
    pub(crate) fn dependence(&self) -> Option<Fault> {
        let guards = self.guards.guards();
        guards.dependence(self.node).map(|it| self.guards.shared.observer.fault_of(it))
    }

    pub(crate) fn handle_down(&self, now: Moment) {
        self.guards.with(|guards| guards.handle_down(self.node, now));
    }

    /// A try to reach the node has failed that began at that moment.
    pub(crate) fn handle_failed_try(&self, began: Moment) {
        self.guards.guards().handle_failed_try(self.node, began);
    }

    /// Tells programs that the state of the node has changed.
    pub(crate) fn tell_change(&self, from: &NodeState, to: &NodeState) {
        self.guards.shared.observer.tell_change(self.node, from, to);
    }

    /// Tells people that the node does not take part any more, and why; whether another manager of
    /// the engine has told it as well.
    pub(crate) fn tell_down(&self, why: Arc<str>, is_repeat: bool) {
        self.guards.shared.observer.tell_of_outage(Notice::NodeDown(self.node, why), is_repeat);
    }

    /// The same when the node takes part again, after this time.
    pub(crate) fn tell_up(&self, after: Duration, is_repeat: bool) {
        self.guards.shared.observer.tell_of_outage(Notice::NodeUp(self.node, after), is_repeat);
    }

    pub(crate) fn handle_checkup(&self, checkup: &Checkup, now: Moment) -> Ruling {
        let mut world = Snapshot::at(now);
        self.guards.with(|guards| guards.handle_checkup(&mut world, self.node, checkup))
    }

    /// Whether a clock may show this time, so that the grant that carried it counts.
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

    /// Whether the node must be looked at now, although its ruling may still hold.
    pub(crate) fn wants_look(&self) -> bool {
        self.guards.guards().wants_look(self.node)
    }

    /// Waits for news for this node's connection.
    pub(crate) async fn news(&mut self) -> News {
        select! {
            biased;
            Ok(()) = self.jumps.changed() => News::Jump,
            Ok(()) = self.changes.changed() => News::Ruling,
            else => std::future::pending().await,
        }
    }
}
