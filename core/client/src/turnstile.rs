//! Callers of one manager that wait for the same lock: one at a time tries, the others stand in line. Owns the order
//! and the passing on; knows no command.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use quorlock_protocol::{ErrorKind, Resources};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::inbox::Inbox;

/// The lines of one manager, by what is waited for.
#[derive(Default)]
pub(crate) struct Turnstile {
    lines: Mutex<HashMap<Resources, Line>>,
}

/// Somebody tries, and these wait, in the order in which they came.
#[derive(Default)]
struct Line {
    waiting: BTreeMap<u64, oneshot::Sender<Turn>>,
    next: u64,
    /// Of who tries.
    inbox: Option<Arc<Inbox>>,
}

/// The right to try: gone, it is the next one's.
pub(crate) struct Turn {
    turnstile: Arc<Turnstile>,
    /// `None` once it was passed on.
    resources: Option<Resources>,
    /// What kept the one before from the lock, or keeps whoever comes after the one who has it.
    before: ErrorKind,
}

/// A place in a line: gone, nothing is left of it.
struct Place<'a> {
    turnstile: &'a Turnstile,
    resources: &'a Resources,
    number: u64,
}

impl Turnstile {
    /// The right to try now, if nobody does.
    pub(crate) fn enter(
        self: &Arc<Self>,
        resources: &Resources,
        inbox: &Arc<Inbox>,
    ) -> Option<Turn> {
        match self.lock().entry(resources.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(vacant) => {
                vacant.insert(Line { inbox: Some(Arc::clone(inbox)), ..Line::default() });
                Some(self.turn(resources))
            }
        }
    }

    /// Waits in line for the right to try; `None` if it has not come in time.
    pub(crate) async fn wait(
        self: &Arc<Self>,
        resources: &Resources,
        patience: Option<Duration>,
    ) -> Option<Turn> {
        let (place, turn) = match self.lock().entry(resources.clone()) {
            Entry::Vacant(vacant) => {
                vacant.insert(Line::default());
                return Some(self.turn(resources));
            }
            Entry::Occupied(mut line) => line.get_mut().join(),
        };
        let _place = Place { turnstile: self, resources, number: place };
        match patience {
            Some(patience) => timeout(patience, turn).await.ok()?.ok(),
            None => turn.await.ok(),
        }
    }

    /// A lock of this manager was released: whoever tries to get it need not wait until the next try.
    pub(crate) fn tell_free(&self, resources: &Resources) {
        if let Some(line) = self.lock().get(resources)
            && let Some(inbox) = &line.inbox
        {
            inbox.tell_free();
        }
    }

    /// The manager is closed: nobody tries any more, and nobody waits.
    pub(crate) fn close(&self) {
        let mut lines = self.lock();
        let waiting: Vec<_> = lines.values_mut().map(|line| mem::take(&mut line.waiting)).collect();
        for inbox in lines.values().filter_map(|line| line.inbox.as_ref()) {
            inbox.cancel();
        }
        drop(lines);
        drop(waiting);
    }

    fn turn(self: &Arc<Self>, resources: &Resources) -> Turn {
        let (turnstile, resources) = (Arc::clone(self), Some(resources.clone()));
        Turn { turnstile, resources, before: ErrorKind::NotAcquired }
    }

    /// Who waits next; if nobody does, there is no line any more.
    fn next(&self, resources: &Resources) -> Option<oneshot::Sender<Turn>> {
        let mut lines = self.lock();
        let line = lines.get_mut(resources)?;
        line.inbox = None;
        let next = line.waiting.pop_first().map(|(_, next)| next);
        if next.is_none() {
            lines.remove(resources);
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Resources, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn join(&mut self) -> (u64, oneshot::Receiver<Turn>) {
        let (sender, turn) = oneshot::channel();
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, sender);
        (number, turn)
    }
}

impl Turn {
    /// What kept the one before from the lock, or keeps whoever comes after the one who has it.
    pub(crate) const fn before(&self) -> ErrorKind {
        self.before
    }

    /// This one has not got the lock either, and why.
    pub(crate) const fn note(&mut self, kind: ErrorKind) {
        self.before = kind;
    }

    /// Releases are told there while this one tries.
    pub(crate) fn listen(&self, inbox: &Arc<Inbox>) {
        let Some(resources) = &self.resources else {
            return;
        };
        if let Some(line) = self.turnstile.lock().get_mut(resources) {
            line.inbox = Some(Arc::clone(inbox));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let Some(resources) = self.resources.take() else {
            return;
        };
        while let Some(next) = self.turnstile.next(&resources) {
            let mut turn = self.turnstile.turn(&resources);
            turn.before = self.before;
            match next.send(turn) {
                Ok(()) => return,
                // It has given up; the line is still this one's to pass on.
                Err(mut turn) => drop(mem::take(&mut turn.resources)),
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(line) = self.turnstile.lock().get_mut(self.resources) {
            line.waiting.remove(&self.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::{Context, Waker};

    use super::*;
    use crate::clock::LeaseClock;

    fn resources() -> Resources {
        Resources::new(["r"]).unwrap()
    }

    fn inbox() -> Arc<Inbox> {
        Inbox::with_room_for(1, &LeaseClock::default(), None)
    }

    #[tokio::test]
    async fn each_has_its_turn_in_the_order_of_coming() {
        let turnstile = Arc::new(Turnstile::default());
        let first = turnstile.enter(&resources(), &inbox()).expect("nobody is there");
        assert!(turnstile.enter(&resources(), &inbox()).is_none());
        let order = Arc::new(Mutex::new(Vec::new()));
        let waiting: Vec<_> = (0..4)
            .map(|number| {
                let (turnstile, order) = (Arc::clone(&turnstile), Arc::clone(&order));
                tokio::spawn(async move {
                    let turn = turnstile.wait(&resources(), None).await.expect("its turn");
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
        assert!(turnstile.lock().is_empty(), "nothing is left");
    }

    #[tokio::test]
    async fn who_gives_up_leaves_no_place() {
        let turnstile = Arc::new(Turnstile::default());
        let first = turnstile.enter(&resources(), &inbox()).expect("nobody is there");
        let patience = Some(Duration::from_millis(1));
        assert!(turnstile.wait(&resources(), patience).await.is_none());
        assert!(turnstile.lock()[&resources()].waiting.is_empty());
        drop(first);
        assert!(turnstile.lock().is_empty());
    }

    #[tokio::test]
    async fn a_turn_that_comes_to_nobody_is_the_next_ones() {
        let turnstile = Arc::new(Turnstile::default());
        let first = turnstile.enter(&resources(), &inbox()).expect("nobody is there");
        let resources = resources();
        let mut gone = Box::pin(turnstile.wait(&resources, None));
        let mut next = Box::pin(turnstile.wait(&resources, None));
        let mut context = Context::from_waker(Waker::noop());
        assert!(gone.as_mut().poll(&mut context).is_pending());
        assert!(next.as_mut().poll(&mut context).is_pending());
        // It is sent, and nobody takes it.
        drop(first);
        drop(gone);
        assert!(next.await.is_some());
    }
}
