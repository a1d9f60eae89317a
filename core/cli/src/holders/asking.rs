//! How one command asks the nodes about locks. Owns how long it waits for those that do not answer:
//! until the timeout is over, and once.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use quorlock::{Address, Fault, Policy, ServerConnection};

use crate::context::{Context, is_silence, visit_within};

/// The nodes, as one command asks them.
pub(super) struct Asking<'a> {
    pub(super) context: &'a Context,
    began: Instant,
    has_asked: Cell<bool>,
    /// For each node, why it is not asked again, if so.
    silent: Vec<RefCell<Option<Fault>>>,
}

impl<'a> Asking<'a> {
    pub(super) fn new(context: &'a Context) -> Self {
        let silent = context.addresses.iter().map(|_| RefCell::default()).collect();
        Self { context, began: Instant::now(), has_asked: Cell::new(false), silent }
    }

    /// How much is left of the timeout.
    pub(super) fn left(&self) -> Duration {
        let spent = self.began.elapsed();
        // In whole milliseconds, as people are told it.
        let spent = Duration::new(spent.as_secs(), spent.subsec_millis() * 1_000_000);
        self.context.timeout.saturating_sub(spent)
    }

    /// Asks every node that has not been silent before, as [`Context::each_node`] does.
    pub(super) fn each_node<T>(
        &self,
        visit: &impl AsyncFn(&mut ServerConnection, &Address) -> Result<T, Fault>,
    ) -> Vec<Result<T, Fault>> {
        let limit = self.limit();
        let visits =
            self.context.addresses.iter().zip(&self.silent).map(async |(address, silent)| {
                if let Some(fault) = silent.borrow().clone() {
                    return Err(fault);
                }
                let visited = visit_within(limit, address, visit).await;
                let fault = visited.as_ref().err().filter(|fault| is_silence(fault));
                *silent.borrow_mut() = fault.cloned();
                visited
            });
        self.context.engine.block_on(join_all(visits))
    }

    /// How long a node has to answer: at first what is left, or at least what a node has in every operation. Those
    /// that are asked again are known to answer, so they have all of the timeout.
    fn limit(&self) -> Duration {
        let timeout = self.context.timeout;
        if self.has_asked.replace(true) {
            return timeout;
        }
        self.left().max(Policy::default().node_timeout()).min(timeout)
    }
}
