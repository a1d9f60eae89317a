//! Gives each acquisition of a process a name of its own, by which the nodes' queues know it. Owns the number of the
//! process.

use std::sync::atomic::{AtomicU32, Ordering};

use quorlock_protocol::{Environment as _, Waiter};

use super::Engine;
use crate::clock::System;

/// Gives names to the acquisitions of an engine.
///
/// An engine belongs to one process: a process that was forked has another, and so another number.
pub(super) struct Waiters {
    process: u64,
    next: AtomicU32,
}

impl Waiters {
    /// A new number for the process.
    pub(super) fn new() -> Self {
        let random = System.random();
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&random[..8]);
        Self { process: u64::from_le_bytes(bytes), next: AtomicU32::new(0) }
    }
}

impl Engine {
    /// A name in the nodes' queues that no acquisition under way has.
    pub(crate) fn draw_waiter(&self) -> Waiter {
        let Waiters { process, next } = &self.shared.waiters;
        Waiter { process: *process, number: next.fetch_add(1, Ordering::Relaxed) }
    }
}
