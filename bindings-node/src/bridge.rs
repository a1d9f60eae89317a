//! What JavaScript calls to start operations and to fetch what has ended. Owns who drives the core
//! meanwhile; knows no lock.
//!
//! While few operations are under way, JavaScript's own thread drives the core: when it starts one, and
//! when the core's descriptor has something to read. With many, the core's thread does, so that both have
//! a part of the work; unless they would have to share one processor.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use napi::Env;
use napi::bindgen_prelude::{External, Function};
use napi_derive::napi;
use quorlock::{Engine, Visit};

use crate::outcome::Part;
use crate::queue::{Queue, turn};
use crate::stay::{Stay, Times};
use crate::uv::Watch;

/// The way into the core and back, in JavaScript's hands.
pub struct Bridge {
    queue: Arc<Queue>,
    /// Where JavaScript's thread can drive.
    visits: Option<Visits>,
}

struct Visits {
    engine: Engine,
    watch: Watch,
    /// More operations than this are left to the core's thread.
    most: usize,
    /// Until the core's thread has left the helm.
    waits: Rc<Cell<bool>>,
    stay: RefCell<Stay>,
    since: Instant,
    /// How much of the time since then went into visits.
    visiting: Rc<Cell<Duration>>,
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
    env.add_env_cleanup_hook(Arc::clone(&queue), |queue| queue.close())?;
    let visits = if drives { Visits::begin(*env, &wake, &queue) } else { None };
    Ok(External::new(Bridge { queue, visits }))
}

/// Starts what has been asked for since the last call; tells whether there is something to take.
#[napi]
pub fn flush(bridge: &External<Bridge>) -> bool {
    let queue = &bridge.queue;
    let Some(visits) = &bridge.visits else {
        queue.start();
        return false;
    };
    if queue.under_way() > visits.most {
        visits.watch.stop();
        queue.start();
        visits.engine.prod();
        return false;
    }
    visits.go(queue);
    queue.has_ended()
}

/// Everything that has ended since the last call, in order: for each the operation's id and the two
/// parts of its outcome.
#[napi(ts_return_type = "Array<unknown>")]
pub fn take(bridge: &External<Bridge>) -> Vec<Part> {
    let kept = bridge.queue.take();
    if let Some(visits) = &bridge.visits {
        visits.go_on(&bridge.queue);
    }
    let mut parts = Vec::with_capacity(3 * kept.len());
    for (id, outcome) in kept {
        let (value, beside) = outcome.parts(&bridge.queue);
        parts.extend([Part::A(id), value, beside]);
    }
    parts
}

/// The process ends: gives up what is under way, and waits a moment (in milliseconds) until the nodes
/// have been told.
#[napi]
pub fn finish(bridge: &External<Bridge>, patience: f64) {
    let queue = &bridge.queue;
    let Ok(engine) = Engine::shared() else { return queue.close() };
    let patience = Duration::from_secs_f64(patience.clamp(0.0, 10_000.0) / 1000.0);
    // What was asked for last is on its way first: a release is not taken back.
    queue.start();
    pass(&engine, patience);
    queue.close();
    pass(&engine, patience);
    engine.drain(patience);
}

/// Gives an operation up; tells whether it was still under way. No result comes after this.
#[napi]
pub fn cancel(bridge: &External<Bridge>, id: u32) -> bool {
    bridge.queue.cancel(id)
}

impl Bridge {
    pub(crate) fn queue(&self) -> &Arc<Queue> {
        &self.queue
    }
}

impl Visits {
    fn begin(env: Env, wake: &Function<'_, (), ()>, queue: &Arc<Queue>) -> Option<Self> {
        let engine = Engine::shared().ok()?;
        let waits = Rc::new(Cell::new(false));
        let visiting = Rc::new(Cell::default());
        let (queue, its) = (Arc::clone(queue), engine.clone());
        let (awaited, spent) = (Rc::clone(&waits), Rc::clone(&visiting));
        let look = move || {
            let visit = timed(&spent, || queue.visit(&its, Duration::ZERO, || ()));
            awaited.set(visit == Visit::Deferred);
            (queue.has_ended(), visit != Visit::Deferred)
        };
        let watch = Watch::new(env, engine.descriptor()?, wake, look)?;
        let is_alone = available_parallelism().is_ok_and(|processors| processors.get() == 1);
        let most = if is_alone { MANY } else { FEW };
        let since = Instant::now();
        let before = Times { asleep: watch.asleep(), ..Times::default() };
        let stay = RefCell::new(Stay::new(before));
        Some(Self { engine, watch, most, waits, stay, since, visiting })
    }

    /// Starts what has been asked for, and drives the core from now on.
    fn go(&self, queue: &Arc<Queue>) {
        let visit = self.stay(queue);
        if visit != Visit::Made {
            // Whoever drives finds it, or leaves it to us.
            queue.start();
        }
        self.waits.set(visit == Visit::Deferred);
        if visit == Visit::Deferred {
            self.watch.stop();
        } else {
            self.watch.start();
        }
    }

    /// Begins what has been asked for; looks on where that is worth it.
    fn stay(&self, queue: &Arc<Queue>) -> Visit {
        let mut stay = self.stay.borrow_mut();
        let (all, visiting) = (self.since.elapsed(), self.visiting.get());
        stay.note(Times { all, asleep: self.watch.asleep(), visiting });
        let limit = stay.next_limit(queue.under_way());
        let visit = timed(&self.visiting, || queue.visit(&self.engine, limit, || queue.start()));
        if !limit.is_zero() && visit == Visit::Made {
            stay.judge(queue.has_ended());
        }
        visit
    }

    /// Drives the core again if the core's thread has left the helm for it.
    fn go_on(&self, queue: &Queue) {
        if self.waits.take() && (1..=self.most).contains(&queue.under_way()) {
            self.watch.start();
        }
    }
}

/// Does `work`, and adds the time that it takes to `spent`.
fn timed<T>(spent: &Cell<Duration>, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let result = work();
    spent.set(spent.get() + begun.elapsed());
    result
}

/// Waits until the core's thread, which does one thing after the other, has done what it was told to.
fn pass(engine: &Engine, patience: Duration) {
    let (send, passed) = mpsc::channel();
    let marker = engine.spawn(async move {
        turn().await;
        send.send(())
    });
    let _ = passed.recv_timeout(patience);
    drop(marker);
}

/// Where there is another processor for the core's thread, more operations than this are left to it.
const FEW: usize = 16;
/// As many as a visit of reasonable length has time for.
const MANY: usize = 64;
