//! The size of a world, and the faults that may happen in it. Owns the settings of one search or
//! one random walk.

use std::time::Duration;

use quorlock_protocol::{Guards, Policy, PolicyBuilder, Resources, RestartGuard, WaitMode};

use crate::clock::Rate;
use crate::print::fingerprint;
use crate::property::Property;
use crate::site::Flaw;

/// How often each event may happen. The rest of it is part of the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    /// Faults of any kind together.
    pub(crate) faults: u16,
    /// Times that time passes although a message could arrive.
    pub(crate) delays: u16,
    /// Broken connections that are replaced at once.
    pub(crate) resends: u16,
    /// Broken connections whose commands are not sent again.
    pub(crate) breaks: u16,
    /// Broken connections that are replaced at once, and whose commands still arrive.
    pub(crate) strays: u16,
    /// Restarts of nodes that keep their keys.
    pub(crate) restarts: u16,
    /// Restarts of nodes that forget.
    pub(crate) forgets: u16,
    /// Restarts of nodes from a snapshot that is older than any lock.
    pub(crate) rollbacks: u16,
    /// Nodes whose keys are all deleted.
    pub(crate) flushes: u16,
    /// Nodes that fail over to a replica and back.
    pub(crate) failbacks: u16,
    /// Machines of nodes that are put back to a snapshot.
    pub(crate) snapshots: u16,
    /// Memories that come back to a node after it has begun a new one.
    pub(crate) returns: u16,
    /// Nodes going down.
    pub(crate) downs: u16,
    /// Nodes hanging.
    pub(crate) hangs: u16,
    /// Clocks of nodes jumping.
    pub(crate) clock_steps: u16,
    /// Clients stopping.
    pub(crate) pauses: u16,
    /// Machines of clients standing still, their clocks with them.
    pub(crate) freezes: u16,
    /// Clients dying.
    pub(crate) crashes: u16,
    /// Wall clocks of clients jumping back.
    pub(crate) wall_steps: u16,
    /// Tables of fences that are deleted alone.
    pub(crate) fence_losses: u16,
    /// Leases whose token is asked for again by a client that takes them over.
    pub(crate) take_overs: u16,
    /// Leases that another who has their token extends.
    pub(crate) extends_elsewhere: u16,
    /// Checks of a lease by its holder.
    pub(crate) checks: u16,
    /// Users cancelling.
    pub(crate) cancels: u16,
    /// Users forgetting a lease.
    pub(crate) abandons: u16,
    /// Explicit extensions.
    pub(crate) extends: u16,
    /// Explicit extensions by the shorter ttl.
    pub(crate) shortens: u16,
    /// Wake connections that are lost.
    pub(crate) wake_cuts: u16,
    /// News that is lost.
    pub(crate) lost_news: u16,
    /// Queues of nodes that are deleted.
    pub(crate) queue_losses: u16,
    /// How often something else happens than what comes next by the order of the steps, where a scope has one.
    pub(crate) deviations: u16,
}

/// What the lock protects, if the scope has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nobody writes.
    #[default]
    None,
    /// It takes every write.
    Trusting,
    /// It refuses a write with a lower token than it has seen.
    Checking,
}

