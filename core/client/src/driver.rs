//! Runs any protocol machine: sends its commands, hands it replies and timeouts, cancels it. Never
//! knows what a command means.

use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{Command, Environment, HolderId, Machine, Moment, NodeId, Output};
use smallvec::SmallVec;
use tokio::select;
use tokio::time::sleep;

use crate::clock::{LeaseClock, Snapshot};
use crate::inbox::{Arrival, Inbox, ReplyTo, Wake};
use crate::node::{Node, hand_over};
use crate::observe::Telemetry;

/// The nodes, and the inbox that receives their replies for one operation.
#[derive(Clone)]
pub(crate) struct Driver {
    pub(crate) nodes: Arc<[Arc<dyn Node>]>,
    pub(crate) inbox: Arc<Inbox>,
}

impl Driver {
    /// A driver for machines that use `clock`; the latencies of the answers are counted there.
    pub(crate) fn new(
        nodes: &Arc<[Arc<dyn Node>]>,
        clock: &LeaseClock,
        telemetry: &Arc<Telemetry>,
    ) -> Self {
        let inbox = Inbox::with_room_for(nodes.len(), clock, Some(telemetry));
        Self { nodes: Arc::clone(nodes), inbox }
    }

    fn clock(&self) -> &LeaseClock {
        self.inbox.clock()
    }

    /// Drives `machine` to its end. Calls `watch` after every change, before the machine's commands
    /// are sent.
    ///
    /// If the future is dropped, the machine stays as it is, for [`Self::abandon`].
    pub(crate) async fn run<M: Machine>(
        &self,
        machine: &mut M,
        mut watch: impl FnMut(&mut M),
    ) -> M::Outcome {
        let mut batch: Vec<Arrival> = Vec::with_capacity(self.nodes.len());
        let mut outgoing: Vec<(NodeId, Command)> = Vec::with_capacity(self.nodes.len());
        // The clock is read once for each round of inputs.
        let mut view = self.view();
        loop {
            let wake_at = match self.advance(machine, &mut view, &mut watch, &mut outgoing) {
                ControlFlow::Continue(wake_at) => wake_at,
                ControlFlow::Break(outcome) => return outcome,
            };
            let wake = self.wait(wake_at, &mut batch).await;
            view = self.view();
            match wake {
                Some(Wake::Replies) => {
                    for arrival in batch.drain(..) {
                        machine.handle_reply(&mut view, arrival.node, arrival.reply);
                    }
                }
                Some(Wake::Freed) => machine.handle_freed(),
                Some(Wake::News(node, news)) => machine.handle_news(&mut view, node, news),
                Some(Wake::Cancelled) => machine.cancel(&mut view),
                None if view.now() >= wake_at => machine.handle_timeout(&mut view),
                None => {}
            }
        }
    }

    fn view(&self) -> View<'_> {
        View { world: self.clock().snapshot(), clock: self.clock(), nodes: &self.nodes }
    }

    /// Polls `machine` until it waits (returns when to wake it) or ends (returns its outcome).
    fn advance<M: Machine>(
        &self,
        machine: &mut M,
        view: &mut View<'_>,
        watch: &mut impl FnMut(&mut M),
        outgoing: &mut Vec<(NodeId, Command)>,
    ) -> ControlFlow<M::Outcome, Moment> {
        let next = loop {
            match machine.poll(view) {
                Output::Send(node, command) => outgoing.push((node, command)),
                Output::WakeAt(at) => break ControlFlow::Continue(at),
                Output::Done(outcome) => break ControlFlow::Break(outcome),
            }
        };
        watch(machine);
        if !outgoing.is_empty() {
            self.inbox.note_asking(view.now());
            self.send(outgoing);
        }
        next
    }

    /// Cancels a machine whose future was dropped and sends its remaining commands, without
    /// waiting.
    pub(crate) fn abandon<M: Machine>(&self, machine: &mut M) -> Option<M::Outcome> {
        let mut view = self.view();
        machine.cancel(&mut view);
        self.advance(machine, &mut view, &mut |_| {}, &mut Vec::new()).break_value()
    }

    /// Sends what goes out together. Nodes that have not answered yet come first, the one that was
    /// asked last before all others: their servers still have work, and finish both at once.
    /// Commands for one node stay in order.
    fn send(&self, outgoing: &mut Vec<(NodeId, Command)>) {
        if outgoing.len() > 1 {
            // Read once, since it may change at any time.
            let owing: Vec<_> = self.nodes.iter().map(unanswered_since).collect();
            outgoing.sort_by_key(|(node, _)| Reverse(owing[node.index()]));
        }
        for (node, command) in outgoing.drain(..) {
            self.send_one(node, command);
        }
    }

    fn send_one(&self, node: NodeId, command: Command) {
        hand_over(&*self.nodes[node.index()], command, ReplyTo::new(&self.inbox, node));
    }

    /// Waits for input, until `wake_at` at most.
    ///
    /// Timers stop while the computer sleeps and the lease clock does not, so every timer is short,
    /// and the clock is read again after it.
    async fn wait(&self, wake_at: Moment, batch: &mut Vec<Arrival>) -> Option<Wake> {
        if let Some(wake) = self.inbox.try_take(batch) {
            return Some(wake);
        }
        let left = wake_at.since(self.clock().now());
        if left.is_zero() {
            return None;
        }
        let time = left.min(LONGEST_SLEEP);
        select! {
            biased;
            wake = self.inbox.take(batch) => Some(wake),
            () = self.clock().jump() => None,
            () = sleep(time) => None,
        }
    }
}

