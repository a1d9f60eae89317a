//! Renews and watches the leases of one manager, on one task of its engine. Owns when each lease is
//! looked at; the lease decides what it does then.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

use quorlock_protocol::{Command, Moment, NodeId};
use tokio::select;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use self::batcher::{Replies, ReplyBatcher};
use self::schedule::Schedule;
use crate::clock::LeaseClock;
use crate::engine::Engine;
use crate::inbox::{Arrival, Inbox, OperationId, ReplyTo, Wake};
use crate::node::{Node, hand_over};
use crate::observe::Telemetry;

mod batcher;
mod schedule;

/// What the scheduler needs to know of a lease.
pub(crate) trait Renewable: Send + Sync {
    fn ttl(&self) -> Duration;

    /// Takes in `replies`, or acts because it is due if there are none, and passes the commands that it wants sent
    /// to `send`. Returns when it is due next, or `None` to leave the schedule.
    fn step(
        self: Arc<Self>,
        operation: OperationId,
        replies: Vec<Arrival>,
        send: &dyn Fn(NodeId, Command),
    ) -> Option<Moment>;
}

/// Renews and watches the leases of one manager; those that are due together share commands.
///
/// A lease costs an entry here, and no task or timer of its own.
pub(crate) struct RenewalScheduler {
    shared: Arc<Shared>,
    start: Once,
}

/// What the leases and the task share.
struct Shared {
    nodes: Arc<[Arc<dyn Node>]>,
    schedule: Mutex<Schedule>,
    /// For the replies to all leases.
    inbox: Arc<Inbox>,
    /// A lease is due before the task would wake by itself.
    earlier_due: Notify,
}

impl RenewalScheduler {
    /// A scheduler for leases that use `clock`.
    pub(crate) fn new(
        nodes: &Arc<[Arc<dyn Node>]>,
        clock: &LeaseClock,
        telemetry: &Arc<Telemetry>,
    ) -> Self {
        let shared = Shared {
            nodes: Arc::clone(nodes),
            schedule: Mutex::default(),
            inbox: Inbox::with_room_for(0, clock, Some(telemetry)),
            earlier_due: Notify::new(),
        };
        Self { shared: Arc::new(shared), start: Once::new() }
    }

    /// Adds `lease`, which acts first at `due`; returns its number in the schedule.
    pub(crate) fn add(
        &self,
        engine: &Engine,
        lease: Weak<dyn Renewable>,
        due: Moment,
    ) -> OperationId {
        self.start.call_once(|| engine.spawn_detached(run(Arc::clone(&self.shared))));
        let (operation, is_early) = self.shared.schedule().add(lease, due);
        if is_early {
            self.shared.earlier_due.notify_one();
        }
        operation
    }

    /// Removes a lease; replies that still come for it are dropped.
    pub(crate) fn remove(&self, operation: OperationId) {
        self.shared.schedule().remove(operation);
    }

    /// How many leases are renewed or watched.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shared.schedule().len()
    }
}

impl Drop for RenewalScheduler {
    fn drop(&mut self) {
        self.shared.inbox.cancel();
    }
}

