//! What JavaScript calls to start operations and to fetch what has ended. Owns who drives the core
//! meanwhile; knows no lock.
//!
//! While few operations are under way, JavaScript's own thread drives the core: when it starts one, and
//! when the core's descriptor has something to read. With many, the core's thread does, so that both have
//! a part of the work.

use std::cell::Cell;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use napi::Env;
use napi::bindgen_prelude::{External, Function};
use napi_derive::napi;
use quorlock::Engine;

use crate::outcome::Part;
use crate::queue::{Queue, turn};
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
    let Some(Visits { engine, watch }) = &bridge.visits else {
        bridge.queue.start();
        return false;
    };
    let queue = &bridge.queue;
    if queue.under_way() > FEW {
        watch.stop();
        queue.start();
        engine.prod();
        return false;
    }
    watch.start();
    if !queue.visit(engine, || queue.start()) {
        // Whoever drives finds it, or leaves it for when we look at the descriptor.
        queue.start();
    }
    queue.has_ended()
}

/// Everything that has ended since the last call, in order: for each the operation's id and the two
/// parts of its [`Outcome`](crate::outcome::Outcome).
#[napi(ts_return_type = "Array<unknown>")]
pub fn take(bridge: &External<Bridge>) -> Vec<Part> {
    let kept = bridge.queue.take();
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
        let (queue, its) = (Arc::clone(queue), engine.clone());
        let in_vain = Cell::new(0);
        let look = move || {
            let has_come = queue.visit(&its, || ());
            in_vain.set(if has_come { 0 } else { in_vain.get() + 1 });
            // Where another thread goes on driving, what it does for us is told without a look.
            let goes_on = has_come || (queue.under_way() > 0 && in_vain.get() < PATIENCE);
            (queue.has_ended(), goes_on)
        };
        let watch = Watch::new(env, engine.descriptor()?, wake, look)?;
        Some(Self { engine, watch })
    }
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

/// So often in a row we find somebody else driving before we leave it at that.
const PATIENCE: u32 = 16;
/// More operations than this are left to the core's thread.
const FEW: usize = 4;