/// One world and its limits.
#[allow(clippy::struct_excessive_bools)] // independent switches, each named where it is set
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub(crate) name: &'static str,
    pub(crate) nodes: usize,
    pub(crate) clients: usize,
    /// What each client asks for, by resource; the last serves all further clients.
    pub(crate) wants: Vec<Vec<u8>>,
    pub(crate) policy: Policy,
    /// The policy of every client but the first, if it differs.
    pub(crate) others: Option<Policy>,
    /// How many clients, the last ones, have never looked at the nodes when the world begins.
    pub(crate) newcomers: usize,
    /// How many clients, the first ones, are managers of one process: their machine stands still for all of them.
    pub(crate) together: u8,
    /// The only client whose machine may stand still, if not any may.
    pub(crate) stands_still: Option<u8>,
    /// Whether a minority of nodes at the most forgets or has its clock set at any time, and every client
    /// looks at its nodes once a second (ten in the shipping client, whose locks last for ten).
    pub(crate) spares_majority: bool,
    /// Which clients, the first of each pair, never reach which nodes.
    pub(crate) cuts: Vec<(u8, u8)>,
    /// Whether nodes write every change to disk before they answer, so that a restart loses
    /// nothing.
    pub(crate) durable: bool,
    /// Whether users may ask servers who they are.
    pub(crate) may_ask: bool,
    /// By how many milliseconds one answer in four to a look comes late.
    pub(crate) late: u64,
    /// Whether users give leases back; otherwise these run out.
    pub(crate) releases: bool,
    /// How many nodes, the last ones, are down when the world begins, so that a lock stands on fewer.
    pub(crate) down: usize,
    /// Whether these come back together, which makes a larger cluster small enough to be searched.
    pub(crate) returns_at_once: bool,
    /// Whether no node has ever been used.
    pub(crate) is_fresh: bool,
    /// How many milliseconds nobody had looked at the nodes when the world begins.
    pub(crate) idle: u64,
    /// For [`Deed::Shorten`](crate::step::Deed::Shorten).
    pub(crate) shorter: Policy,
    /// For extensions by another who has the token.
    pub(crate) elsewhere: Policy,
    /// How many acquisitions each client begins.
    pub(crate) locks: u16,
    pub(crate) budget: Budget,
    /// After how many states its search ends, if it is too large to be finished; always the same
    /// states.
    pub(crate) bound: Option<usize>,
    /// A reply arrives in the step that makes it, unless a delay is spent on it.
    pub(crate) prompt: bool,
    /// Replies may be taken several at once.
    pub(crate) batches: bool,
    /// Of schedules that differ only by the numbers of nodes, one is searched.
    pub(crate) symmetric: bool,
    pub(crate) node_rate: Rate,
    /// The same for single nodes whose clocks run faster than the drift allowance, the first ones.
    pub(crate) wrong_rates: Vec<Rate>,
    pub(crate) client_rate: Rate,
    /// The wall clocks of the clients in microseconds at time zero; the last serves all further ones.
    pub(crate) walls: Vec<u64>,
    /// Whether wall clocks run; a clock that stands still keeps a search small.
    pub(crate) walls_run: bool,
    /// Zero for the middle of every random delay; anything else for delays drawn by it.
    pub(crate) seed: u64,
    /// Whether others may come in between the commands of a first grant.
    pub(crate) in_parts: bool,
    /// Whether nodes forget tokens when their retention has passed.
    pub(crate) fences_end: bool,
    /// Whether all resources are of one bucket of fences.
    pub(crate) shares_bucket: bool,
    /// By how many milliseconds the wall clock of each node is ahead; zero for nodes that are not
    /// listed.
    pub(crate) nodes_ahead: Vec<u64>,
    /// Whether clients know the clocks of the nodes, each a few milliseconds worse than the one before.
    pub(crate) knows_clocks: bool,
    pub(crate) target: Target,
    /// Whether steps have an order, which is left only as often as the budget has deviations.
    pub(crate) is_ordered: bool,
    /// A holder that knows nothing of queues has the keys when the world begins, for this number of milliseconds.
    pub(crate) foreign: Option<u64>,
    /// Whether clients take a place before they ask for keys, as where others have just waited.
    pub(crate) queues_first: bool,
    /// Whether these are deleted, and do not only run out.
    pub(crate) is_deleted: bool,
    /// Whether the messages of a hand-off are counted.
    pub(crate) counts_messages: bool,
    pub(crate) flaw: Flaw,
    /// The property that this world breaks: a limit of the algorithm that the search must show.
    pub(crate) limit: Option<Property>,
}

