//! Drives the hold machines of all leases of one manager, on one task. Owns when each is looked at; what
//! comes of it is the lease's.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

use quorlock_protocol::{Moment, NodeId};
use tokio::select;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::Shared;
use crate::clock::{self, Jumps};
use crate::engine::Engine;
use crate::inbox::{Arrival, Inbox, OperationId, ReplyTo, Wake};
use crate::node::Node;

/// Renews and watches the leases of one manager, those that are due together in one go.
///
/// A lease that is kept costs an entry here, and no task or timer of its own.
pub(crate) struct Keeper {
    desk: Arc<Desk>,
    start: Once,
}

/// What the leases and the task share.
struct Desk {
    nodes: Arc<[Arc<dyn Node>]>,
    book: Mutex<Book>,
    /// For the replies to all machines.
    inbox: Arc<Inbox>,
    /// Something is due before the task would wake by itself.
    nudge: Notify,
    jumps: Jumps,
}

/// Who is kept, and when each is due.
#[derive(Default)]
struct Book {
    entries: BTreeMap<OperationId, Entry>,
    queue: BTreeSet<(Due, OperationId)>,
    last: OperationId,
    /// When the task wakes by itself.
    wakes_at: Due,
}

struct Entry {
    lease: Weak<Shared>,
    due: Due,
}

/// A moment in nanoseconds of the lease clock: half the size, of which there are two a lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Due(u64);

