//! A simulated cluster for the guards: nodes that restart, forget and set their clocks, and clients that
//! look at them and take locks as the shipping client does. Knows none of the rules.

mod watcher;

use std::time::Duration;

use quorlock_protocol::{GuardStore, Guards, NodeId, Notice, Policy, PolicyBuilder, Quorum};

pub(crate) use self::watcher::Watcher;

/// All nodes, at one true time.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// True time in milliseconds.
    pub(crate) now: u64,
    pub(crate) nodes: Vec<PretendNode>,
    clients: u16,
}

/// What a server knows, as far as the guards see it.
#[derive(Clone, Debug)]
pub(crate) struct PretendNode {
    /// Counts its starts.
    pub(crate) run: u32,
    /// Counts how often it took its keys from elsewhere in one run.
    pub(crate) lineage: u32,
    pub(crate) store: GuardStore,
    /// The key of the only lock that there is.
    pub(crate) key: Option<Key>,
    /// How far its clock is ahead of the true one, in milliseconds.
    pub(crate) ahead: i64,
    /// How much faster than true time its clock runs, in parts per million.
    pub(crate) rate: i64,
    pub(crate) durable: bool,
    pub(crate) is_up: bool,
    /// It is connected, but answers nothing.
    pub(crate) hangs: bool,
    /// How much longer its answers take than those of others, in milliseconds.
    pub(crate) slow: u64,
}

/// A lock key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) owner: u16,
    /// When it goes, by the node's clock in microseconds.
    pub(crate) until: u64,
}

impl PretendNode {
    /// Everything is gone.
    pub(crate) fn flush(&mut self) {
        (self.store, self.key) = (GuardStore::default(), None);
    }

    /// What was there comes back.
    pub(crate) fn take_back(&mut self, old: &Self) {
        (self.store, self.key) = (old.store.clone(), old.key);
    }
}

impl Cluster {
    /// `count` nodes that nobody has ever used.
    pub(crate) fn fresh(count: usize) -> Self {
        let node = PretendNode {
            run: 0,
            lineage: 0,
            store: GuardStore::default(),
            key: None,
            ahead: 0,
            rate: 0,
            durable: false,
            is_up: true,
            hangs: false,
            slow: 0,
        };
        Self { now: 1_000_000, nodes: vec![node; count], clients: 0 }
    }

    /// A client whose locks have a ttl of ten seconds, and that has not looked yet.
    pub(crate) fn client(
        &mut self,
        change: impl FnOnce(PolicyBuilder) -> PolicyBuilder,
    ) -> Watcher {
        self.clients += 1;
        let policy = policy(change);
        let count = self.nodes.len();
        let mut guards = Guards::new(&policy, Quorum::of(count));
        guards.handle_policy(&policy);
        Watcher {
            guards,
            rulings: vec![None; count],
            told: Vec::new(),
            cut_off: vec![false; count],
            still: 0,
            latency: 0,
            wall_ahead: 0,
            may_ask: true,
            lost: Duration::ZERO,
            id: self.clients,
            drawn: 0,
        }
    }

    /// A client that has looked at every node.
    pub(crate) fn settled(
        &mut self,
        change: impl FnOnce(PolicyBuilder) -> PolicyBuilder,
    ) -> Watcher {
        let mut client = self.client(change);
        client.look_around(self);
        client
    }

    /// The same for one whose answers take a millisecond, where it matters what was asked before what was heard.
    pub(crate) fn settled_afar(
        &mut self,
        change: impl FnOnce(PolicyBuilder) -> PolicyBuilder,
    ) -> Watcher {
        let mut client = Watcher { latency: 1, ..self.client(change) };
        client.look_around(self);
        client
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        self.now += millis;
    }

    /// The server is started anew, with nothing.
    pub(crate) fn restart(&mut self, node: usize) {
        self.nodes[node].flush();
        self.nodes[node].run += 1;
    }

    pub(crate) fn restart_each<const N: usize>(&mut self, nodes: [usize; N]) {
        for node in nodes {
            self.restart(node);
        }
    }

    /// The node's clock in microseconds.
    pub(crate) fn micros(&self, node: usize) -> u64 {
        let node = &self.nodes[node];
        let gained = node.rate * i64::try_from(self.now).expect("a short test") / 1000;
        (self.now * 1000).saturating_add_signed(node.ahead * 1000 + gained)
    }
}

pub(crate) fn node_id(node: usize) -> NodeId {
    NodeId(u8::try_from(node).expect("few nodes"))
}

/// A policy with ttl 10 s, of which 102 ms are drift.
pub(crate) fn policy(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Policy {
    change(Policy::builder()).build().expect("a valid policy")
}

pub(crate) fn ttl(millis: u64) -> impl Fn(PolicyBuilder) -> PolicyBuilder + Copy {
    move |it| it.ttl(Duration::from_millis(millis))
}

/// A cluster that was just set up, and the client that did so.
pub(crate) fn used(count: usize) -> (Cluster, Watcher) {
    let mut cluster = Cluster::fresh(count);
    let client = cluster.settled(|it| it);
    (cluster, client)
}

/// The same ten seconds later, when nobody takes it for one that is being set up.
pub(crate) fn settled_in(count: usize) -> (Cluster, Watcher) {
    let (mut cluster, mut client) = used(count);
    for _ in 0..2 {
        cluster.pass(5_000);
        client.look_around(&mut cluster);
    }
    (cluster, client)
}

/// The reasons of the quarantines that the client has told of.
pub(crate) fn reasons(client: &Watcher) -> Vec<&'static str> {
    let reason = |notice: &Notice| match notice {
        Notice::Quarantined(_, reason, _) => Some(reason.name()),
        _ => None,
    };
    client.told.iter().filter_map(reason).collect()
}

/// Lets clients come one after another, each for `life` ms, until one of them relies on every node.
pub(crate) fn one_after_another(cluster: &mut Cluster, life: u64) {
    let began = cluster.now;
    let mut last = cluster.settled(|it| it);
    while last.view() != "ooo" {
        assert!(cluster.now < began + TERM + 3_000, "lives of {life} ms: {}", last.view());
        cluster.pass(life + 1);
        last.look_around(cluster);
        cluster.pass(1);
        last = cluster.settled(|it| it);
    }
}

/// A quarantine for locks of ten seconds, with the drift allowance of it.
pub(crate) const TERM: u64 = 10_102;

/// How long a lock of this many milliseconds is waited for: with its drift allowance.
pub(crate) const fn term(keep: u64) -> u64 {
    keep + keep / 100 + 2
}
