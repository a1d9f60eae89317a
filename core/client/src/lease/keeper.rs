//! Drives the hold machines of all leases of one manager, on one task. Owns when each is looked at; what
//! comes of it is the lease's.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::time::Duration;

use quorlock_protocol::{Moment, NodeId};
use tokio::select;
use tokio::sync::Notify;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::crowd::{Crowd, News};
use crate::clock::{self, LeaseClock};
use crate::engine::Engine;
use crate::inbox::{Arrival, Inbox, OperationId, ReplyTo, Wake};
use crate::node::{Node, hand_over};

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
        Self(clock::nanos(moment.since_epoch()))
    }
}

impl Keeper {
    /// For leases that go by `clock`.
    pub(crate) fn new(nodes: &Arc<[Arc<dyn Node>]>, clock: &LeaseClock) -> Self {
        let desk = Desk {
            nodes: Arc::clone(nodes),
            book: Mutex::default(),
            inbox: Arc::new(Inbox::with_room_for(0, clock)),
            nudge: Notify::new(),
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
    fn clock(&self) -> &LeaseClock {
        self.inbox.clock()
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the leases act whose time has come, after they have heard what there is in `crowd`; tells whether there may
    /// be more of them.
    fn handle_due(&self, crowd: &mut Crowd) -> bool {
        let due = self.lock().take_due(self.clock().now(), AT_ONCE);
        self.attend(crowd.let_go_of(&due));
        let is_full = due.len() == AT_ONCE;
        let count = due.len() * self.nodes.len();
        let shortest =
            self.attend(due.into_iter().map(|operation| (operation, Vec::new())).collect());
        if let Some(ttl) = shortest {
            crowd.expect(count, ttl);
        }
        is_full
    }

    /// Has leases take in what came for them, or that their time has come if nothing did; gives the shortest ttl
    /// among them.
    fn attend(&self, news: Vec<News>) -> Option<Duration> {
        let leases = self.lock().leases(&news);
        let shortest = leases.iter().flatten().map(|lease| lease.ttl()).min();
        let one = |((operation, replies), lease): (News, Option<Arc<Shared>>)| {
            (operation, lease.and_then(|lease| self.step(operation, &lease, replies)))
        };
        let dues = news.into_iter().zip(leases).map(one).collect();
        self.lock().set_due(dues);
        shortest
    }

    /// When the lease is due next, if it is kept any longer.
    fn step(
        &self,
        operation: OperationId,
        lease: &Arc<Shared>,
        replies: Vec<Arrival>,
    ) -> Option<Moment> {
        let send = |node: NodeId, command| {
            let reply_to = ReplyTo::of(&self.inbox, operation, node);
            hand_over(&*self.nodes[node.index()], command, reply_to);
        };
        // Whatever goes wrong with one, the other leases are kept.
        catch_unwind(AssertUnwindSafe(|| lease.step(operation, replies, send))).unwrap_or(None)
    }

    /// How long to wait for replies: until something is due, for `longest` at the most; `None` if nobody is kept.
    fn begin_nap(&self, longest: Option<Duration>) -> Option<Duration> {
        let now = self.clock().now();
        let mut book = self.lock();
        let left = |due: Due| Duration::from_nanos(due.0.saturating_sub(Due::from(now).0));
        let undisturbed = book.queue.first().map(|(due, _)| left(*due).min(LONGEST_NAP));
        let nap = [undisturbed, longest].into_iter().flatten().min();
        book.wakes_at = nap.map_or(Moment::FAR_FUTURE, |nap| now + nap).into();
        nap
    }

    /// Waits for a reply, or until the next lease is due, or for one that is due earlier, for `longest` at the most.
    ///
    /// Timers stop while the computer sleeps and the lease clock does not, so no timer is longer than
    /// a nap: the clock is looked at again after it.
    async fn wait(&self, news: &mut Vec<Arrival>, longest: Option<Duration>) -> Option<Wake> {
        let nap = self.begin_nap(longest);
        let timer = async {
            match nap {
                Some(nap) => sleep(nap).await,
                None => std::future::pending().await,
            }
        };
        select! {
            biased;
            wake = self.inbox.take(news) => Some(wake),
            () = self.nudge.notified() => None,
            () = self.clock().jump() => None,
            () = timer => None,
        }
    }
}

/// Until the manager is gone.
async fn run(desk: Arc<Desk>) {
    let (mut crowd, mut news) = (Crowd::default(), Vec::new());
    let mut is_behind = false;
    loop {
        let wake = if crowd.is_due() {
            yield_now().await;
            desk.inbox.try_take(&mut news)
        } else if is_behind {
            // What was sent goes out, and is answered if the nodes are quick, before more is sent: so the
            // work under way stays small, and others have their turn.
            timeout(BREATH, desk.inbox.take(&mut news)).await.ok()
        } else {
            desk.wait(&mut news, crowd.left()).await
        };
        match wake {
            Some(Wake::Cancelled) => return,
            Some(Wake::Replies | Wake::Freed) => crowd.gather(&mut news),
            None if !is_behind && crowd.left().is_none() => crowd.expect_no_more(),
            None => {}
        }
        if crowd.is_due() {
            desk.attend(crowd.let_go(AT_ONCE));
        }
        is_behind = desk.handle_due(&mut crowd);
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

    /// The leases that `news` are for, where they are still kept and somebody still has them.
    fn leases(&self, news: &[News]) -> Vec<Option<Arc<Shared>>> {
        let lease = |(operation, _): &News| self.entries.get(operation)?.lease.upgrade();
        news.iter().map(lease).collect()
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

#[cfg(test)]
mod tests {
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
    async fn who_is_due_takes_what_has_come_for_it_and_the_others_wait() {
        let keeper = Keeper::new(&Arc::from([]), &LeaseClock::default());
        let operation = keeper.desk.lock().add(Weak::new(), Due(0));
        let mut crowd = Crowd::of_replies_to(operation.0..operation.0 + 100);
        assert!(!crowd.is_due());
        keeper.desk.handle_due(&mut crowd);
        assert!(keeper.desk.lock().entries.is_empty(), "nobody has it any more");
        let left = crowd.let_go(1000);
        assert!(left.len() == 99 && left.iter().all(|(other, _)| *other != operation));
    }
}
