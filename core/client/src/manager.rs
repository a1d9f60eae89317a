//! The manager: one user's nodes, and the way into every operation on locks over them. Owns the
//! settings and connections that its locks share.

mod closing;
mod waiting;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use quorlock_protocol::{
    Claim, ConfigError, ErrorKind, HolderId, Inspect, Inspection, Policy, Quorum, Resources,
    RoundReport, Withdraw,
};
use tokio::sync::oneshot;

use crate::background::Background;
use crate::caller_queues::{CallerQueues, ManagerNumber};
use crate::clock::{LeaseClock, System};
use crate::driver::Driver;
use crate::engine::Engine;
use crate::error::{LockError, NodeReport, name_votes};
use crate::guards::{GuardsHandle, LongLockNote};
use crate::node::{Node, NodeState};
use crate::observe::Telemetry;
use crate::owner::Owner;
use crate::redis_node::NodeSettings;
use crate::renewal::RenewalScheduler;

/// Locks over N independent nodes.
///
/// Cloning is cheap and gives the same manager. It connects at the first operation. All managers of an
/// [`Engine`] use the same connection to a server, if address, user, password, database and TLS are the same.
///
/// ```
/// use quorlock::Redlock;
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), quorlock::LockError> {
/// let locks = Redlock::builder().nodes(["memory://a", "memory://b", "memory://c"]).build()?;
/// let lease = locks.lock("invoice:42").ttl(Duration::from_secs(5)).acquire().await?;
/// assert!(lease.is_valid());
/// lease.release().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Redlock {
    pub(crate) manager: Arc<Manager>,
}

/// The nodes of a manager, in the order given.
type Nodes = [Arc<dyn Node>];

pub(crate) struct Manager {
    pub(crate) nodes: Arc<[Arc<dyn Node>]>,
    pub(crate) addresses: Arc<[Arc<str>]>,
    pub(crate) quorum: Quorum,
    pub(crate) engine: Engine,
    /// The clock of its own leases only.
    pub(crate) clock: LeaseClock,
    pub(crate) renewals: RenewalScheduler,
    guards: GuardsHandle,
    pub(crate) policy: Policy,
    /// The policy of the latest lease, for the next one to share.
    latest: Mutex<Arc<Policy>>,
    settings: NodeSettings,
    /// Where its callers wait for their turns, with those of the managers that are like this one.
    pub(crate) caller_queues: Arc<CallerQueues>,
    pub(crate) number: ManagerNumber,
    pub(crate) telemetry: Arc<Telemetry>,
    /// What is told of this manager beside the locks that it holds.
    pub(crate) owner: Option<Owner>,
    pub(crate) known: AtomicU64,
    settled: AtomicBool,
    /// A quorum has granted something, so the list of nodes was right at that time.
    proven: AtomicBool,
    /// The list of nodes was found to be wrong before that.
    mistaken: AtomicBool,
    closed: AtomicBool,
    /// The nodes for what is released after a close.
    reopened: Mutex<Option<Weak<Nodes>>>,
    /// What the nodes are still needed for once it is closed.
    under_way: Arc<Background>,
    /// For each node, whether people were told that it cannot tell waiters.
    told_no_push: Box<[AtomicBool]>,
}

impl Redlock {
    pub(crate) fn over(manager: Manager) -> Self {
        Self { manager: Arc::new(manager) }
    }