impl Shared {
    fn clock(&self) -> &LeaseClock {
        self.inbox.clock()
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the leases that are due act, after they have taken in their replies in `batcher`. Returns whether
    /// there may be more that are due.
    fn handle_due(&self, batcher: &mut ReplyBatcher) -> bool {
        let due = self.schedule().take_due(self.clock().now(), BATCH);
        self.process(batcher.take_of(&due));
        let is_full = due.len() == BATCH;
        let commands = due.len() * self.nodes.len();
        let shortest_ttl =
            self.process(due.into_iter().map(|operation| (operation, Vec::new())).collect());
        if let Some(ttl) = shortest_ttl {
            batcher.expect(commands, ttl);
        }
        is_full
    }

    /// Passes replies to their leases, or tells a lease that it is due where there are none. Returns the shortest
    /// ttl among these leases.
    fn process(&self, batch: Vec<Replies>) -> Option<Duration> {
        let leases = self.schedule().leases(&batch);
        let shortest_ttl = leases.iter().flatten().map(|lease| lease.ttl()).min();
        self.inbox.note_asking(self.clock().now());
        let step = |((operation, replies), lease): (Replies, Option<Arc<dyn Renewable>>)| {
            (operation, lease.and_then(|lease| self.step(operation, lease, replies)))
        };
        let dues = batch.into_iter().zip(leases).map(step).collect();
        self.schedule().set_due(dues);
        shortest_ttl
    }

    fn step(
        &self,
        operation: OperationId,
        lease: Arc<dyn Renewable>,
        replies: Vec<Arrival>,
    ) -> Option<Moment> {
        let send = |node: NodeId, command| {
            let reply_to = ReplyTo::of(&self.inbox, operation, node);
            hand_over(&*self.nodes[node.index()], command, reply_to);
        };
        // If one lease panics, the others are still renewed.
        catch_unwind(AssertUnwindSafe(|| lease.step(operation, replies, &send))).unwrap_or(None)
    }

    /// Waits for replies until the next lease is due, for `longest` at most. Returns `None` if no reply came.
    ///
    /// Timers stop while the computer sleeps and the lease clock does not, so no timer is longer than
    /// [`LONGEST_SLEEP`]: the clock is read again after it.
    async fn wait(&self, arrivals: &mut Vec<Arrival>, longest: Option<Duration>) -> Option<Wake> {
        let sleep_for = self.schedule().begin_sleep(self.clock().now(), LONGEST_SLEEP, longest);
        let timer = async {
            match sleep_for {
                Some(duration) => sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        select! {
            biased;
            wake = self.inbox.take(arrivals) => Some(wake),
            () = self.earlier_due.notified() => None,
            () = self.clock().jump() => None,
            () = timer => None,
        }
    }
}

/// Runs until the manager is dropped.
async fn run(shared: Arc<Shared>) {
    let (mut batcher, mut arrivals) = (ReplyBatcher::default(), Vec::new());
    let mut more_are_due = false;
    loop {
        let wake = if batcher.is_ready() {
            yield_now().await;
            shared.inbox.try_take(&mut arrivals)
        } else if more_are_due {
            // Quick nodes answer what was sent before more is sent: this bounds the commands in flight, and
            // lets the engine's other tasks run.
            timeout(PAUSE_BETWEEN_BATCHES, shared.inbox.take(&mut arrivals)).await.ok()
        } else {
            shared.wait(&mut arrivals, batcher.left()).await
        };
        match wake {
            Some(Wake::Cancelled) => return,
            Some(Wake::Replies | Wake::Freed | Wake::News(..)) => batcher.gather(&mut arrivals),
            None if !more_are_due && batcher.left().is_none() => batcher.expect_no_more(),
            None => {}
        }
        if batcher.is_ready() {
            shared.process(batcher.take(BATCH));
        }
        more_are_due = shared.handle_due(&mut batcher);
    }
}

const LONGEST_SLEEP: Duration = Duration::from_secs(1);
const PAUSE_BETWEEN_BATCHES: Duration = Duration::from_millis(1);
/// How many leases act before the engine's other tasks run: one command to a node carries as many.
const BATCH: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    struct Dropped;

    impl Renewable for Dropped {
        fn ttl(&self) -> Duration {
            unreachable!("it is dropped")
        }

        fn step(
            self: Arc<Self>,
            _: OperationId,
            _: Vec<Arrival>,
            _: &dyn Fn(NodeId, Command),
        ) -> Option<Moment> {
            unreachable!("it is dropped")
        }
    }

    #[tokio::test]
    async fn a_due_lease_takes_its_replies_and_the_others_wait() {
        let scheduler = RenewalScheduler::new(
            &Arc::from([]),
            &LeaseClock::default(),
            &Arc::new(Telemetry::of(0)),
        );
        let lease: Weak<dyn Renewable> = Weak::<Dropped>::new();
        let (operation, _) = scheduler.shared.schedule().add(lease, Moment::from_millis(0));
        let mut batcher = ReplyBatcher::of_replies_to(operation.0..operation.0 + 100);
        assert!(!batcher.is_ready());
        scheduler.shared.handle_due(&mut batcher);
        assert_eq!(scheduler.len(), 0, "the lease was dropped");
        let left = batcher.take(1000);
        assert!(left.len() == 99 && left.iter().all(|(other, _)| *other != operation));
    }
}
