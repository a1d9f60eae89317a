//! The functions that JavaScript calls to start operations and to fetch results. Owns which thread
//! drives the core meanwhile; knows no lock.
//!
//! While few operations are under way, JavaScript's own thread drives the core: when it starts one,
//! and when the core's descriptor is readable. With many, the core's thread drives, so that both
//! threads do a part of the work, unless they would share one processor.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use napi::Env;
use napi::bindgen_prelude::{External, Function};
use napi_derive::napi;
use quorlock::Engine;
use quorlock::embed::Drive;

use crate::parts::{self, Part};
use crate::poll_budget::{LoopTimes, PollBudget};
use crate::queue::{Queue, Wake};
use crate::uv::DescriptorWatch;

/// JavaScript's handle to the core.
pub struct Bridge {
    queue: Arc<Queue>,
    /// Keeps the environment's event loop alive, and is never called.
    loop_handle: RefCell<Wake>,
    /// Present if JavaScript's thread can drive.
    loop_driver: Option<LoopDriver>,
}

/// Drives the core on JavaScript's thread.
struct LoopDriver {
    engine: Engine,
    watch: DescriptorWatch,
    /// More operations than this are left to the core's thread.
    most: usize,
    /// Whether it waits for the core's thread to stop driving.
    waits: Rc<Cell<bool>>,
    budget: RefCell<PollBudget>,
    since: Instant,
    /// How much of the time since then was spent driving.
    driving: Rc<Cell<Duration>>,
}

/// Makes the bridge of this environment; `wake` is called when there is something to take.
/// `drives`: its event loop is libuv's, and may be asked to watch a descriptor.
#[napi]
pub fn bridge(
    env: &Env,
    wake: Function<'_, (), ()>,
    drives: bool,
) -> napi::Result<External<Bridge>> {
    let queue = Queue::new(&wake)?;
    let loop_handle = RefCell::new(wake.build_threadsafe_function().weak::<true>().build()?);
    env.add_env_cleanup_hook(Arc::clone(&queue), |queue| {
        if queue.take_back_undelivered() || !queue.is_over() {
            end(&queue);
        }
        queue.close();
    })?;
    let loop_driver = if drives { LoopDriver::new(*env, &wake, &queue) } else { None };
    Ok(External::new(Bridge { queue, loop_handle, loop_driver }))
}

/// Starts what has been asked for since the last call; tells whether there is something to take.
#[napi]
pub fn flush(bridge: &External<Bridge>) -> bool {
    let queue = &bridge.queue;
    let Some(loop_driver) = &bridge.loop_driver else {
        queue.start();
        return false;
    };
    if queue.under_way() > loop_driver.most {
        loop_driver.watch.stop();
        queue.start();
        loop_driver.engine.wake_thread();
        return false;
    }
    loop_driver.start(queue);
    queue.has_ended()
}

/// What has ended and was not taken yet, in order, the `most` oldest: for each the operation's id and the
/// two parts of its outcome.
#[napi(ts_return_type = "Array<unknown>")]
pub fn take(bridge: &External<Bridge>, most: u32) -> Vec<Part> {
    let ended = bridge.queue.take(most as usize);
    if let Some(loop_driver) = &bridge.loop_driver {
        loop_driver.resume(&bridge.queue);
    }
    let mut list = Vec::with_capacity(3 * ended.len());
    for (id, outcome) in ended {
        let (value, beside) = parts::parts(outcome, &bridge.queue);
        list.extend([Part::A(id), value, beside]);
    }
    list
}

/// Whether the environment's event loop waits for results. No timer does that for it, which tests replace by fake ones.
#[napi]
#[allow(deprecated, reason = "clones, which are to be used instead, keep no loop alive")]
pub fn keep_alive(env: &Env, bridge: &External<Bridge>, alive: bool) -> napi::Result<()> {
    let mut loop_handle = bridge.loop_handle.borrow_mut();
    if alive { loop_handle.refer(env) } else { loop_handle.unref(env) }
}

/// The process exits, or the worker thread: cancels what is under way, and waits briefly until the nodes have been told.
/// (A program may also call its listeners without an exit: what it asks for afterwards is done.)
#[napi]
pub fn finish(bridge: &External<Bridge>) {
    end(&bridge.queue);
}

/// The process has called its exit listeners and goes on: what was waited for then was not its end.
#[napi]
pub fn go_on() {
    Waited::forget();
}