impl Scope {
    /// Two clients, one lock each, no faults: the scope from which others are made.
    pub(crate) fn base(name: &'static str, nodes: usize) -> Self {
        Self {
            name,
            nodes,
            clients: 2,
            wants: vec![vec![0]],
            policy: policy(PolicyBuilder::try_once),
            others: None,
            newcomers: 0,
            together: 1,
            stands_still: None,
            spares_majority: false,
            cuts: Vec::new(),
            durable: false,
            may_ask: true,
            late: 0,
            down: 0,
            returns_at_once: false,
            releases: true,
            is_fresh: false,
            idle: 0,
            shorter: policy(|it| it.ttl(Duration::from_millis(300)).try_once()),
            elsewhere: policy(|it| it.ttl(Duration::from_millis(300)).try_once()),
            locks: 1,
            budget: Budget::default(),
            bound: None,
            prompt: false,
            batches: false,
            symmetric: true,
            node_rate: Rate(0),
            wrong_rates: Vec::new(),
            client_rate: Rate(0),
            walls: vec![100, 50, 20],
            walls_run: false,
            seed: 0,
            in_parts: false,
            fences_end: false,
            shares_bucket: false,
            nodes_ahead: Vec::new(),
            knows_clocks: false,
            target: Target::None,
            is_ordered: false,
            foreign: None,
            queues_first: false,
            is_deleted: false,
            counts_messages: false,
            flaw: Flaw::None,
            limit: None,
        }
    }

    /// How many acquisitions `client` begins: a newcomer only one.
    pub(crate) fn locks_of(&self, client: u8) -> u16 {
        let is_new = usize::from(client) + self.newcomers >= self.clients;
        if is_new { self.locks.min(1) } else { self.locks }
    }

    /// The settings of `client`.
    pub(crate) fn policy_of(&self, client: u8) -> Policy {
        self.others.filter(|_| client > 0).unwrap_or(self.policy)
    }

    /// For how long a node that forgot may be held back, in milliseconds: for the longest lock, and for what every
    /// client waits for; with what clocks may run apart, and until the next look. When a memory began is known no
    /// better than the wall clocks of its clients agree.
    pub(crate) fn longest_wait(&self) -> u64 {
        let floor = self.policy.max_ttl().map_or(Guards::FLOOR, |limit| limit.as_duration());
        let keeps =
            [self.policy, self.policy_of(1)].map(|policy| class_of(policy.longest_key_ttl()));
        let longest = keeps.into_iter().fold(floor, Duration::max);
        let wait = u64::try_from(longest.as_millis() * 102 / 100).unwrap_or(u64::MAX);
        let walls = || self.walls.iter().copied();
        let apart = walls().max().unwrap_or(0) - walls().min().unwrap_or(0);
        wait.saturating_add(1000 + apart / 1000)
    }

    /// Whether the guards are on.
    pub(crate) fn is_guarded(&self) -> bool {
        self.policy.restart_guard() != RestartGuard::Off || self.policy.clock_guard()
    }

    /// Whether the search looks for violations of `property`: where a limit is to be shown, only of
    /// that.
    pub(crate) fn minds(&self, property: Property) -> bool {
        self.limit.is_none_or(|limit| limit == property)
    }

    /// The resources that `client` asks for.
    pub(crate) fn wants_of(&self, client: u8) -> &[u8] {
        self.wants.get(usize::from(client)).or(self.wants.last()).map_or(&[], Vec::as_slice)
    }

    /// The same as the machines name them.
    pub(crate) fn resources_of(&self, client: u8) -> Resources {
        let names = self.wants_of(client).iter().map(|resource| format!("r{resource}"));
        Resources::new(names).expect("every client of a scope asks for distinct resources")
    }

    /// Whether clients wait in the nodes' queues.
    pub(crate) fn has_queues(&self) -> bool {
        self.policy.wait() == WaitMode::Push || self.policy_of(1).wait() == WaitMode::Push
    }

    /// How many resources there are.
    pub(crate) fn resources(&self) -> usize {
        self.wants.iter().flatten().max().map_or(1, |last| usize::from(*last) + 1)
    }

