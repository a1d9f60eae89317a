//! The leases of one environment, for its end. Knows them as what can be left to run out.

use std::sync::{Arc, Weak};

/// A lease, as the end of an environment needs it.
pub(crate) trait RunsOut: Send + Sync {
    /// Renews it no more.
    fn let_run_out(&self);
}

/// The leases that JavaScript has and has not collected.
///
/// Not every runtime collects the objects of a worker thread that is ended, and nobody else would stop
/// their renewal.
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

    /// The environment ends: nobody works under them any more.
    pub(crate) fn let_run_out(self) {
        self.known.iter().filter_map(Weak::upgrade).for_each(|lease| lease.let_run_out());
    }
}

/// The collected ones are not swept out of fewer than this.
const FEW: usize = 64;