    /// Whether another client could not get the lock now, because some client holds it (as far as
    /// the nodes tell).
    ///
    /// # Errors
    /// [`ErrorKind::QuorumUnreachable`] if too few nodes answer.
    pub async fn is_locked<S: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = S>,
    ) -> Result<bool, LockError> {
        let claim = Claim { resources: Resources::new(names)?, holder: Manager::fresh_holder() };
        let claim = Arc::new(claim);
        self.manager.check_open(&claim.resources)?;
        self.manager.settle(None).await?;
        let (now, policy, quorum) =
            (self.manager.clock.now(), self.manager.policy, self.manager.quorum);
        let inspection = self.manager.inspect(Inspect::new(now, &claim, policy, quorum)).await;
        if inspection.held_by_another || inspection.is_free {
            return Ok(inspection.held_by_another);
        }
        let spent = (1, self.manager.clock.now().since(inspection.report.started));
        let rounds = [inspection.report];
        Err(self.manager.error(ErrorKind::QuorumUnreachable, &claim.resources, &rounds, spent))
    }

    /// Every node's address (without a password) and state, in the order given.
    pub fn nodes(&self) -> Vec<(Arc<str>, NodeState)> {
        let states = self.manager.nodes.iter().map(|node| node.state());
        self.manager.addresses.iter().cloned().zip(states).collect()
    }

    /// While `is_left_out`, makes no keys on the node with this number, in the order given: it has no vote on new locks, as
    /// one that cannot be reached. Leases that have keys there go on: they are extended and released. For programs that learn later
    /// how a server is used by others, such as in which database. A number that no server has is ignored. Say
    /// [`Builder::may_leave_out`](crate::Builder::may_leave_out) when the manager is made.
    pub fn leave_out(&self, node: usize, is_left_out: bool) {
        if let Some(server) = self.manager.nodes.get(node).and_then(|node| node.server()) {
            server.leave_out(is_left_out);
        }
    }

    /// The settings from which locks start.
    pub fn policy(&self) -> Policy {
        self.manager.policy
    }

    /// The engine whose thread does the work.
    pub fn engine(&self) -> &Engine {
        &self.manager.engine
    }
}

impl fmt::Debug for Redlock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Redlock").field("nodes", &self.manager.addresses).finish()
    }
}

impl Manager {
    pub(crate) fn new(
        nodes: Arc<[Arc<dyn Node>]>,
        guards: GuardsHandle,
        policy: Policy,
        settings: NodeSettings,
        engine: Engine,
        caller_queues: Arc<CallerQueues>,
    ) -> Self {
        let clock = guards.clock().clone();
        let told_no_push = nodes.iter().map(|_| AtomicBool::new(false)).collect();
        let telemetry = Arc::clone(guards.telemetry());
        Self {
            quorum: Quorum::of(nodes.len()),
            addresses: nodes.iter().map(|node| Arc::from(node.address())).collect(),
            renewals: RenewalScheduler::new(&nodes, &clock, &telemetry),
            telemetry,
            owner: None,
            clock,
            nodes,
            guards,
            engine,
            policy,
            latest: Mutex::new(Arc::new(policy)),
            settings,
            number: caller_queues.number(),
            caller_queues,
            known: AtomicU64::new(0),
            settled: AtomicBool::new(false),
            proven: AtomicBool::new(false),
            mistaken: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            reopened: Mutex::default(),
            under_way: Arc::default(),
            told_no_push,
        }
    }

    /// Waits, before the first operation, until a quorum is connected or every node has been tried.
    ///
    /// If nodes are found not to be independent before a quorum has ever granted anything, the list
    /// is refused for as long as that is so. Later it is treated as a fault of the one node:
    /// servers change roles.
    pub(crate) async fn settle(&self, timeout: Option<Duration>) -> Result<(), LockError> {
        if !self.is_settled() {
            let patience = self.connect_patience().min(timeout.unwrap_or(Duration::MAX));
            let _ = tokio::time::timeout(patience, self.connect(&self.nodes)).await;
            self.settled.store(true, Ordering::Release);
        }
        self.mistake().map_or(Ok(()), |mistake| Err(mistake.into()))
    }

    /// Whether the nodes were waited for once.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// What is wrong with the list of nodes, if it has never been right.
    pub(crate) fn mistake(&self) -> Option<ConfigError> {
        if self.proven.load(Ordering::Acquire) && !self.mistaken.load(Ordering::Acquire) {
            return None;
        }
        let mistake = self.guards.mistake()?;
        self.mistaken.store(true, Ordering::Release);
        Some(mistake)
    }

    /// A node without a connection counts as down after this time, and then operations can continue without it.
    fn connect_patience(&self) -> Duration {
        self.settings.connect_timeout.saturating_mul(5) / 4
    }

    /// Waits for `nodes` as before the first operation, if they were made for a release.
    pub(crate) async fn settle_reopened(&self, nodes: &Arc<[Arc<dyn Node>]>) {
        if !Arc::ptr_eq(nodes, &self.nodes) {
            let _ = tokio::time::timeout(self.connect_patience(), self.connect(nodes)).await;
        }
    }

