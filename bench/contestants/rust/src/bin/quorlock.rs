//! Quorlock. Variants: `plain` (no fencing, no guards: what the others do),
//! `engine` (called on the thread that does the work), `blocking` (by code without a runtime).

#![forbid(unsafe_code)]

use std::future::Future as _;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

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
        self.0.lock(&resource).ttl(TTL).acquire().await.ok()
    }

    async fn hold(&self, resource: String) -> Option<LeaseGuard> {
        self.0.lock(&resource).ttl(TTL).auto_extend(true).acquire().await.ok()
    }

    async fn release(&self, held: LeaseGuard) {
        let _ = held.release().await;
    }
}

/// For code that blocks: no future of it is ever pending.
struct Blocking(Redlock);

impl Locks for Blocking {
    type Held = LeaseGuard;

    async fn acquire(&self, resource: String) -> Option<LeaseGuard> {
        let lock = self.0.lock(&resource).ttl(TTL);
        self.0.engine().block_on(lock.acquire()).ok()
    }

    async fn hold(&self, resource: String) -> Option<LeaseGuard> {
        let lock = self.0.lock(&resource).ttl(TTL).auto_extend(true);
        self.0.engine().block_on(lock.acquire()).ok()
    }

    async fn release(&self, held: LeaseGuard) {
        let _ = self.0.engine().block_on(held.release());
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
    match &*variant {
        "engine" => serve_on_engine(locks),
        "blocking" => Ok(serve_blocking(locks)?),
        _ => Ok(serve_here(Ours(locks), VERSION)?),
    }
}

fn serve_blocking(locks: Redlock) -> io::Result<()> {
    let mut worker = Worker::new(Blocking(locks));
    serve(VERSION, |request| {
        let answer = pin!(worker.answer(&request));
        match answer.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(answer) => answer,
            Poll::Pending => json!({ "error": "this is for one loop at a time" }),
        }
    })
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
