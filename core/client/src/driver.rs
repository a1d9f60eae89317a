//! Runs any machine: sends, replies, timers, cancellation. Never knows what a command means.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Machine, Moment, Output};
use tokio::select;
use tokio::time::sleep;

use crate::clock::{self, Jumps, System};
use crate::inbox::{Arrival, Inbox, ReplyTo, Wake};
use crate::node::Node;

/// The nodes, and the inbox that their replies for one operation come to.
#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) nodes: Arc<[Arc<dyn Node>]>,
    pub(crate) inbox: Arc<Inbox>,
    jumps: Jumps,
}

impl Driver {
    pub(crate) fn new(nodes: &Arc<[Arc<dyn Node>]>, jumps: &Jumps) -> Self {
        Self { nodes: Arc::clone(nodes), inbox: Arc::default(), jumps: jumps.clone() }
    }

    /// Drives `machine` to its end. `watch` sees it after every change.
    ///
    /// Dropping the future leaves the machine as it is, for [`Self::abandon`].
    pub(crate) async fn run<M: Machine>(
        &self,
        machine: &mut M,
        mut watch: impl FnMut(&mut M),
    ) -> M::Outcome {
        let mut batch: Vec<Arrival> = Vec::new();
        loop {
            let wake_at = match machine.poll(&mut System) {
                Output::Send(node, command) => {
                    self.nodes[node.index()].send(command, ReplyTo::new(&self.inbox, node));
                    continue;
                }
                Output::WakeAt(at) => at,
                Output::Done(outcome) => {
                    watch(machine);
                    return outcome;
                }
            };
            watch(machine);
            match self.wait(wake_at, &mut batch).await {
                Some(Wake::Replies) => {
                    for arrival in batch.drain(..) {
                        machine.handle_reply(&mut System, arrival.node, arrival.reply);
                    }
                }
                Some(Wake::Cancelled) => machine.cancel(&mut System),
                None if clock::now() >= wake_at => machine.handle_timeout(&mut System),
                None => {}
            }
        }
    }

    /// Cancels a machine whose future was dropped and sends what it still wants to send, without
    /// waiting for anything.
    pub(crate) fn abandon<M: Machine>(&self, machine: &mut M) -> Option<M::Outcome> {
        machine.cancel(&mut System);
        loop {
            match machine.poll(&mut System) {
                Output::Send(node, command) => {
                    self.nodes[node.index()].send(command, ReplyTo::new(&self.inbox, node));
                }
                Output::WakeAt(_) => return None,
                Output::Done(outcome) => return Some(outcome),
            }
        }
    }

    /// Waits for something to come in, until `wake_at` at the most.
    ///
    /// Timers stop while the computer sleeps and the lease clock does not, so no timer is longer than
    /// a nap: the clock is looked at again after it.
    async fn wait(&self, wake_at: Moment, batch: &mut Vec<Arrival>) -> Option<Wake> {
        if let Some(wake) = self.inbox.try_take(batch) {
            return Some(wake);
        }
        let left = wake_at.since(clock::now());
        if left.is_zero() {
            return None;
        }
        let nap = left.min(LONGEST_NAP);
        select! {
            biased;
            wake = self.inbox.take(batch) => Some(wake),
            () = self.jumps.next() => None,
            () = sleep(nap) => None,
        }
    }
}

const LONGEST_NAP: Duration = Duration::from_secs(1);