fn unanswered_since(node: &Arc<dyn Node>) -> Option<Moment> {
    node.server()?.unanswered_since()
}

/// The environment at one moment, the clocks of the nodes included.
struct View<'a> {
    world: Snapshot,
    clock: &'a LeaseClock,
    nodes: &'a [Arc<dyn Node>],
}

impl Environment for View<'_> {
    fn now(&self) -> Moment {
        self.world.now()
    }

    fn wall_micros(&self) -> u64 {
        self.world.wall_micros()
    }

    fn nodes_micros(&self) -> Option<u64> {
        let now = self.clock.to_boot(self.now());
        let shown = self.nodes.iter().filter_map(|node| node.server()?.clock_micros(now));
        let mut clocks: SmallVec<[u64; 8]> = shown.collect();
        clocks.sort_unstable();
        clocks.get(clocks.len().checked_sub(1)? / 2).copied()
    }

    fn random(&mut self) -> [u8; HolderId::RANDOM_BYTES] {
        self.world.random()
    }
}

const LONGEST_SLEEP: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::{Future, ready};
    use std::pin::Pin;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use quorlock_protocol::{Action, Claim, Reply, Resources, Ticket};

    use super::*;
    use crate::node::{NodeState, ServerNode};

    /// A node that records the commands that it is sent.
    struct Recorder {
        own: u8,
        owes_since: Box<dyn Fn() -> Option<Moment> + Send + Sync>,
        sent: Arc<Mutex<Vec<(u8, u32)>>>,
    }

    impl Node for Recorder {
        fn address(&self) -> &'static str {
            "recorder"
        }

        fn send(&self, command: Command, _reply_to: ReplyTo) {
            self.sent.lock().unwrap().push((self.own, command.ticket.0));
        }

        fn state(&self) -> NodeState {
            NodeState::Healthy
        }

        fn settled(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
            Box::pin(ready(()))
        }

        fn close(&self) {}

        fn server(&self) -> Option<&dyn ServerNode> {
            Some(self)
        }
    }

    impl ServerNode for Recorder {
        fn unanswered_since(&self) -> Option<Moment> {
            (self.owes_since)()
        }

        fn clock_micros(&self, _now: Moment) -> Option<u64> {
            None
        }

        fn key_prefix(&self) -> &'static str {
            ""
        }

        fn call(&self, _call: redis::Cmd) -> tokio::sync::oneshot::Receiver<redis::Value> {
            tokio::sync::oneshot::channel().1
        }

        fn probe(&self) {}

        fn reopened(&self) -> Arc<dyn Node> {
            unreachable!("no manager is closed here")
        }

        fn wake_lacks(&self) -> Option<Arc<str>> {
            None
        }

        fn leave_out(&self, _is_left_out: bool) {}
    }

    /// A machine that sends these tickets to these nodes and then ends.
    struct Sends(VecDeque<(u32, u8)>);

    impl Machine for Sends {
        type Outcome = ();

        fn poll(&mut self, _env: &mut dyn Environment) -> Output<()> {
            let Some((ticket, node)) = self.0.pop_front() else { return Output::Done(()) };
            let holder = HolderId::fresh([7; HolderId::RANDOM_BYTES]);
            let claim = Arc::new(Claim { holder, resources: Resources::new(["r"]).unwrap() });
            let (ticket, action) = (Ticket(ticket), Action::REVOKE);
            let not_after = Moment::FAR_FUTURE;
            Output::Send(NodeId(node), Command { ticket, claim, action, not_after })
        }

        fn handle_reply(&mut self, _env: &mut dyn Environment, _node: NodeId, _reply: Reply) {}
        fn handle_timeout(&mut self, _env: &mut dyn Environment) {}
        fn cancel(&mut self, _env: &mut dyn Environment) {}
    }

    /// The order in which the nodes were sent their commands, each with its ticket.
    async fn order(
        sends: &[u8],
        owing: [impl Fn() -> Option<Moment> + Send + Sync + 'static; 3],
    ) -> Vec<(u8, u32)> {
        let sent = Arc::<Mutex<_>>::default();
        let nodes = (0..).zip(owing).map(|(own, owes_since)| {
            let (sent, owes_since) = (Arc::clone(&sent), Box::new(owes_since));
            Arc::new(Recorder { own, owes_since, sent }) as Arc<dyn Node>
        });
        let driver =
            Driver::new(&nodes.collect(), &LeaseClock::default(), &Arc::new(Telemetry::of(3)));
        driver.run(&mut Sends((0..).zip(sends.iter().copied()).collect()), |_| ()).await;
        sent.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn nodes_that_owe_an_answer_are_sent_to_first() {
        let owing = [None, Some(1), None].map(|since| move || since.map(Moment::from_millis));
        assert_eq!(order(&[0, 1, 2], owing).await, [(1, 1), (0, 0), (2, 2)]);
        let owing = [Some(1), None, Some(2)].map(|since| move || since.map(Moment::from_millis));
        assert_eq!(order(&[0, 1, 2], owing).await, [(2, 2), (0, 0), (1, 1)]);
    }

    #[tokio::test]
    async fn commands_for_one_node_stay_in_their_order() {
        let flips = || {
            let owes = AtomicBool::new(false);
            move || owes.fetch_not(Ordering::Relaxed).then_some(Moment::FAR_FUTURE)
        };
        let order = order(&[0, 0, 1, 0, 2, 0, 1, 0], [flips(), flips(), flips()]).await;
        for node in 0..3 {
            let own = order.iter().filter(|(to, _)| *to == node).map(|(_, ticket)| ticket);
            assert!(own.is_sorted(), "{order:?}");
        }
    }
}
