//! Looks for replies again and again instead of falling asleep, for as long as they follow close upon each
//! other (decision 0017). Knows nothing of who waits for them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::task::yield_now;

use super::luck::Luck;
use super::tasks::Tasks;

/// Keeps a runtime from falling asleep while one caller waits: who drives it alone, or somebody elsewhere for
/// whom the engine's thread does.
#[derive(Default)]
pub(crate) struct Spin {
    is_on: AtomicBool,
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
}

/// Lasts as long as its caller.
pub(super) struct Spinning<'a>(&'a Spin);

/// Lasts as long as somebody elsewhere waits.
pub(crate) struct Awaited(Arc<Spin>);

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
        (!self.is_awaited() && self.try_to_begin()).then(|| Spinning(self))
    }

    /// Whether somebody elsewhere waits.
    pub(super) fn is_awaited(&self) -> bool {
        self.elsewhere.load(Ordering::Acquire) > 0
    }

    /// Begins for somebody elsewhere who waits alone for what the engine's thread does. For who drives.
    pub(crate) fn attend(self: &Arc<Self>) -> Awaited {
        let others = self.elsewhere.fetch_add(1, Ordering::AcqRel);
        if others > 0 {
            self.stop();
        } else if self.is_lingering.swap(false, Ordering::AcqRel) {
            self.luck_of_lingering.succeed();
            self.begun.fetch_add(1, Ordering::Relaxed);
        } else if self.is_resident.load(Ordering::Acquire) {
            self.try_to_begin();
        }
        Awaited(Arc::clone(self))
    }

    /// Says whether the engine's thread drives from now on. Whoever does next begins anew.
    pub(super) fn set_resident(&self, is_resident: bool) {
        self.is_resident.store(is_resident, Ordering::Release);
        self.stop();
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
        self.0.stop();
    }
}

impl Awaited {
    /// Its caller is about to hear what it waited for, and may come again at once.
    pub(crate) fn end(self) {
        let spin = &self.0;
        if spin.is_looking() {
            spin.luck.succeed();
            let lingers = spin.luck_of_lingering.take_try();
            spin.is_lingering.store(lingers, Ordering::Release);
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        let spin = &self.0;
        let is_last = spin.elsewhere.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && spin.is_looking() && !spin.is_lingering() {
            spin.stop();
        }
    }
}

/// Nobody could go on for so long: to fall asleep and be woken costs less.
const LONGEST_GAP: Duration = Duration::from_micros(50);

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
            runtime.block_on(async {
                while spin.is_on() {
                    yield_now().await;
                }
            });
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

    #[test]
    fn it_is_for_one_who_waits_elsewhere_while_the_thread_drives() {
        let (_runtime, _, spin) = runtime();
        let of_a_caller = spin.attend();
        assert!(!spin.is_on(), "nobody else drives");
        assert!(spin.begin().is_none(), "who drives is not alone");
        drop(of_a_caller);
        spin.set_resident(true);
        let first = spin.attend();
        assert!(spin.is_on());
        let second = spin.attend();
        assert!(!spin.is_on(), "two wait");
        drop((first, second));
        let alone = spin.attend();
        assert!(spin.is_on());
        drop(alone);
        assert!(!spin.is_on());
        let left = spin.attend();
        spin.set_resident(false);
        assert!(!spin.is_on(), "somebody else drives");
        drop(left);
    }

    #[test]
    fn it_lingers_for_who_comes_again_at_once_while_that_is_of_use() {
        let (runtime, _, spin) = runtime();
        let run_out = || {
            runtime.block_on(async {
                while spin.is_on() {
                    yield_now().await;
                }
            });
        };
        spin.set_resident(true);
        spin.attend().end();
        assert!(spin.is_on() && spin.is_lingering());
        let again = spin.attend();
        assert!(spin.is_on() && !spin.is_lingering());
        again.end();
        run_out();
        assert!(!spin.is_lingering());
        spin.attend().end();
        run_out();
        spin.attend().end();
        assert!(!spin.is_on(), "it has been in vain twice");
        spin.attend().end();
        assert!(spin.is_on(), "a try");
        spin.attend().end();
        spin.attend().end();
        assert!(spin.is_on(), "it has been of use");
        let (_one, _two) = (spin.attend(), spin.attend());
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
