//! The work of an operation: run by the thread that waits for it, by an event loop's in visits, or by the
//! engine and announced to a mailbox. Owns where it is; what it does is the core's.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use quorlock::{Engine, LockError, Task, Visit};

use crate::ending::{Ending, Outcome, Shared};
use crate::fork;
use crate::mailbox;
use crate::visits::{self, Visitor, Visits};

pub(crate) struct Work {
    pub(crate) engine: &'static Engine,
    pub(crate) shared: Arc<Shared>,
    place: Mutex<Place>,
    /// What it does is done also if nobody waits for it.
    is_due: bool,
}

/// Where the work is.
#[derive(Default)]
enum Place {
    /// Begun or not, it waits for a thread to run it.
    Here(Running),
    /// Dropped, it is cancelled.
    OnEngine(Task<()>),
    /// It is run now and cannot be given up, or it has ended.
    #[default]
    Taken,
}

/// The operation with its ending, which comes last also when it is dropped half-way.
type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Work {
    pub(crate) fn new(
        engine: &'static Engine,
        future: impl Future<Output = Result<Outcome, LockError>> + Send + 'static,
        is_due: bool,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let ending = Ending(Arc::clone(&shared));
        let running = Box::pin(async move {
            let ending = ending;
            let result = future.await;
            ending.0.end(Some(result));
        });
        Self { engine, shared, place: Mutex::new(Place::Here(running)), is_due }
    }

    pub(crate) fn done(engine: &'static Engine, result: Result<Outcome, LockError>) -> Self {
        let shared = Arc::new(Shared::default());
        shared.end(Some(result));
        Self { engine, shared, place: Mutex::default(), is_due: false }
    }

    /// Runs the operation here, or waits for it if another does, for `timeout` at the most; tells
    /// whether it has ended.
    pub(crate) fn run(&self, timeout: Duration) -> bool {
        let Place::Here(mut running) = mem::take(&mut *self.place()) else {
            return self.shared.wait(timeout);
        };
        let has_ended = self.engine.block_on_for(timeout, running.as_mut()).is_some();
        if !has_ended {
            *self.place() = Place::Here(running);
        }
        has_ended
    }

    /// Has the engine run it, and `number` posted when it has ended.
    pub(crate) fn announce(&self, mailbox: &Arc<mailbox::Inner>, number: u64) {
        let mut progress = self.shared.lock();
        if progress.has_ended {
            drop(progress);
            mailbox.post(number, None);
            return;
        }
        progress.announce = Some((Arc::clone(mailbox), number));
        if progress.ticket.is_none() {
            progress.ticket = fork::visits().map(Visits::count);
        }
        drop(progress);
        self.hand_over();
    }

    /// Begins it on this thread, which drives the engine for it; tells whether to [`stay`](Self::stay).
    pub(crate) fn visit(&self) -> bool {
        let Some(visits) = fork::visits() else { return false };
        let Some(ticket) = visits.begin() else { return false };
        let mut progress = self.shared.lock();
        if progress.has_ended {
            return false;
        }
        progress.ticket = Some(ticket);
        drop(progress);
        let goes_on = match self.engine.visit(None, || self.hand_over()) {
            Visit::Made => true,
            Visit::Crossed => false,
            Visit::Deferred => visits.meet() && self.drive(Duration::ZERO) != Visit::Crossed,
        };
        if !goes_on {
            return false;
        }
        // By the engine's thread, if it is still at the helm: nobody knows when the loop comes again.
        self.hand_over();
        if visits.reach(2) {
            // Others that came meanwhile have left theirs to this thread.
            self.engine.prod();
        }
        self.shared.lock().visitor = Some(Visitor::begin());
        true
    }

    /// Drives the engine for some more of it; tells whether it has ended. `None`: it is time to stay again,
    /// after a turn of the loop. `false`: the engine's thread goes on with it.
    pub(crate) fn stay(&self) -> Option<bool> {
        let visitor = self.shared.lock().visitor;
        let (Some(visits), Some(mut visitor)) = (fork::visits(), visitor) else {
            return Some(false);
        };
        let has_ended = self.go_on(visits, visitor.may_wait());
        match has_ended {
            Some(true) => {
                visits.succeed();
                if visits.reach(1) {
                    self.engine.prod();
                }
            }
            Some(false) => {
                visits.pay();
                self.engine.prod();
            }
            None => {
                visitor.leave();
                self.shared.lock().visitor = Some(visitor);
            }
        }
        has_ended
    }

    /// What `stay` tells, after a wait if there may be one.
    fn go_on(&self, visits: &Visits, may_wait: bool) -> Option<bool> {
        let begin = Instant::now();
        loop {
            if self.shared.has_ended() {
                return Some(true);
            }
            if visits.reach(2) {
                return Some(false);
            }
            let rest = visits::WAIT.checked_sub(begin.elapsed())?;
            let visit = self.drive(if may_wait { rest } else { Duration::ZERO });
            if self.shared.has_ended() {
                return Some(true);
            }
            if !may_wait || visit == Visit::Crossed {
                return Some(false);
            }
            if visit == Visit::Deferred {
                // For the engine's thread to leave.
                thread::park_timeout(visits::WAIT.checked_sub(begin.elapsed())?);
            }
        }
    }

    /// Lets everything go on that can, beginning with this operation, unless others drive; looks on until it has
    /// ended, for `stay` at the most.
    fn drive(&self, stay: Duration) -> Visit {
        let (relief, begin) = (Some(visits::relief()), || self.hand_over());
        self.engine.visit_for(stay, relief, begin, || self.shared.has_ended())
    }

    /// Has the engine run the operation, unless it is run already.
    fn hand_over(&self) {
        let mut place = self.place();
        *place = match mem::take(&mut *place) {
            Place::Here(running) if self.is_due => {
                self.engine.background(running);
                Place::Taken
            }
            Place::Here(running) => Place::OnEngine(self.engine.spawn(running)),
            elsewhere => elsewhere,
        };
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cancel(&self) {
        let mut progress = self.shared.lock();
        progress.is_cancelled = true;
        let result = progress.result.take();
        let taken = progress.taken.take();
        drop(progress);
        self.give_up();
        // What was begun in a visit has nobody else to go on with it.
        self.engine.prod();
        if let Some(lease) = taken {
            lease.withdraw();
        }
        drop(result);
    }

    /// Drops the work, wherever it is, or leaves to the engine what is done in any case.
    fn give_up(&self) {
        let place = mem::take(&mut *self.place());
        match place {
            Place::Taken => {}
            Place::OnEngine(task) if self.shared.has_ended() => drop(task),
            Place::Here(running) if self.is_due => self.engine.background(running),
            place => {
                drop(place);
                // What the dropping has sent is on its way at once.
                self.engine.prod();
            }
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.give_up();
    }
}