    /// The wall clock of `client` at true time `now`, before any step of it.
    pub(crate) fn wall(&self, client: u8, now: u64) -> u64 {
        let start = self.walls.get(usize::from(client)).or(self.walls.last()).copied();
        start.unwrap_or(0) + if self.walls_run { now * 1000 } else { 0 }
    }

    /// How fast the clock of `node` runs.
    pub(crate) fn rate_of(&self, node: usize) -> Rate {
        self.wrong_rates.get(node).copied().unwrap_or(self.node_rate)
    }

    /// Whether that is more than the drift allowance.
    pub(crate) fn is_wrong(&self, node: usize) -> bool {
        self.rate_of(node) != self.node_rate
    }

    /// What makes `node` different from others from the beginning.
    pub(crate) fn mark_of(&self, node: usize) -> u64 {
        let cuts: Vec<_> = self.cuts.iter().filter(|(_, it)| usize::from(*it) == node).collect();
        let is_marked = !cuts.is_empty() || self.is_wrong(node);
        if is_marked { fingerprint(&(cuts, self.rate_of(node).0)) } else { 0 }
    }

    /// The managers of the process that `client` is one of, itself included.
    pub(crate) fn process_of(&self, client: u8) -> std::ops::Range<u8> {
        if client < self.together { 0..self.together } else { client..client + 1 }
    }

    /// The wall clock of `node` at true time `now`.
    pub(crate) fn node_wall(&self, node: usize, now: u64) -> u64 {
        let ahead = self.nodes_ahead.get(node).copied().unwrap_or(0);
        self.walls.last().copied().unwrap_or(0).min(NODE_WALL)
            + if self.walls_run { now * 1000 } else { 0 }
            + ahead * 1000
    }

    /// The middle one of them, as `client` knows it, if it does.
    pub(crate) fn nodes_wall(&self, client: u8, now: u64) -> Option<u64> {
        let mut walls: Vec<_> = (0..self.nodes).map(|node| self.node_wall(node, now)).collect();
        walls.sort_unstable();
        let error = u64::from(client) * 3000;
        self.knows_clocks.then(|| walls[(self.nodes - 1) / 2].saturating_sub(error))
    }

    /// Whether who has the token of a lease may rely on it whatever becomes of the one that acquired it: that one asked
    /// for its keys once, and no longer than it trusts them; or the other asks for longer.
    pub(crate) fn spares_second_user(&self) -> bool {
        let (policy, budget) = (&self.policy, &self.budget);
        let asks_once = budget.extends == 0 && self.elsewhere.ttl() > policy.key_ttl();
        let is_renewed = policy.auto_extend() || budget.shortens > 0 || self.is_guarded();
        !is_renewed && (policy.lock_delay().is_zero() || asks_once)
    }

    /// How many nodes make a quorum.
    pub(crate) const fn quorum(&self) -> usize {
        self.nodes / 2 + 1
    }
}

/// Up to a minute, locks share entries with those that are a little longer.
fn class_of(keep: Duration) -> Duration {
    let classes = [15, 20, 30, 45, 60].map(Duration::from_secs);
    let short = keep <= Guards::FLOOR;
    classes.into_iter().find(|class| keep <= *class && !short).unwrap_or(keep)
}

/// A policy with ttl 1000 ms (12 ms of it drift), node timeout 50 ms, retries after 100 ms.
pub(crate) fn policy(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Policy {
    let base = Policy::builder()
        .ttl(Duration::from_secs(1))
        .node_timeout(Duration::from_millis(50))
        .retry_delay(Duration::from_millis(100))
        .retry_jitter(Duration::ZERO)
        .wait(WaitMode::Poll)
        .restart_guard(RestartGuard::Off)
        .clock_guard(false);
    change(base).build().expect("the settings of a scope are valid")
}

/// What the wall clocks of nodes show at the beginning where those of clients are later, in microseconds.
const NODE_WALL: u64 = 1_000_000;
