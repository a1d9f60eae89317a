//! Lets one caller of a process at a time try for a lock that several want; the others wait in the process's queue, in
//! the order in which they came. Owns that order, and who tries next; knows no command, and nothing of the nodes' queues.

mod registry;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use quorlock_protocol::{ErrorKind, Policy, Resources, WaitMode};
use tokio::sync::oneshot;
use tokio::time::timeout;

pub(crate) use self::registry::{Alike, SharedQueues};
use crate::contention::RecentContention;
use crate::inbox::Inbox;

/// The process's queues for the managers that are alike.
#[derive(Default)]
pub(crate) struct CallerQueues {
    queues: Mutex<HashMap<Wanted, CallerQueue>>,
    /// The latest number of a manager or a caller.
    numbers: AtomicU64,
    pub(crate) contention: RecentContention,
}

/// What the callers of one queue have in common: the one that tries waits for all of them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Wanted {
    resources: Resources,
    style: WaitStyle,
}

/// How a caller waits for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct WaitStyle {
    wait: WaitMode,
    is_fair: bool,
}

/// A manager among those that share their queues.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct ManagerNumber(u64);

/// The callers of one lock that wait in the same way: one tries, the others wait in the order in which they came.
#[derive(Default)]
struct CallerQueue {
    waiting: BTreeMap<u64, Caller>,
    /// The manager and the inbox of the caller that tries.
    trying: Option<(ManagerNumber, Arc<Inbox>)>,
}

/// A caller that waits in a queue.
struct Caller {
    manager: ManagerNumber,
    turn: oneshot::Sender<Turn>,
}

/// The right to try. When it is dropped, the next caller in the queue gets it.
pub(crate) struct Turn {
    caller_queues: Arc<CallerQueues>,
    /// `None` once it was passed on.
    wanted: Option<Wanted>,
    /// Why the caller before did not get the lock; `NotAcquired` if it got it.
    before: ErrorKind,
}

/// A caller's entry in a queue. When it is dropped, the caller leaves the queue.
pub(crate) struct CallerEntry<'a> {
    caller_queues: &'a CallerQueues,
    resources: &'a Resources,
    style: WaitStyle,
    number: u64,
    turn: oneshot::Receiver<Turn>,
}

impl Wanted {
    fn new(resources: &Resources, style: WaitStyle) -> Self {
        Self { resources: resources.clone(), style }
    }

    /// All that wait for a lock, however they do.
    fn all(resources: &Resources) -> impl Iterator<Item = Self> {
        let styles = WaitMode::ALL
            .into_iter()
            .flat_map(|wait| [false, true].map(|is_fair| WaitStyle { wait, is_fair }));
        styles.map(|style| Self::new(resources, style))
    }
}

impl WaitStyle {
    pub(crate) const fn of(policy: &Policy) -> Self {
        Self { wait: policy.wait(), is_fair: policy.fair() }
    }
}

impl CallerQueues {
    /// A number for a manager that no other has.
    pub(crate) fn number(&self) -> ManagerNumber {
        ManagerNumber(self.draw())
    }

    /// The right to try now, if nobody does.
    pub(crate) fn enter(
        self: &Arc<Self>,
        manager: ManagerNumber,
        resources: &Resources,
        style: WaitStyle,
        inbox: &Arc<Inbox>,
    ) -> Option<Turn> {
        let wanted = Wanted::new(resources, style);
        match self.lock().entry(wanted.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => {
                let trying = Some((manager, Arc::clone(inbox)));
                vacant.insert(CallerQueue { trying, ..CallerQueue::default() });
                Some(self.turn(wanted))
            }
        }
    }