    async fn connect(&self, nodes: &[Arc<dyn Node>]) {
        let mut pending: FuturesUnordered<_> =
            nodes.iter().map(|node| async { node.settled().await }).collect();
        let count =
            |is: fn(&NodeState) -> bool| nodes.iter().filter(|node| is(&node.state())).count();
        while pending.next().await.is_some() {
            let is_up = count(|it| *it == NodeState::Healthy) >= self.quorum.size();
            // Without those that are down or refuse there is none, whatever the others say.
            let is_out = |it: &NodeState| matches!(it, NodeState::Down(_) | NodeState::Refusing(_));
            if is_up || self.quorum.is_blocked_by(count(is_out)) {
                break;
            }
        }
        // The remaining nodes tell who they are, if they can be reached.
        let rest = async { while pending.next().await.is_some() {} };
        let _ = tokio::time::timeout(REST, rest).await;
    }

    pub(crate) fn note_quorum(&self) {
        if !self.proven.load(Ordering::Relaxed) {
            self.proven.store(true, Ordering::Release);
        }
    }

    /// The policy for a lease to keep: leases that follow one another usually have the same.
    pub(crate) fn share(&self, policy: Policy) -> Arc<Policy> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if **latest != policy {
            *latest = Arc::new(policy);
        }
        Arc::clone(&latest)
    }

    /// Tells the guards that a lock is about to be asked for. If other clients must know of it, the
    /// nodes are told first, and stay informed until the returned note is dropped.
    pub(crate) fn announce(&self, policy: &Policy) -> Option<Box<LongLockNote>> {
        self.guards.handle_policy(policy);
        let (note, wants_look) = self.guards.begin_long_lock(policy)?;
        if wants_look {
            for server in self.nodes.iter().filter_map(|node| node.server()) {
                server.probe();
            }
        }
        // In a box: few locks have one.
        Some(Box::new(note))
    }

    pub(crate) async fn inspect(&self, mut machine: Inspect) -> Inspection {
        self.driver().run(&mut machine, |_| {}).await
    }

    /// A driver for one operation.
    pub(crate) fn driver(&self) -> Driver {
        self.driver_over(&self.nodes)
    }

    /// A driver for one operation over these nodes.
    pub(crate) fn driver_over(&self, nodes: &Arc<[Arc<dyn Node>]>) -> Driver {
        Driver::new(nodes, &self.clock, &self.telemetry)
    }

    /// Continues to take keys back after the caller has left, with the inbox that receives the
    /// replies. The returned future ends when every node was asked for the keys of the last try,
    /// and has answered or failed.
    pub(crate) fn withdraw_rest(
        &self,
        driver: &Driver,
        mut left: Vec<Withdraw>,
    ) -> oneshot::Receiver<()> {
        let (tell, told) = oneshot::channel();
        // One inbox serves one machine; the others ask again with inboxes of their own.
        if let Some(mut last) = left.pop() {
            let driver = driver.clone();
            let mut tell = Some(tell);
            self.background(async move {
                let watch = |machine: &mut Withdraw| {
                    if let Some(tell) = tell.take_if(|_| machine.has_asked_all()) {
                        let _ = tell.send(());
                    }
                };
                driver.run(&mut last, watch).await;
            });
        }
        self.withdraw_afresh(left);
        told
    }

    /// Takes keys back with a new inbox, and asks nodes again that have not answered yet.
    pub(crate) fn withdraw_afresh(&self, left: Vec<Withdraw>) {
        for mut withdraw in left {
            let driver = self.driver();
            withdraw.restart();
            self.background(async move { driver.run(&mut withdraw, |_| {}).await });
        }
    }

    pub(crate) fn error(
        &self,
        kind: ErrorKind,
        resources: &Resources,
        rounds: &[RoundReport],
        spent: (u32, Duration),
    ) -> LockError {
        LockError::of_rounds(kind, resources, &self.addresses, rounds, spent)
    }

    pub(crate) fn name_votes(&self, round: &RoundReport) -> Vec<NodeReport> {
        name_votes(&round.votes, &self.addresses)
    }

    pub(crate) fn fresh_holder() -> HolderId {
        use quorlock_protocol::Environment as _;
        HolderId::fresh(System.random())
    }
}

/// How long the first operation waits for the nodes beyond a quorum.
const REST: Duration = Duration::from_millis(100);
