//! rslock: asks all nodes at once and waits for every one.

#![forbid(unsafe_code)]

use std::io;

use quorlock_bench::{Locks, TTL, arguments, serve_here};
use rslock::{Lock, LockManager};

struct Peer(LockManager);

impl Locks for Peer {
    type Held = Lock;

    async fn acquire(&self, resource: String) -> Option<Lock> {
        self.0.lock(resource.as_bytes(), TTL).await.ok()
    }

    async fn hold(&self, _: String) -> Option<Lock> {
        None
    }

    async fn release(&self, held: Lock) {
        held.release().await;
    }
}

fn main() -> io::Result<()> {
    let (_, nodes) = arguments();
    serve_here(Peer(LockManager::new(nodes)), "0.10.0")
}