/// Also called where no JavaScript is run at the end, as in a worker thread that is terminated, or whose process exits.
fn end(queue: &Queue) {
    let Ok(engine) = Engine::shared() else { return queue.drop_operations() };
    let begun = Instant::now();
    let patience = engine.exit_patience(queue.under_way()).min(Waited::left(begun));
    queue.drop_operations();
    engine.drain(patience);
    Waited::add(begun);
}

/// How long the process has waited at its end: for one copy of the package after another, and one worker thread after
/// another. What is long ago was no end of the process, but of a worker.
struct Waited {
    time: Duration,
    last: Instant,
}

impl Waited {
    /// How long may be waited from `now` on.
    fn left(now: Instant) -> Duration {
        let waited = Self::lock();
        let recent = waited.as_ref().filter(|it| now.duration_since(it.last) < LONG_AGO);
        LONGEST_EXIT.saturating_sub(recent.map_or(Duration::ZERO, |it| it.time))
    }

    /// It was waited since `begun`.
    fn add(begun: Instant) {
        let used = LONGEST_EXIT.saturating_sub(Self::left(begun));
        let now = Instant::now();
        *Self::lock() = Some(Self { time: used + now.duration_since(begun), last: now });
    }

    fn forget() {
        *Self::lock() = None;
    }

    fn lock() -> MutexGuard<'static, Option<Self>> {
        static WAITED: Mutex<Option<Waited>> = Mutex::new(None);
        WAITED.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long the process waits at its end, at most.
const LONGEST_EXIT: Duration = Duration::from_secs(1);
const LONG_AGO: Duration = Duration::from_secs(2);

/// Cancels an operation; tells whether it was still under way. No result comes after this.
#[napi]
pub fn cancel(bridge: &External<Bridge>, id: u32) -> bool {
    bridge.queue.cancel(id)
}

impl Bridge {
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl LoopDriver {
    fn new(env: Env, wake: &Function<'_, (), ()>, queue: &Arc<Queue>) -> Option<Self> {
        let engine = Engine::shared().ok()?;
        let waits = Rc::new(Cell::new(false));
        let driving = Rc::new(Cell::default());
        let (queue, its) = (Arc::clone(queue), engine.clone());
        let (awaited, spent) = (Rc::clone(&waits), Rc::clone(&driving));
        let look = move || {
            let drive = timed(&spent, || queue.drive(&its, Duration::ZERO, || ()));
            awaited.set(drive == Drive::ThreadDriving);
            (queue.has_ended(), drive != Drive::ThreadDriving)
        };
        let watch = DescriptorWatch::new(env, engine.descriptor()?, wake, look)?;
        let is_alone = available_parallelism().is_ok_and(|processors| processors.get() == 1);
        let most = if is_alone { MANY } else { FEW };
        let since = Instant::now();
        let before = LoopTimes { idle_time: watch.idle_time(), ..LoopTimes::default() };
        let budget = RefCell::new(PollBudget::new(before));
        Some(Self { engine, watch, most, waits, budget, since, driving })
    }

    /// Starts what has been asked for, and drives the core from now on.
    fn start(&self, queue: &Arc<Queue>) {
        let drive = self.drive(queue);
        if drive != Drive::Driven {
            // The thread that drives starts it, or leaves it to this one.
            queue.start();
        }
        self.waits.set(drive == Drive::ThreadDriving);
        if drive == Drive::ThreadDriving {
            self.watch.stop();
        } else {
            self.watch.start();
        }
    }

    /// Starts what has been asked for, and drives the core while a task is ready; polls if that has
    /// succeeded lately.
    fn drive(&self, queue: &Arc<Queue>) -> Drive {
        let mut budget = self.budget.borrow_mut();
        let (all, driving) = (self.since.elapsed(), self.driving.get());
        budget.measure(LoopTimes { all, idle_time: self.watch.idle_time(), driving });
        let limit = budget.next_limit(queue.under_way());
        let drive = timed(&self.driving, || queue.drive(&self.engine, limit, || queue.start()));
        if !limit.is_zero() && drive == Drive::Driven {
            budget.record(queue.has_ended());
        }
        drive
    }

    /// Drives the core again if the core's thread has stopped for it.
    fn resume(&self, queue: &Queue) {
        if self.waits.take() && (1..=self.most).contains(&queue.under_way()) {
            self.watch.start();
        }
    }
}

/// Runs `work`, and adds the time that it takes to `spent`.
fn timed<T>(spent: &Cell<Duration>, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    spent.set(spent.get() + begun.elapsed());
    result
}

/// If the core's thread has a processor of its own, more operations than this are left to it.
const FEW: usize = 16;
/// As many as JavaScript's thread has time for in one turn.
const MANY: usize = 64;