impl From<Moment> for Due {
    fn from(moment: Moment) -> Self {
        Self(u64::try_from(moment.since_epoch().as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Keeper {
    pub(crate) fn new(nodes: &Arc<[Arc<dyn Node>]>, jumps: &Jumps) -> Self {
        let desk = Desk {
            nodes: Arc::clone(nodes),
            book: Mutex::default(),
            inbox: Arc::default(),
            nudge: Notify::new(),
            jumps: jumps.clone(),
        };
        Self { desk: Arc::new(desk), start: Once::new() }
    }

    /// Keeps `lease`, whose machine is to be looked at when it is `due`, under the name that this gives.
    pub(super) fn keep(&self, engine: &Engine, lease: Weak<Shared>, due: Moment) -> OperationId {
        self.start.call_once(|| engine.spawn_detached(run(Arc::clone(&self.desk))));
        let mut book = self.desk.lock();
        let operation = book.add(lease, due.into());
        let is_early = Due::from(due) < book.wakes_at;
        drop(book);
        if is_early {
            self.desk.nudge.notify_one();
        }
        operation
    }

    /// Looks at a lease no more; what is still answered for it is dropped.
    pub(super) fn forget(&self, operation: OperationId) {
        self.desk.lock().remove(operation);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.desk.inbox.cancel();
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits a moment for the rest of `expected` replies where a crowd of leases has got the first: each then acts once
    /// or twice, and not for each node.
    async fn gather(&self, batch: &mut Vec<Arrival>, expected: usize) {
        let end = Instant::now() + GATHERING;
        let mut more = Vec::new();
        while (CROWD..expected).contains(&batch.len()) {
            match timeout_at(end, self.inbox.take(&mut more)).await {
                Ok(Wake::Replies) => batch.append(&mut more),
                Ok(Wake::Cancelled) | Err(_) => return,
            }
        }
    }

    /// Hands the replies of `batch` to the leases that asked.
    fn hand_over(&self, batch: &mut Vec<Arrival>) {
        // Stable: what came from the nodes for one lease stays in its order.
        batch.sort_by_key(|arrival| arrival.operation);
        let mut asked: Vec<_> = batch.iter().map(|arrival| arrival.operation).collect();
        asked.dedup();
        let leases = self.lock().leases(&asked);
        let mut arrivals = batch.drain(..).peekable();
        let mut dues = Vec::with_capacity(leases.len());
        for (operation, lease) in asked.into_iter().zip(leases) {
            let own = || arrivals.next_if(|arrival| arrival.operation == operation);
            dues.push((operation, self.attend(operation, lease, &mut std::iter::from_fn(own))));
        }
        drop(arrivals);
        batch.shrink_to(KEPT);
        self.lock().set_due(dues);
    }

    /// Lets the leases act whose time has come; tells whether there may be more of them, and for how many replies it is
    /// worth waiting: for none if they were late.
    fn handle_due(&self) -> (bool, usize) {
        let now = clock::now();
        let mut book = self.lock();
        let is_late = book.queue.first().is_some_and(|(due, _)| *due < now.before(LATE).into());
        let due = book.take_due(now, AT_ONCE);
        let leases = book.leases(&due);
        drop(book);
        let is_full = due.len() == AT_ONCE;
        let expected = if is_late { 0 } else { due.len() * self.nodes.len() };
        let mut dues = Vec::with_capacity(leases.len());
        for (operation, lease) in due.into_iter().zip(leases) {
            dues.push((operation, self.attend(operation, lease, &mut std::iter::empty())));
        }
        self.lock().set_due(dues);
        (is_full, expected)
    }

    /// Has one lease take in `replies`, or that its time has come if there are none; tells when it is due
    /// next, if it is kept any longer.
    fn attend(
        &self,
        operation: OperationId,
        lease: Option<Arc<Shared>>,
        replies: &mut dyn Iterator<Item = Arrival>,
    ) -> Option<Moment> {
        let send = |node: NodeId, command| {
            self.nodes[node.index()].send(command, ReplyTo::of(&self.inbox, operation, node));
        };
        let due = lease.and_then(|lease| {
            // Whatever a callback or a node of the user's own does, the other leases are kept.
            let step = || lease.step(operation, replies, send);
            catch_unwind(AssertUnwindSafe(step)).unwrap_or(None)
        });
        replies.for_each(drop);
        due
    }

    /// How long nothing is due; `None` if nobody is kept.
    fn begin_nap(&self) -> Option<Duration> {
        let now = clock::now();
        let mut book = self.lock();
        let left = |due: Due| Duration::from_nanos(due.0.saturating_sub(Due::from(now).0));
        let nap = book.queue.first().map(|(due, _)| left(*due).min(LONGEST_NAP));
        book.wakes_at = nap.map_or(Moment::FAR_FUTURE, |nap| now + nap).into();
        nap
    }

    /// Waits for a reply, or until the next lease is due, or for one that is due earlier.
    ///
    /// Timers stop while the computer sleeps and the lease clock does not, so no timer is longer than
    /// a nap: the clock is looked at again after it.
    async fn wait(&self, batch: &mut Vec<Arrival>) -> Option<Wake> {
        let nap = self.begin_nap();
        let timer = async {
            match nap {
                Some(nap) => sleep(nap).await,
                None => std::future::pending().await,
            }
        };
        select! {
            biased;
            wake = self.inbox.take(batch) => Some(wake),
            () = self.nudge.notified() => None,
            () = self.jumps.next() => None,
            () = timer => None,
        }
    }
}

/// Until the manager is gone.
async fn run(desk: Arc<Desk>) {
    let mut batch = Vec::new();
    let (mut is_behind, mut expected) = (false, 0);
    loop {
        let wake = if is_behind {
            // What was sent goes out, and is answered if the nodes are quick, before more is sent: so the
            // work under way stays small, and others have their turn.
            timeout(BREATH, desk.inbox.take(&mut batch)).await.ok()
        } else {
            desk.wait(&mut batch).await
        };
        match wake {
            Some(Wake::Cancelled) => return,
            Some(Wake::Replies) => {
                desk.gather(&mut batch, expected).await;
                desk.hand_over(&mut batch);
            }
            None => {}
        }
        (is_behind, expected) = desk.handle_due();
    }
}

impl Book {
    fn add(&mut self, lease: Weak<Shared>, due: Due) -> OperationId {
        self.last.0 += 1;
        self.entries.insert(self.last, Entry { lease, due });
        self.queue.insert((due, self.last));
        self.last
    }

    fn remove(&mut self, operation: OperationId) {
        if let Some(entry) = self.entries.remove(&operation) {
            self.queue.remove(&(entry.due, operation));
        }
    }

    /// The first `most` that are due at `now`.
    fn take_due(&mut self, now: Moment, most: usize) -> Vec<OperationId> {
        let mut due = Vec::new();
        while due.len() < most && self.queue.first().is_some_and(|(at, _)| *at <= now.into()) {
            due.extend(self.queue.pop_first().map(|(_, operation)| operation));
        }
        due
    }

    /// The leases of `operations`, where they are still kept and somebody still has them.
    fn leases(&self, operations: &[OperationId]) -> Vec<Option<Arc<Shared>>> {
        let lease = |operation| self.entries.get(operation)?.lease.upgrade();
        operations.iter().map(lease).collect()
    }

    /// Notes when each of them is due next; those that never are again are forgotten.
    fn set_due(&mut self, dues: Vec<(OperationId, Option<Moment>)>) {
        for (operation, due) in dues {
            let Some(due) = due else {
                self.remove(operation);
                continue;
            };
            if let Some(entry) = self.entries.get_mut(&operation) {
                let old = std::mem::replace(&mut entry.due, due.into());
                if old != entry.due {
                    self.queue.remove(&(old, operation));
                }
                self.queue.insert((entry.due, operation));
            }
        }
    }
}

const LONGEST_NAP: Duration = Duration::from_secs(1);
const BREATH: Duration = Duration::from_millis(1);
/// So many leases act before others have their turn on the thread: what one command to a node carries.
const AT_ONCE: usize = 256;
/// So many replies at once are those of many leases, of which others will come.
const CROWD: usize = 64;
/// They wait for these for so long,
const GATHERING: Duration = Duration::from_millis(4);
/// unless leases act so late.
const LATE: Duration = Duration::from_millis(20);
/// For so many replies room is kept.
const KEPT: usize = 1024;

#[cfg(test)]
mod tests {
    use quorlock_protocol::{Answer, Reply, Ticket};
    use tokio::task::yield_now;

    use super::*;
    use crate::lease::Lease;
    use crate::manager::Redlock;

    fn kept(lease: &Lease) -> usize {
        let book = lease.shared.manager.keeper.desk.lock();
        assert_eq!(book.queue.len(), book.entries.len());
        book.entries.len()
    }

    #[tokio::test]
    async fn only_who_is_renewed_or_watched_is_in_the_book_and_only_as_long() {
        let names = ["memory://book-a", "memory://book-b", "memory://book-c"];
        let locks = Redlock::builder().nodes(names).build().expect("three nodes");
        let lock = |name, renewed| locks.lock(name).auto_extend(renewed);
        let bare = lock("bare", false).acquire().await.expect("it is free").into_lease();
        assert_eq!(kept(&bare), 0, "nobody waits for its loss");
        let released = lock("released", true).acquire().await.expect("it is free").into_lease();
        let dropped = lock("dropped", true).acquire().await.expect("it is free").into_lease();
        assert_eq!(kept(&bare), 2);
        bare.on_lost(|_| {});
        assert_eq!(kept(&bare), 3);
        released.extend(None).await.expect("it is held");
        assert_eq!(kept(&bare), 3, "once, also after an extension");
        released.release().await.expect("it is held");
        assert_eq!(kept(&bare), 2);
        drop(dropped);
        assert_eq!(kept(&bare), 1);
    }

    #[tokio::test]
    async fn the_replies_to_a_crowd_are_waited_for_but_not_for_long() {
        let keeper = Keeper::new(&Arc::from([]), &Jumps::default());
        let deliver = |count: usize| {
            for _ in 0..count {
                let reply =
                    Reply { ticket: Ticket(0), answer: Ok(Answer::Absent), repeated: false };
                ReplyTo::new(&keeper.desk.inbox, NodeId(0)).deliver(reply);
            }
        };
        let gathered = async |first: usize, expected: usize| {
            let mut batch = Vec::new();
            deliver(first);
            assert_eq!(keeper.desk.inbox.take(&mut batch).await, Wake::Replies);
            let later = async {
                yield_now().await;
                deliver(CROWD);
                yield_now().await;
                deliver(CROWD);
            };
            tokio::join!(keeper.desk.gather(&mut batch, expected), later);
            keeper.desk.inbox.try_take(&mut Vec::new());
            batch.len()
        };
        assert_eq!(gathered(CROWD, 3 * CROWD).await, 3 * CROWD);
        assert_eq!(gathered(CROWD, 2 * CROWD).await, 2 * CROWD);
        assert_eq!(gathered(CROWD - 1, 3 * CROWD).await, CROWD - 1, "not for a few");
        assert_eq!(gathered(CROWD, 4 * CROWD).await, 3 * CROWD, "one node is silent");
    }
}
