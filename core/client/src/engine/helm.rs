//! Whose turn it is to drive the runtime: a caller's that waits anyway, or the engine's own thread's.
//!
//! A caller that drives sends its commands and reads the replies itself, which saves two changes of
//! thread. The thread takes over when no caller has come for a [`LULL`], so that renewals and what was
//! left behind go on; with callers that follow close upon each other it stays out of their way.
//!
//! A visitor is a caller that must not wait: an event loop's thread, which drives while there is something
//! to do at once, and comes again when the runtime's descriptor has something.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;
use std::{io, mem, thread};

use tokio::runtime::{Builder, Runtime};
use tokio::select;
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::spin::Spin;
use super::tasks::Tasks;

/// A runtime that whoever has the helm drives.
pub(super) struct Helm {
    /// `None` once it is dropped.
    runtime: Option<Runtime>,
    tasks: Tasks,
    spin: Arc<Spin>,
    turns: Mutex<Turns>,
    /// Wakes the thread while it is not at the helm.
    relief: Condvar,
    /// Asks the thread to leave the helm.
    hand_over: Notify,
}

#[derive(Default)]
struct Turns {
    /// How many callers drive, or wait for one that does.
    callers: usize,
    /// How many have come so far.
    come: u64,
    thread: Place,
    /// There is work for the thread at once.
    is_prodded: bool,
    /// Visitors who wait for the thread to leave the helm.
    visitors: Vec<Waker>,
    is_stopped: bool,
}

impl Turns {
    /// Whether the thread is to leave the helm.
    const fn is_wanted(&self) -> bool {
        self.callers > 0 || self.is_stopped
    }
}

/// What came of a [visit](super::Engine::visit).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visit {
    /// The caller drove the engine. What is left to do at once, after a long visit, its thread does.
    Made,
    /// Another caller drives just now. When the descriptor is readable is the time for the next visit.
    Crossed,
    /// The engine's own thread drives. The time for the next visit is when the relief is woken; to watch the
    /// descriptor until then is of no use.
    Deferred,
}

/// Where the engine's thread is.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    AtHelm,
    /// Looks now and then whether callers still come.
    #[default]
    Napping,
    /// Until the last caller leaves.
    Asleep,
}

impl Helm {
    /// Starts a runtime, and the thread that drives it when nobody else does.
    pub(super) fn start() -> io::Result<Arc<Self>> {
        let helm = Arc::new(Self::without_thread()?);
        let mine = Arc::clone(&helm);
        thread::Builder::new().name("quorlock".into()).spawn(move || mine.keep())?;
        Ok(helm)
    }

