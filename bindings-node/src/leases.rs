//! Lists the leases of one JavaScript environment. When that ends, their renewal ends, and leases that its code never
//! received are taken back. Knows nothing else of a lease.

use std::sync::{Arc, Weak};

/// A lease whose renewal can be stopped.
pub(crate) trait RunsOut: Send + Sync {
    /// Takes it back if its user has not got it; tells whether it did.
    fn take_back_undelivered(&self) -> bool;

    /// Stops renewal.
    fn let_run_out(&self);
}

/// The leases that JavaScript has and has not collected.
///
/// Not every runtime collects the objects of a worker thread that is ended, and nothing else would
/// stop their renewal.
#[derive(Default)]
pub(crate) struct Leases {
    known: Vec<Weak<dyn RunsOut>>,
    sweep_at: usize,
}

impl Leases {
    pub(crate) fn add(&mut self, lease: &Arc<impl RunsOut + 'static>) {
        if self.known.len() >= self.sweep_at {
            self.known.retain(|known| known.strong_count() > 0);
            self.sweep_at = 2 * self.known.len() + FEW;
        }
        let lease: Weak<_> = Arc::downgrade(lease);
        self.known.push(lease);
    }

    /// Those that were not collected.
    pub(crate) fn known(&self) -> Vec<Arc<dyn RunsOut>> {
        self.known.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Collected leases are removed from the list only when it is longer than this.
const FEW: usize = 64;
