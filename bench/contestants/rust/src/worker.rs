//! Runs the loops of a Rust contestant: pairs one after the other or in flight, contention, and
//! held leases.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{Locks, clock};

/// A library under test, and what it holds.
pub struct Worker<L: Locks> {
    locks: Arc<L>,
    held: Vec<L::Held>,
}

impl<L: Locks> Worker<L> {
    /// Holds nothing yet.
    pub fn new(locks: L) -> Self {
        Self { locks: Arc::new(locks), held: Vec::new() }
    }

    /// Does what a request asks for.
    pub async fn answer(&mut self, request: &Value) -> Value {
        match request["do"].as_str() {
            Some("pairs") => self.pairs(request).await,
            Some("contend") => self.contend(request).await,
            Some("hold") => self.hold(count(request, "count", 1)).await,
            Some("idle") => {
                tokio::time::sleep(seconds(request, "seconds")).await;
                json!({})
            }
            Some("drop") => self.drop().await,
            other => json!({ "error": format!("no such request: {other:?}") }),
        }
    }

    async fn pairs(&self, request: &Value) -> Value {
        let loops = count(request, "in_flight", 1);
        let (start, cpu) = (Instant::now(), clock::processor());
        let plan = Plan {
            end: start + seconds(request, "seconds"),
            resources: count(request, "resources", 1),
            most: count(request, "most", 100_000) / loops,
        };
        let mut samples = Vec::new();
        if loops == 1 {
            samples = run(&*self.locks, 0, plan).await;
        } else {
            let mut tasks = JoinSet::new();
            for number in 0..loops {
                let locks = Arc::clone(&self.locks);
                tasks.spawn(async move { run(&*locks, number, plan).await });
            }
            while let Some(done) = tasks.join_next().await {
                samples.extend(done.unwrap_or_default());
            }
        }
        json!({
            "pairs": samples.len(),
            "seconds": start.elapsed().as_secs_f64(),
            "cpu": Duration::from_micros(clock::processor() - cpu).as_secs_f64(),
            "micros": samples,
        })
    }

    async fn contend(&self, request: &Value) -> Value {
        let turn = Turn {
            end: Instant::now() + seconds(request, "seconds"),
            hold: seconds(request, "hold"),
            rest: seconds(request, "rest"),
        };
        let mut tasks = JoinSet::new();
        for _ in 0..count(request, "contenders", 2) {
            let locks = Arc::clone(&self.locks);
            tasks.spawn(async move { compete(&*locks, turn).await });
        }
        json!({ "held": tasks.join_all().await })
    }

    async fn hold(&mut self, wanted: usize) -> Value {
        for first in (0..wanted).step_by(AT_ONCE) {
            let mut tasks = JoinSet::new();
            for number in first..wanted.min(first + AT_ONCE) {
                let locks = Arc::clone(&self.locks);
                tasks.spawn(async move { locks.hold(format!("bench:held:{number}")).await });
            }
            self.held.extend(tasks.join_all().await.into_iter().flatten());
        }
        json!({ "held": self.held.len() })
    }

    async fn drop(&mut self) -> Value {
        for held in self.held.drain(..) {
            self.locks.release(held).await;
        }
        json!({})
    }
}

#[derive(Clone, Copy)]
struct Plan {
    end: Instant,
    resources: usize,
    most: usize,
}

/// Microseconds of each pair; stops early if a lock is refused, which shows as too few pairs.
async fn run(locks: &impl Locks, number: usize, plan: Plan) -> Vec<f64> {
    let mut samples = Vec::new();
    let mut now = Instant::now();
    while now < plan.end && samples.len() < plan.most {
        let resource = format!("bench:{number}:{}", samples.len() % plan.resources);
        let Some(held) = locks.acquire(resource).await else {
            break;
        };
        locks.release(held).await;
        let after = Instant::now();
        samples.push((after - now).as_secs_f64() * 1e6);
        now = after;
    }
    samples
}

#[derive(Clone, Copy)]
struct Turn {
    end: Instant,
    hold: Duration,
    rest: Duration,
}

/// When the lock was wanted, acquired and about to be released, each time.
async fn compete(locks: &impl Locks, turn: Turn) -> Vec<(u64, u64, u64)> {
    let (mut times, mut wanted) = (Vec::new(), clock::shared());
    while Instant::now() < turn.end {
        let Some(held) = locks.acquire("bench:contended".to_owned()).await else {
            continue;
        };
        let acquired = clock::shared();
        tokio::time::sleep(turn.hold).await;
        times.push((wanted, acquired, clock::shared()));
        locks.release(held).await;
        tokio::time::sleep(turn.rest).await;
        wanted = clock::shared();
    }
    times
}

fn seconds(request: &Value, name: &str) -> Duration {
    Duration::from_secs_f64(request[name].as_f64().unwrap_or(1.0))
}

fn count(request: &Value, name: &str, otherwise: usize) -> usize {
    request[name].as_u64().and_then(|n| usize::try_from(n).ok()).unwrap_or(otherwise)
}

const AT_ONCE: usize = 64;