    /// Joins the queue. If it is empty, the right to try comes at once.
    pub(crate) fn join<'a>(
        self: &'a Arc<Self>,
        manager: ManagerNumber,
        resources: &'a Resources,
        style: WaitStyle,
    ) -> CallerEntry<'a> {
        let wanted = Wanted::new(resources, style);
        let (sender, turn) = oneshot::channel();
        // No other has it, also in a later queue: leaving this one twice does nobody harm.
        let number = self.draw();
        match self.lock().entry(wanted.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(CallerQueue::default());
                let _ = sender.send(self.turn(wanted));
            }
            Entry::Occupied(mut queue) => {
                queue.get_mut().waiting.insert(number, Caller { manager, turn: sender });
            }
        }
        CallerEntry { caller_queues: self, resources, style, number, turn }
    }

    fn draw(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// A lock was released here: the callers that try to get it need not wait until their next try.
    pub(crate) fn tell_free(&self, resources: &Resources) {
        let queues = self.lock();
        if queues.is_empty() {
            return;
        }
        for wanted in Wanted::all(resources) {
            let queue = queues.get(&wanted);
            if let Some((_, inbox)) = queue.and_then(|queue| queue.trying.as_ref()) {
                inbox.tell_free();
            }
        }
    }

    /// The manager is closed: none of its callers tries any more, and none waits.
    pub(crate) fn close(&self, manager: ManagerNumber) {
        // Dropped without the mutex: that wakes them.
        let mut ended = Vec::new();
        for queue in self.lock().values_mut() {
            let waiting = mem::take(&mut queue.waiting);
            let (own, others): (BTreeMap<_, _>, _) =
                waiting.into_iter().partition(|(_, it)| it.manager == manager);
            ended.push(own);
            queue.waiting = others;
            if let Some((_, inbox)) = queue.trying.as_ref().filter(|(who, _)| *who == manager) {
                inbox.cancel();
            }
        }
    }

    fn turn(self: &Arc<Self>, wanted: Wanted) -> Turn {
        let (caller_queues, wanted) = (Arc::clone(self), Some(wanted));
        Turn { caller_queues, wanted, before: ErrorKind::NotAcquired }
    }

    /// Takes the next caller out of the queue; removes the queue if nobody waits.
    fn next(&self, wanted: &Wanted) -> Option<Caller> {
        let mut queues = self.lock();
        let queue = queues.get_mut(wanted)?;
        queue.trying = None;
        let next = queue.waiting.pop_first().map(|(_, next)| next);
        if next.is_none() {
            queues.remove(wanted);
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Wanted, CallerQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallerEntry<'_> {
    /// Waits for the right to try; `None` if it has not come in time.
    pub(crate) fn turn(
        &mut self,
        patience: Option<Duration>,
    ) -> impl Future<Output = Option<Turn>> + use<'_> {
        let turn = &mut self.turn;
        match patience {
            Some(patience) => timeout(patience, turn).map(|turn| turn.ok()?.ok()).left_future(),
            None => turn.map(Result::ok).right_future(),
        }
    }
}

impl Turn {
    /// Why the caller before did not get the lock; `NotAcquired` if it got it.
    pub(crate) const fn before(&self) -> ErrorKind {
        self.before
    }

    /// Notes why this caller did not get the lock, for the next one.
    pub(crate) const fn note(&mut self, kind: ErrorKind) {
        self.before = kind;
    }

    /// Releases are reported to `inbox` while this caller tries.
    pub(crate) fn listen(&self, manager: ManagerNumber, inbox: &Arc<Inbox>) {
        let Some(wanted) = &self.wanted else {
            return;
        };
        if let Some(queue) = self.caller_queues.lock().get_mut(wanted) {
            queue.trying = Some((manager, Arc::clone(inbox)));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(wanted) = self.wanted.take() else {
            return;
        };
        while let Some(next) = self.caller_queues.next(&wanted) {
            let mut turn = self.caller_queues.turn(wanted.clone());
            turn.before = self.before;
            match next.turn.send(turn) {
                Ok(()) => return,
                // That caller has given up: the right goes to the one behind it.
                Err(mut turn) => drop(mem::take(&mut turn.wanted)),
            }
        }
    }
}

impl Drop for CallerEntry<'_> {
    fn drop(&mut self) {
        let wanted = Wanted::new(self.resources, self.style);
        if let Some(queue) = self.caller_queues.lock().get_mut(&wanted) {
            queue.waiting.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::clock::LeaseClock;

    const ONE: ManagerNumber = ManagerNumber(0);
    const ANOTHER: ManagerNumber = ManagerNumber(1);

    const USUAL: WaitStyle = WaitStyle { wait: WaitMode::Push, is_fair: false };
    const FAIR: WaitStyle = WaitStyle { wait: WaitMode::Push, is_fair: true };

    fn resources() -> Resources {
        Resources::new(["r"]).unwrap()
    }

    fn inbox() -> Arc<Inbox> {
        Inbox::with_room_for(1, &LeaseClock::default(), None)
    }

    async fn wait(
        caller_queues: &Arc<CallerQueues>,
        manager: ManagerNumber,
        resources: &Resources,
        patience: Option<Duration>,
    ) -> Option<Turn> {
        caller_queues.join(manager, resources, USUAL).turn(patience).await
    }

    #[tokio::test]
    async fn each_has_its_turn_in_the_order_of_coming() {
        let caller_queues = Arc::new(CallerQueues::default());
        let first =
            caller_queues.enter(ONE, &resources(), USUAL, &inbox()).expect("nobody is there");
        assert!(caller_queues.enter(ONE, &resources(), USUAL, &inbox()).is_none());
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiting: Vec<_> = (0..4)
            .map(|number| {
                let (caller_queues, order) = (Arc::clone(&caller_queues), Arc::clone(&order));
                tokio::spawn(async move {
                    let turn =
                        wait(&caller_queues, ONE, &resources(), None).await.expect("its turn");
                    order.lock().unwrap().push(number);
                    drop(turn);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        waiting[1].abort();
        tokio::task::yield_now().await;
        drop(first);
        for (number, task) in waiting.into_iter().enumerate() {
            assert_eq!(task.await.is_err(), number == 1);
        }
        assert_eq!(*order.lock().unwrap(), [0, 2, 3]);
        assert!(caller_queues.lock().is_empty(), "nothing is left");
    }

    #[tokio::test]
    async fn who_gives_up_leaves_the_queue() {
        let caller_queues = Arc::new(CallerQueues::default());
        let first =
            caller_queues.enter(ONE, &resources(), USUAL, &inbox()).expect("nobody is there");
        let patience = Some(Duration::from_millis(1));
        assert!(wait(&caller_queues, ONE, &resources(), patience).await.is_none());
        assert!(caller_queues.lock()[&Wanted::new(&resources(), USUAL)].waiting.is_empty());
        drop(first);
        assert!(caller_queues.lock().is_empty());
    }

    #[tokio::test]
    async fn a_turn_that_comes_to_nobody_is_the_next_ones() {
        let caller_queues = Arc::new(CallerQueues::default());
        let first =
            caller_queues.enter(ONE, &resources(), USUAL, &inbox()).expect("nobody is there");
        let resources = resources();
        let mut gone = Box::pin(wait(&caller_queues, ONE, &resources, None));
        let mut next = Box::pin(wait(&caller_queues, ONE, &resources, None));
        let mut context = Context::from_waker(Waker::noop());
        assert!(gone.as_mut().poll(&mut context).is_pending());
        assert!(next.as_mut().poll(&mut context).is_pending());
        // It is sent, and nobody takes it.
        drop(first);
        drop(gone);
        assert!(next.await.is_some());
    }

    #[tokio::test]
    async fn a_manager_that_is_closed_takes_only_its_own_callers_along() {
        let caller_queues = Arc::new(CallerQueues::default());
        let theirs = inbox();
        let first =
            caller_queues.enter(ANOTHER, &resources(), USUAL, &theirs).expect("nobody is there");
        let resources = resources();
        let mut own = Box::pin(wait(&caller_queues, ONE, &resources, None));
        let mut another = Box::pin(wait(&caller_queues, ANOTHER, &resources, None));
        let mut context = Context::from_waker(Waker::noop());
        assert!(own.as_mut().poll(&mut context).is_pending());
        assert!(another.as_mut().poll(&mut context).is_pending());
        caller_queues.close(ONE);
        assert!(own.await.is_none());
        assert!(another.as_mut().poll(&mut context).is_pending(), "it goes on waiting");
        drop(first);
        assert!(another.await.is_some());
    }

    #[tokio::test]
    async fn callers_that_wait_in_another_way_have_a_queue_of_their_own() {
        let caller_queues = Arc::new(CallerQueues::default());
        let (one, another) = (inbox(), inbox());
        let first = caller_queues.enter(ONE, &resources(), USUAL, &one);
        let second = caller_queues.enter(ONE, &resources(), FAIR, &another);
        assert!(first.is_some() && second.is_some());
        caller_queues.tell_free(&resources());
        for inbox in [&one, &another] {
            assert!(inbox.try_take(&mut Vec::new()).is_some(), "it is told that the lock is free");
        }
        drop(first);
        assert!(caller_queues.enter(ONE, &resources(), FAIR, &inbox()).is_none());
        drop(second);
        assert!(caller_queues.lock().is_empty());
    }
}
