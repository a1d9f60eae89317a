//! A pretend cluster for the guards: nodes that restart, forget and set their clocks, and clients that
//! look at them as the shipping client does. Knows none of the rules.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    CanaryKey, Checkup, ClockReading, Guards, HolderId, Moment, NodeId, Notes, Notice, Policy,
    PolicyBuilder, Quorum, Ruling, Surroundings,
};

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
    pub(crate) run: u32,
    pub(crate) canary: Option<Arc<str>>,
    pub(crate) notes: Notes,
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

/// One client, as far as the guards are concerned.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    pub(crate) guards: Guards,
    pub(crate) rulings: Vec<Option<Ruling>>,
    pub(crate) told: Vec<Notice>,
    /// How long its machine has stood still, in milliseconds.
    pub(crate) still: u64,
    /// How long an answer takes to come back, in milliseconds.
    pub(crate) latency: u64,
    pub(crate) wall_ahead: i64,
    id: u16,
    drawn: u32,
    /// What it was found to have lost.
    pub(crate) lost: Duration,
}

struct Env {
    now: Moment,
    wall: u64,
    id: u16,
    drawn: u32,
}

impl Surroundings for Env {
    fn now(&self) -> Moment {
        self.now
    }

    fn wall_micros(&self) -> u64 {
        self.wall
    }

    fn random(&mut self) -> [u8; HolderId::RANDOM_BYTES] {
        self.drawn += 1;
        let mut bytes = [0; HolderId::RANDOM_BYTES];
        bytes[..2].copy_from_slice(&self.id.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.drawn.to_be_bytes());
        bytes
    }
}