    fn without_thread() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let tasks = Tasks::on(runtime.handle().clone());
        Ok(Self {
            spin: Spin::on(&tasks),
            tasks,
            runtime: Some(runtime),
            turns: Mutex::new(Turns { is_prodded: true, ..Turns::default() }),
            relief: Condvar::new(),
            hand_over: Notify::new(),
        })
    }

    /// Runs `work` where sockets find the runtime.
    #[cfg(target_os = "linux")]
    pub(super) fn within<T>(&self, work: impl FnOnce() -> T) -> T {
        let _context = self.runtime().enter();
        work()
    }

    /// Drives the runtime on the calling thread until `future` has ended, and for a moment at least: callers
    /// that never wait keep the thread from the helm as well, and nothing else would go on.
    pub(super) fn block_on<F: Future>(&self, future: F) -> F::Output {
        let turn = Turn::begin(self);
        self.runtime().block_on(async {
            let spinning = turn.is_alone.then(|| self.spin.begin()).flatten();
            if spinning.is_some() && self.lock().callers > 1 {
                // Another came in between.
                self.spin.stop();
            }
            let mut future = pin!(future);
            let mut has_waited = false;
            let output = poll_fn(|context| {
                let result = future.as_mut().poll(context);
                has_waited |= result.is_pending();
                result
            });
            let output = output.await;
            if !has_waited {
                yield_now().await;
            } else if let Some(spinning) = spinning {
                spinning.end();
            }
            output
        })
    }

    pub(super) fn spin(&self) -> &Arc<Spin> {
        &self.spin
    }

    pub(super) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    /// Drives the runtime on the calling thread for as long as there is something to do at once, after
    /// `begin`; does nothing while anybody else drives. If that is the engine's thread and there is
    /// `relief`, it leaves the helm and wakes it.
    ///
    /// Looks on for `stay` if `is_over` does not say sooner that nothing more is waited for.
    pub(super) fn visit(
        &self,
        relief: Option<Waker>,
        begin: impl FnOnce(),
        stay: Duration,
        is_over: impl FnMut() -> bool,
    ) -> Visit {
        let turn = match Turn::begin_at_once(self, relief) {
            Ok(turn) => turn,
            Err(visit) => return visit,
        };
        let is_exhausted = self.runtime().block_on(async {
            begin();
            self.tasks.watch(stay, is_over).await;
            self.tasks.exhaust(LONGEST_VISIT).await
        });
        drop(turn);
        if !is_exhausted {
            self.prod();
        }
        Visit::Made
    }

    /// There is something to do that was not handed over by who drives: it does not wait for the lull.
    pub(super) fn prod(&self) {
        let mut turns = self.lock();
        if turns.callers == 0 && turns.thread != Place::AtHelm {
            turns.is_prodded = true;
            self.relief.notify_one();
        }
    }

    /// [`prod`](Self::prod) by somebody who may have asked the thread to leave and does not come after all.
    pub(super) fn recall(&self) {
        let mut turns = self.lock();
        if turns.thread == Place::AtHelm && !turns.visitors.is_empty() {
            // It leaves, and is back at once.
            turns.is_prodded = true;
        }
        drop(turns);
        self.prod();
    }

    /// Ends the thread.
    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.hand_over.notify_one();
        self.relief.notify_one();
    }

    /// The engine's thread.
    fn keep(&self) {
        while self.wait_for_turn() {
            self.spin.set_resident(true);
            self.runtime().block_on(self.relieved());
            self.spin.set_resident(false);
        }
    }

    /// Waits while callers drive; `false` once it is all over.
    fn wait_for_turn(&self) -> bool {
        self.welcome_visitors();
        let mut turns = self.lock();
        let mut seen = None;
        loop {
            if turns.is_stopped {
                return false;
            }
            let is_quiet = turns.is_prodded || seen == Some(turns.come);
            if is_quiet && turns.callers == 0 {
                turns.is_prodded = false;
                turns.thread = Place::AtHelm;
                return true;
            }
            turns = if is_quiet {
                // One of them waits for long.
                turns.thread = Place::Asleep;
                self.relief.wait(turns).unwrap_or_else(PoisonError::into_inner)
            } else {
                turns.thread = Place::Napping;
                seen = Some(turns.come);
                let nap = self.relief.wait_timeout(turns, LULL);
                nap.unwrap_or_else(PoisonError::into_inner).0
            };
        }
    }

    /// The thread has left the helm.
    fn welcome_visitors(&self) {
        let mut turns = self.lock();
        turns.thread = Place::Napping;
        let visitors = mem::take(&mut turns.visitors);
        drop(turns);
        visitors.into_iter().for_each(Waker::wake);
    }

    /// Waits until a caller wants the helm, or a visitor, who gets it with nothing left to do.
    async fn relieved(&self) {
        loop {
            let asked = self.hand_over.notified();
            let (is_wanted, has_visitors) = {
                let turns = self.lock();
                (turns.is_wanted(), !turns.visitors.is_empty())
            };
            if is_wanted {
                return;
            }
            select! {
                biased;
                () = asked => {}
                _ = self.tasks.exhaust(Duration::MAX), if has_visitors => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn runtime(&self) -> &Runtime {
        self.runtime.as_ref().expect("a helm has its runtime until it is dropped")
    }
}

impl Drop for Helm {
    fn drop(&mut self) {
        // Anywhere, also on a thread of another runtime, which must not block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// A caller's turn.
struct Turn<'a> {
    helm: &'a Helm,
    /// No other caller drove when it began.
    is_alone: bool,
}

impl<'a> Turn<'a> {
    fn begin(helm: &'a Helm) -> Self {
        let mut turns = helm.lock();
        turns.callers += 1;
        turns.come += 1;
        if turns.thread == Place::AtHelm {
            // Once: until it has left, the next callers find it there too.
            helm.hand_over.notify_one();
        }
        let is_alone = turns.callers == 1;
        if !is_alone {
            helm.spin.stop();
        }
        Self { helm, is_alone }
    }

    /// Only while nobody else drives or is about to.
    fn begin_at_once(helm: &'a Helm, relief: Option<Waker>) -> Result<Self, Visit> {
        let mut turns = helm.lock();
        if turns.callers > 0 || turns.is_stopped {
            return Err(Visit::Crossed);
        }
        if turns.thread == Place::AtHelm {
            if let Some(relief) = relief
                && !turns.visitors.iter().any(|other| other.will_wake(&relief))
            {
                turns.visitors.push(relief);
                helm.hand_over.notify_one();
            }
            return Err(Visit::Deferred);
        }
        turns.callers = 1;
        turns.come += 1;
        Ok(Self { helm, is_alone: true })
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = self.helm.lock();
        turns.callers -= 1;
        let is_awaited = self.helm.spin.is_awaited();
        if turns.callers == 0 && (is_awaited || turns.thread == Place::Asleep) {
            // Who waits elsewhere does not wait for the lull.
            turns.is_prodded |= is_awaited;
            self.helm.relief.notify_one();
        }
    }
}

/// The thread takes the helm when no caller has come for so long.
const LULL: Duration = Duration::from_millis(5);
/// What takes longer than about so long is not a visitor's to do.
const LONGEST_VISIT: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_that_need_not_wait_lets_all_else_go_on() {
        // Nobody is at the helm but who calls.
        let helm = Helm::without_thread().unwrap();
        let (sender, mut receiver) = tokio::sync::oneshot::channel();
        helm.tasks().spawn(async { sender.send(()) });
        assert_eq!(helm.block_on(async { 7 }), 7);
        assert_eq!(receiver.try_recv(), Ok(()));
    }

    #[test]
    fn a_caller_with_company_sleeps() {
        let helm = Helm::without_thread().unwrap();
        let alone = Turn::begin(&helm);
        let spinning = helm.spin.begin();
        assert!(alone.is_alone && spinning.is_some());
        let second = Turn::begin(&helm);
        assert!(!second.is_alone);
        assert!(!helm.spin.is_on());
    }

    #[test]
    fn the_last_caller_sends_the_thread_to_whom_others_wait_for() {
        // This is its thread.
        let helm = Helm::without_thread().unwrap();
        assert!(helm.wait_for_turn());
        drop(Turn::begin(&helm));
        assert!(!helm.lock().is_prodded);
        let _elsewhere = helm.spin.expect();
        let last = Turn::begin(&helm);
        drop(Turn::begin(&helm));
        assert!(!helm.lock().is_prodded, "another drives");
        drop(last);
        assert!(helm.lock().is_prodded);
    }

    #[test]
    fn a_thread_that_was_asked_to_leave_for_nothing_is_back_at_once() {
        // This is its thread.
        let helm = Helm::without_thread().unwrap();
        assert!(helm.wait_for_turn());
        helm.recall();
        assert!(!helm.lock().is_prodded);
        assert_eq!(
            helm.visit(Some(Waker::noop().clone()), || (), Duration::ZERO, || true),
            Visit::Deferred
        );
        helm.recall();
        helm.runtime().block_on(helm.relieved());
        assert!(helm.lock().is_prodded);
        assert!(helm.wait_for_turn());
        assert!(!helm.lock().is_prodded);
    }
}
