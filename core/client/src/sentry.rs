//! One node's side of the guards that all nodes of a manager share. Owns the sharing; judges nothing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use quorlock_protocol::{
    Checkup, ClockReading, Guards, NodeId, Notes, Notice, Policy, Quorum, Ruling,
};
use tokio::sync::watch;

use crate::clock::{self, System};

/// The guards of one manager.
#[derive(Clone)]
pub(crate) struct Watch {
    shared: Arc<Shared>,
}

struct Shared {
    guards: Mutex<Guards>,
    /// Counts what may change the ruling on another node.
    changes: watch::Sender<u64>,
}

/// The guards as one node's connection sees them.
#[derive(Clone)]
pub(crate) struct Sentry {
    watch: Watch,
    node: NodeId,
    changes: watch::Receiver<u64>,
}

impl Watch {
    pub(crate) fn new(policy: &Policy, quorum: Quorum) -> Self {
        let guards = Mutex::new(Guards::new(policy, quorum));
        Self { shared: Arc::new(Shared { guards, changes: watch::Sender::new(0) }) }
    }

    /// The side of one node; `None` if there is nothing to guard.
    pub(crate) fn sentry(&self, node: NodeId) -> Option<Sentry> {
        let changes = self.shared.changes.subscribe();
        self.guards().are_on().then(|| Sentry { watch: self.clone(), node, changes })
    }

    /// Learns that locks of `policy` will be asked for; whether the nodes are to be told first.
    pub(crate) fn handle_policy(&self, policy: &Policy) -> bool {
        self.guards().handle_policy(policy)
    }

    pub(crate) fn take_notices(&self) -> Vec<Notice> {
        self.guards().take_notices()
    }

    fn guards(&self) -> MutexGuard<'_, Guards> {
        self.shared.guards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `deed` at the guards, then tells the other nodes' connections if there is news for them, and
    /// the lease clock if it has lost time.
    fn with<T>(&self, deed: impl FnOnce(&mut Guards) -> T) -> T {
        let mut guards = self.guards();
        let suspected = guards.suspects_since();
        let result = deed(&mut guards);
        let (is_news, lost) = (guards.take_news(), guards.take_lost_time());
        drop(guards);
        if !lost.is_zero() {
            clock::set_forward(lost, suspected.unwrap_or_else(clock::now));
        }
        if is_news {
            self.shared.changes.send_modify(|count| *count += 1);
        }
        result
    }
}

impl Sentry {
    pub(crate) fn handle_down(&self) {
        self.watch.with(|guards| guards.handle_down(self.node));
    }

    pub(crate) fn handle_checkup(&self, checkup: &Checkup) -> Ruling {
        self.watch.with(|guards| guards.handle_checkup(&mut System, self.node, checkup))
    }

    /// Whether a clock may show what it shows, so that the grant that told it counts.
    pub(crate) fn handle_clock(&self, reading: ClockReading) -> bool {
        self.watch.with(|guards| guards.handle_clock(self.node, reading))
    }

    pub(crate) fn notes(&self) -> Notes {
        self.watch.guards().notes_for(self.node, clock::now())
    }

    /// Whether the node is to be looked at now, although its ruling may stand.
    pub(crate) fn wants_look(&self) -> bool {
        self.watch.guards().wants_look(self.node)
    }

    /// Waits for something that may change the ruling on this node.
    pub(crate) async fn changed(&mut self) {
        if self.changes.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
