//! Ours. Variants: `plain` (no fencing, no guards: what the others do),
//! `engine` (called on the thread that does the work).

#![forbid(unsafe_code)]

use quorlock::{LeaseGuard, LockError, Policy, Redlock, RestartGuard};
use quorlock_bench::{Locks, TTL, Worker, arguments, serve, serve_here};
use serde_json::json;

struct Ours(Redlock);

impl Locks for Ours {
    type Held = LeaseGuard;

    async fn acquire(&self, resource: String) -> Option<LeaseGuard> {
        self.0.lock(&resource).ttl(TTL).acquire().await.ok()
    }

    async fn hold(&self, resource: String) -> Option<LeaseGuard> {
        self.0.lock(&resource).ttl(TTL).auto_extend(true).acquire().await.ok()
    }

    async fn release(&self, held: LeaseGuard) {
        let _ = held.release().await;
    }
}

/// For callers that run on the engine themselves.
struct Here(Redlock);

impl Locks for Here {
    type Held = LeaseGuard;

    async fn acquire(&self, resource: String) -> Option<LeaseGuard> {
        self.0.lock(&resource).ttl(TTL).acquire_here().await.ok()
    }

    async fn hold(&self, resource: String) -> Option<LeaseGuard> {
        self.0.lock(&resource).ttl(TTL).auto_extend(true).acquire_here().await.ok()
    }

    async fn release(&self, held: LeaseGuard) {
        let _ = held.release().await;
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (variant, nodes) = arguments();
    let policy = Policy::builder();
    let policy = match &*variant {
        "plain" => policy.fencing(false).restart_guard(RestartGuard::Off).clock_guard(false),
        _ => policy,
    };
    let policy = policy.build().map_err(LockError::from)?;
    let locks = Redlock::builder().nodes(&nodes).policy(policy).build()?;
    if variant == "engine" { serve_on_engine(locks) } else { Ok(serve_here(Ours(locks), VERSION)?) }
}

fn serve_on_engine(locks: Redlock) -> Result<(), Box<dyn std::error::Error>> {
    let engine = locks.engine().clone();
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let mut here = Some(Worker::new(Here(locks)));
    serve(VERSION, move |request| {
        let Some(mut worker) = here.take() else {
            return json!({ "error": "the engine has ended" });
        };
        let task = engine.spawn(async move {
            let answer = worker.answer(&request).await;
            (worker, answer)
        });
        let Some((worker, answer)) = runtime.block_on(task) else {
            return json!({ "error": "the engine has ended" });
        };
        here = Some(worker);
        answer
    })?;
    Ok(())
}

const VERSION: &str = env!("CARGO_PKG_VERSION");