impl Cluster {
    /// `count` nodes that nobody has ever used.
    pub(crate) fn fresh(count: usize) -> Self {
        let node = PretendNode {
            run: 0,
            canary: None,
            notes: Notes::default(),
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
            still: 0,
            latency: 0,
            wall_ahead: 0,
            id: self.clients,
            drawn: 0,
            lost: Duration::ZERO,
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

    pub(crate) fn pass(&mut self, millis: u64) {
        self.now += millis;
    }

    /// The server is started anew, with nothing.
    pub(crate) fn restart(&mut self, node: usize) {
        self.flush(node);
        self.nodes[node].run += 1;
    }

    pub(crate) fn flush(&mut self, node: usize) {
        (self.nodes[node].canary, self.nodes[node].notes) = (None, Notes::default());
    }

    pub(crate) fn micros(&self, node: usize) -> u64 {
        let node = &self.nodes[node];
        let gained = node.rate * i64::try_from(self.now).expect("a short test") / 1000;
        (self.now * 1000).saturating_add_signed(node.ahead * 1000 + gained)
    }

    /// What `checkup.lua` does.
    fn check_up(
        &mut self,
        node: usize,
        notes: Notes,
        writing: Option<(Option<Arc<str>>, Arc<str>)>,
    ) -> (Option<Arc<str>>, Notes, u64) {
        let micros = self.micros(node);
        let site = &mut self.nodes[node];
        if let Some((expected, canary)) = writing
            && site.canary == expected
        {
            site.canary = Some(canary);
        }
        site.notes.longest = site.notes.longest.max(notes.longest);
        site.notes.skew = notes.skew.or(site.notes.skew);
        (site.canary.clone(), site.notes, micros)
    }
}

impl Watcher {
    fn env(&self, cluster: &Cluster) -> Env {
        let since_boot = Duration::from_millis(cluster.now - self.still);
        let wall = (cluster.now * 1000).saturating_add_signed(self.wall_ahead * 1000);
        let now = Moment::from_epoch(since_boot);
        Env { now, wall, id: self.id, drawn: self.drawn }
    }

    pub(crate) fn now(&self, cluster: &Cluster) -> Moment {
        self.env(cluster).now
    }

    /// Looks at a node, as often as there is something to write.
    pub(crate) fn look(&mut self, cluster: &mut Cluster, node: usize) -> Ruling {
        let id = NodeId(u8::try_from(node).expect("few nodes"));
        if !cluster.nodes[node].is_up {
            self.guards.handle_down(id);
            let ruling = Ruling::Undecided(Moment::FAR_FUTURE);
            self.rulings[node] = None;
            return ruling;
        }
        if cluster.nodes[node].hangs {
            return Ruling::Undecided(Moment::FAR_FUTURE);
        }
        let mut writing = None;
        for _ in 0..8 {
            let sent = self.now(cluster);
            let notes = self.guards.notes_for(id, sent);
            let (canary, notes, micros) = cluster.check_up(node, notes, writing.take());
            cluster.now += self.latency + cluster.nodes[node].slow;
            let mut env = self.env(cluster);
            let checkup = Checkup {
                run: cluster.nodes[node].run.to_string().into(),
                durable: cluster.nodes[node].durable,
                canary: CanaryKey::read(canary.as_deref()),
                clock: ClockReading { sent, received: env.now, micros },
                notes,
            };
            let ruling = self.guards.handle_checkup(&mut env, id, &checkup);
            self.drawn = env.drawn;
            self.take();
            match ruling {
                Ruling::Write { expected, canary } => writing = Some((expected, canary)),
                ruling => {
                    self.rulings[node] = Some(ruling.clone());
                    return ruling;
                }
            }
        }
        panic!("node {node} is written to again and again");
    }

    /// Looks at every node, and again where that may have become clear by it.
    pub(crate) fn look_around(&mut self, cluster: &mut Cluster) {
        for node in 0..cluster.nodes.len() {
            self.look(cluster, node);
        }
        self.follow_up(cluster);
    }

    /// Looks again wherever the guards want that now.
    pub(crate) fn follow_up(&mut self, cluster: &mut Cluster) {
        for _ in 0..8 {
            if !self.guards.take_news() {
                return;
            }
            for node in 0..cluster.nodes.len() {
                let id = NodeId(u8::try_from(node).expect("few nodes"));
                let undecided = matches!(self.rulings[node], Some(Ruling::Undecided(_)));
                if undecided || self.guards.wants_look(id) {
                    self.look(cluster, node);
                }
            }
        }
    }

    /// Asks for a key; whether the node's grant counts. A node that has forgotten, or whose clock is
    /// not where it should be, is looked at.
    pub(crate) fn grant(&mut self, cluster: &mut Cluster, node: usize) -> bool {
        let Some(Ruling::Trusted(canary)) = self.rulings[node].clone() else {
            return false;
        };
        let remembers = canary.is_empty() || cluster.nodes[node].canary == Some(canary);
        let sent = self.now(cluster);
        let micros = cluster.micros(node);
        cluster.now += self.latency + cluster.nodes[node].slow;
        let reading = ClockReading { sent, received: self.now(cluster), micros };
        let id = NodeId(u8::try_from(node).expect("few nodes"));
        let counts = self.guards.handle_clock(id, reading) && remembers;
        self.take();
        if !counts {
            self.look(cluster, node);
            self.follow_up(cluster);
        }
        counts
    }

    pub(crate) fn take(&mut self) {
        self.told.extend(self.guards.take_notices());
        self.lost += self.guards.take_lost_time();
    }

    /// The nodes whose grants count, with `x` for those whose grants do not.
    pub(crate) fn view(&self) -> String {
        let letter = |ruling: &Option<Ruling>| match ruling {
            Some(Ruling::Trusted(_)) => 'o',
            Some(Ruling::Quarantined(_)) => 'q',
            Some(Ruling::Undecided(_)) => '?',
            Some(Ruling::Write { .. }) | None => '-',
        };
        self.rulings.iter().map(letter).collect()
    }

    /// How long the node's grants are held back still, in milliseconds.
    pub(crate) fn left(&self, cluster: &Cluster, node: usize) -> u128 {
        match &self.rulings[node] {
            Some(Ruling::Quarantined(it)) => it.until.since(self.now(cluster)).as_millis(),
            other => panic!("node {node} is {other:?}"),
        }
    }
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

/// The reasons of the quarantines that the client has told of.
pub(crate) fn reasons(client: &Watcher) -> Vec<&'static str> {
    let reason = |notice: &Notice| match notice {
        Notice::Quarantined(_, reason) => Some(reason.name()),
        _ => None,
    };
    client.told.iter().filter_map(reason).collect()
}

/// Clients that live for `life` ms come one after another until one counts every node, which is in a term
/// and the life of one.
pub(crate) fn one_after_another(cluster: &mut Cluster, life: u64) {
    let began = cluster.now;
    let mut last = cluster.settled(|it| it);
    while last.view() != "ooo" {
        assert!(cluster.now < began + TERM + 2_001, "lives of {life} ms: {}", last.view());
        cluster.pass(life + 1);
        last.look_around(cluster);
        cluster.pass(1);
        last = cluster.settled(|it| it);
    }
}

/// A quarantine for a ttl of ten seconds, with the drift allowance of it.
pub(crate) const TERM: u64 = 10_102;
