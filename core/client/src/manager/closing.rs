//! Closes a manager. Owns for which work its nodes are still needed then, and for how long, and the nodes for what is
//! released later; knows no command.

use std::future::Future;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use quorlock_protocol::{ErrorKind, Resources};
use tokio::time::timeout;

use super::{Manager, Redlock};
use crate::background::BackgroundTicket;
use crate::error::LockError;
use crate::node::{Node, ServerNode};

impl Redlock {
    /// Gives up the connections: those that no other manager of the engine uses are closed, once
    /// what was sent is answered (five seconds later if the manager is only dropped). Locks that
    /// are still held are no longer renewed and expire. They can be released: the nodes are
    /// connected to again for that, until five seconds after it. Every other later operation fails with
    /// [`ErrorKind::Closed`], and so do acquisitions that wait. The nodes are first asked to delete
    /// the keys of acquisitions under way; it does not wait for that. Closing twice does nothing.
    pub fn close(&self) {
        let manager = &self.manager;
        manager.closed.store(true, Ordering::Release);
        manager.caller_queues.close(manager.number);
        // What begins from here on finds it closed.
        if manager.under_way.is_idle() {
            return close_all(&manager.nodes);
        }
        let (nodes, under_way) = (Arc::clone(&manager.nodes), Arc::clone(&manager.under_way));
        manager.engine.spawn_detached(async move {
            let _ = timeout(TO_WITHDRAW, under_way.idle()).await;
            close_all(&nodes);
        });
    }

    /// Whether [`Self::close`] was called.
    pub fn is_closed(&self) -> bool {
        self.manager.is_closed()
    }
}

impl Manager {
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn check_open(&self, resources: &Resources) -> Result<(), LockError> {
        if self.is_closed() {
            return Err(self.error(ErrorKind::Closed, resources, &[], (0, Duration::ZERO)));
        }
        Ok(())
    }

    /// Until it is dropped, a close of the manager leaves its nodes open, though not for long.
    pub(crate) fn need_nodes(&self) -> BackgroundTicket {
        BackgroundTicket::new(&self.under_way)
    }

    /// The nodes for taking the keys of a lease back, which the user may release after a close. While the result is
    /// kept, it is the same for all leases.
    pub(crate) fn nodes_for_release(&self) -> Arc<[Arc<dyn Node>]> {
        if !self.is_closed() {
            return Arc::clone(&self.nodes);
        }
        let mut reopened = self.reopened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(nodes) = reopened.as_ref().and_then(Weak::upgrade) {
            return nodes;
        }
        let reopen = |node: &Arc<dyn Node>| {
            node.server().map_or_else(|| Arc::clone(node), ServerNode::reopened)
        };
        let nodes: Arc<[_]> = self.nodes.iter().map(reopen).collect();
        *reopened = Some(Arc::downgrade(&nodes));
        nodes
    }

    /// Takes keys back as background work of the engine, for which the nodes stay open.
    pub(crate) fn background(&self, work: impl Future<Output = ()> + Send + 'static) {
        let needed = self.need_nodes();
        self.engine.background(work.map(move |()| drop(needed)));
    }
}

fn close_all(nodes: &[Arc<dyn Node>]) {
    for node in nodes {
        node.close();
    }
}

/// How long a close waits at most until the keys of acquisitions under way were asked back: a node may hang.
const TO_WITHDRAW: Duration = Duration::from_millis(200);
