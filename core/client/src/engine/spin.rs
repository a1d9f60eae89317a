//! Looks for replies again and again instead of falling asleep, for as long as they follow close upon each
//! other (decision 0017). Knows nothing of who waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use quorlock_protocol::Moment;
use tokio::sync::Notify;
use tokio::task::yield_now;

use super::luck::Luck;
use super::tasks::Tasks;
use crate::clock::{self, ToldMoment};

/// Keeps a runtime from falling asleep while one caller waits: who drives it alone, or somebody elsewhere for
/// whom the engine's thread does.
#[derive(Default)]
pub(crate) struct Spin {
    is_on: AtomicBool,
    /// For a caller who drives.
    is_for_caller: AtomicBool,
    begin: Notify,
    /// How often it began.
    begun: AtomicUsize,
    luck: Luck,
    /// Nobody waits just now: whoever has heard may come again at once.
    is_lingering: AtomicBool,
    luck_of_lingering: Luck,
    /// The engine's thread drives.
    is_resident: AtomicBool,
    /// How many wait elsewhere.
    elsewhere: AtomicUsize,
    /// When the latest of them came.
    latest: ToldMoment,
}

/// Lasts as long as its caller.
pub(super) struct Spinning<'a>(&'a Spin);

/// Lasts as long as somebody elsewhere waits, if it is for one.
#[derive(Default)]
pub(crate) struct Awaited(Option<Arc<Spin>>);

impl Spin {
    /// One for a runtime that somebody drives through `tasks`.
    pub(super) fn on(tasks: &Tasks) -> Arc<Self> {
        let spin = Arc::new(Self::default());
        let (own, tasks) = (Arc::clone(&spin), tasks.clone());
        // Not counted among those who have something to do.
        tasks.handle().clone().spawn(async move { own.turn(&tasks).await });
        spin
    }

    /// Begins for a caller who drives alone; `None` if somebody else waits for what it drives, or if it has not
    /// been worth it of late.
    pub(super) fn begin(&self) -> Option<Spinning<'_>> {
        let begins = !self.is_awaited() && self.try_to_begin();
        if begins {
            self.is_lingering.store(false, Ordering::Release);
            self.is_for_caller.store(true, Ordering::Release);
        }
        begins.then(|| Spinning(self))
    }

    /// Counts somebody elsewhere, who waits from now on.
    pub(crate) fn expect(self: &Arc<Self>) -> Awaited {
        self.elsewhere.fetch_add(1, Ordering::AcqRel);
        self.latest.tell(Some(clock::now()));
        Awaited(Some(Arc::clone(self)))
    }

    /// Whether somebody elsewhere waits who came of late: one who waits for long, such as for a lock that is
    /// held, is in no hurry.
    pub(super) fn is_awaited(&self) -> bool {
        let is_of_late = |came: Moment| clock::now().since(came) < OF_LATE;
        self.elsewhere.load(Ordering::Acquire) > 0 && self.latest.get().is_some_and(is_of_late)
    }

    /// Says whether the engine's thread drives from now on: what it looked for ends, and not what a caller does
    /// who is about to drive.
    pub(super) fn set_resident(&self, is_resident: bool) {
        self.is_resident.store(is_resident, Ordering::Release);
        if !self.is_for_caller.load(Ordering::Acquire) {
            self.stop();
        }
    }

    fn try_to_begin(&self) -> bool {
        let is_due = self.luck.take_try();
        if is_due {
            self.begun.fetch_add(1, Ordering::Relaxed);
            self.is_on.store(true, Ordering::Release);
            self.begin.notify_one();
        }
        is_due
    }

    /// Leaves the processor to others.
    pub(super) fn stop(&self) {
        self.is_lingering.store(false, Ordering::Release);
        self.is_on.store(false, Ordering::Release);
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Its task.
    async fn turn(&self, tasks: &Tasks) {
        loop {
            self.begin.notified().await;
            let steps = || (tasks.steps(), self.begun.load(Ordering::Relaxed));
            let (mut last, mut since) = (steps(), Instant::now());
            while self.is_on() {
                if self.is_lingering() && !Self::let_others_run() {
                    self.give_up();
                    break;
                }
                yield_now().await;
                if steps() != last || !tasks.are_idle() {
                    (last, since) = (steps(), Instant::now());
                } else if since.elapsed() > LONGEST_GAP {
                    self.give_up();
                }
            }
        }
    }

    /// Who has heard may need this processor; `false` if somebody else took it for long: who sleeps has it
    /// sooner when there is something to do.
    fn let_others_run() -> bool {
        let begin = Instant::now();
        thread::yield_now();
        begin.elapsed() < LONGEST_GAP
    }

    fn give_up(&self) {
        let luck = if self.is_lingering() { &self.luck_of_lingering } else { &self.luck };
        self.stop();
        luck.fail();
    }

    fn is_lingering(&self) -> bool {
        self.is_lingering.load(Ordering::Acquire)
    }

    /// Whether the engine's thread looks.
    fn is_looking(&self) -> bool {
        self.is_resident.load(Ordering::Acquire) && self.is_on()
    }
}

impl Spinning<'_> {
    /// Its caller has heard what it waited for.
    pub(super) fn end(self) {
        if self.0.is_on() {
            self.0.luck.succeed();
        }
    }
}

impl Drop for Spinning<'_> {
    fn drop(&mut self) {
        self.0.is_for_caller.store(false, Ordering::Release);
        self.0.stop();
    }
}

impl Awaited {
    /// Begins if its caller waits alone for what the engine's thread does. For who drives.
    pub(crate) fn begin(&self) {
        let Some(spin) = &self.0 else { return };
        if spin.elsewhere.load(Ordering::Acquire) > 1 {
            spin.stop();
        } else if spin.is_lingering.swap(false, Ordering::AcqRel) {
            spin.luck_of_lingering.succeed();
            spin.begun.fetch_add(1, Ordering::Relaxed);
        } else if spin.is_resident.load(Ordering::Acquire) {
            spin.try_to_begin();
        }
    }

    /// Its caller is about to hear what it waited for, and may come again at once.
    pub(crate) fn end(self) {
        if let Some(spin) = self.0.as_ref().filter(|spin| spin.is_looking()) {
            spin.luck.succeed();
            let lingers = spin.luck_of_lingering.take_try();
            spin.is_lingering.store(lingers, Ordering::Release);
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let Some(spin) = &self.0 else { return };
        let is_last = spin.elsewhere.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && spin.is_looking() && !spin.is_lingering() {
            spin.stop();
        }
    }
}

/// Nobody could go on for so long: to fall asleep and be woken costs less.
const LONGEST_GAP: Duration = Duration::from_micros(50);
/// After two lulls the thread has come by itself.
const OF_LATE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn runtime() -> (Runtime, Tasks, Arc<Spin>) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let tasks = Tasks::on(runtime.handle().clone());
        let spin = Spin::on(&tasks);
        (runtime, tasks, spin)
    }

    #[test]
    fn it_ends_when_nobody_can_go_on_and_later_callers_do_without() {
        let (runtime, _, spin) = runtime();
        for _ in 0..2 {
            let spinning = spin.begin();
            assert!(spinning.is_some());
            run_out(&runtime, &spin);
        }
        assert!(spin.begin().is_none());
        assert!(spin.begin().is_some());
    }

    #[test]
    fn only_who_has_waited_shows_that_it_is_of_use() {
        let (_runtime, _, spin) = runtime();
        let left_out = || {
            spin.luck.fail();
            (0..1000).take_while(|_| !spin.luck.take_try()).count()
        };
        assert_eq!([left_out(), left_out()], [0, 1]);
        drop(spin.begin());
        assert_eq!(left_out(), 3, "its caller did not wait");
        spin.begin().expect("a try").end();
        assert_eq!(left_out(), 0);
    }

    /// Drives until it has given up.
    fn run_out(runtime: &Runtime, spin: &Spin) {
        runtime.block_on(async {
            while spin.is_on() {
                yield_now().await;
            }
        });
    }

    fn attended(spin: &Arc<Spin>) -> Awaited {
        let awaited = spin.expect();
        awaited.begin();
        awaited
    }

    #[test]
    fn it_is_for_one_who_waits_elsewhere_while_the_thread_drives() {
        let (_runtime, _, spin) = runtime();
        let of_a_caller = attended(&spin);
        assert!(!spin.is_on(), "nobody else drives");
        assert!(spin.begin().is_none(), "who drives is not alone");
        drop(of_a_caller);
        spin.set_resident(true);
        let first = attended(&spin);
        assert!(spin.is_on());
        let second = attended(&spin);
        assert!(!spin.is_on(), "two wait");
        drop((first, second));
        let alone = attended(&spin);
        assert!(spin.is_on());
        drop(alone);
        assert!(!spin.is_on());
    }

    #[test]
    fn who_waits_elsewhere_for_long_is_in_no_hurry() {
        let (_runtime, _, spin) = runtime();
        let _awaited = spin.expect();
        assert!(spin.is_awaited());
        let patience = Instant::now();
        while spin.is_awaited() {
            assert!(patience.elapsed() < Duration::from_secs(20));
        }
        assert!(spin.begin().is_some());
    }

    #[test]
    fn the_thread_that_leaves_ends_what_is_its_own_and_not_what_a_caller_has_begun() {
        let (_runtime, _, spin) = runtime();
        spin.set_resident(true);
        let awaited = attended(&spin);
        spin.set_resident(false);
        assert!(!spin.is_on());
        drop(awaited);
        spin.set_resident(true);
        let spinning = spin.begin();
        spin.set_resident(false);
        assert!(spin.is_on());
        drop(spinning);
        assert!(!spin.is_on());
    }

    #[test]
    fn it_lingers_for_who_comes_again_at_once_while_that_is_of_use() {
        let (runtime, _, spin) = runtime();
        spin.set_resident(true);
        attended(&spin).end();
        assert!(spin.is_on() && spin.is_lingering());
        let again = attended(&spin);
        assert!(spin.is_on() && !spin.is_lingering());
        again.end();
        run_out(&runtime, &spin);
        assert!(!spin.is_lingering());
        attended(&spin).end();
        run_out(&runtime, &spin);
        attended(&spin).end();
        assert!(!spin.is_on(), "it has been in vain twice");
        attended(&spin).end();
        assert!(spin.is_on(), "a try");
        attended(&spin).end();
        attended(&spin).end();
        assert!(spin.is_on(), "it has been of use");
        let (_one, _two) = (attended(&spin), attended(&spin));
        assert!(!spin.is_on() && !spin.is_lingering());
    }

    #[test]
    fn it_goes_on_while_tasks_do() {
        let (runtime, tasks, spin) = runtime();
        let _spinning = spin.begin();
        let (begun, watched) = (Instant::now(), Arc::clone(&spin));
        let busy = tasks.spawn(async move {
            while begun.elapsed() < 20 * LONGEST_GAP {
                yield_now().await;
            }
            watched.is_on()
        });
        assert!(runtime.block_on(busy).unwrap());
    }
}
