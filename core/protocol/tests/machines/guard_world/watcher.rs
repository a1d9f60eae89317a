//! A client that looks at the nodes and takes locks as the shipping client does.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    Checkup, ClockReading, Drift, Environment, Guards, HolderId, Moment, Notice, Pass, Ruling, Ttl,
    Writing,
};

use super::{Cluster, Key, node_id};

/// One client, as far as the guards are concerned.
#[derive(Clone, Debug)]
pub(crate) struct Watcher {
    pub(crate) guards: Guards,
    pub(crate) rulings: Vec<Option<Ruling>>,
    pub(crate) told: Vec<Notice>,
    /// Nodes that it cannot reach.
    pub(crate) cut_off: Vec<bool>,
    /// How long its machine has stood still, in milliseconds.
    pub(crate) still: u64,
    /// How long an answer takes to come back, in milliseconds.
    pub(crate) latency: u64,
    pub(crate) wall_ahead: i64,
    /// Whether its user may ask servers who they are.
    pub(crate) may_ask: bool,
    /// What its leases have lost.
    pub(crate) lost: Duration,
    pub(crate) id: u16,
    pub(super) drawn: u32,
}

struct Env {
    now: Moment,
    wall: u64,
    id: u16,
    drawn: u32,
}

impl Environment for Env {
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

impl Watcher {
    fn env(&self, cluster: &Cluster) -> Env {
        let since_boot = Duration::from_millis(cluster.now - self.still);
        let wall = (cluster.now * 1000).saturating_add_signed(self.wall_ahead * 1000);
        Env { now: Moment::from_epoch(since_boot), wall, id: self.id, drawn: self.drawn }
    }

    pub(crate) fn now(&self, cluster: &Cluster) -> Moment {
        self.env(cluster).now
    }

    /// Looks at a node, as often as there is something to write.
    pub(crate) fn look(&mut self, cluster: &mut Cluster, node: usize) -> Ruling {
        let id = node_id(node);
        if !cluster.nodes[node].is_up || self.cut_off[node] {
            self.guards.handle_down(id, self.now(cluster));
            self.guards.handle_failed_try(id, self.now(cluster));
            self.rulings[node] = None;
            return Ruling::Undecided(Moment::FAR_FUTURE);
        }
        if cluster.nodes[node].hangs {
            return Ruling::Undecided(Moment::FAR_FUTURE);
        }
        let mut writing = None;
        for _ in 0..8 {
            match self.look_once(cluster, node, writing.take().as_ref()) {
                Ruling::Write(next) => writing = Some(next),
                ruling => {
                    self.rulings[node] = Some(ruling.clone());
                    return ruling;
                }
            }
        }
        panic!("node {node} is written to again and again");
    }

    fn look_once(
        &mut self,
        cluster: &mut Cluster,
        node: usize,
        writing: Option<&Writing>,
    ) -> Ruling {
        let checkup = self.ask(cluster, node, writing);
        self.hear(cluster, node, &checkup)
    }

    /// What a node answers to a look, which is heard by [`Self::hear`], or later.
    pub(crate) fn ask(
        &mut self,
        cluster: &mut Cluster,
        node: usize,
        writing: Option<&Writing>,
    ) -> Checkup {
        let sent = self.now(cluster);
        let left = self.guards.notes_for(node_id(node), sent);
        let micros = cluster.micros(node);
        let (canary, notes) = cluster.nodes[node].store.look(writing, &left, micros);
        cluster.now += self.latency + cluster.nodes[node].slow;
        let received = self.now(cluster);
        let told = |text: String| self.may_ask.then(|| Arc::from(text));
        Checkup {
            run: told(format!("{node}.{}", cluster.nodes[node].run)),
            lineage: told(format!("0:{}", cluster.nodes[node].lineage)),
            durable: cluster.nodes[node].durable,
            canary,
            clock: ClockReading { sent, received, micros },
            notes,
        }
    }

    pub(crate) fn hear(&mut self, cluster: &Cluster, node: usize, checkup: &Checkup) -> Ruling {
        let mut env = self.env(cluster);
        let ruling = self.guards.handle_checkup(&mut env, node_id(node), checkup);
        self.drawn = env.drawn;
        self.take();
        ruling
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
        for _ in 0..16 {
            if !self.guards.take_news() {
                return;
            }
            for node in 0..cluster.nodes.len() {
                let undecided = matches!(self.rulings[node], Some(Ruling::Undecided(_)));
                if undecided || self.guards.wants_look(node_id(node)) {
                    self.look(cluster, node);
                }
            }
        }
        panic!("there is always news: {:#?}", self.guards);
    }

    /// Asks for a key for `key_ttl` ms; whether the node's grant counts. A node that has forgotten, or whose clock is
    /// not where it should be, is looked at.
    pub(crate) fn grant_for(&mut self, cluster: &mut Cluster, node: usize, key_ttl: u64) -> bool {
        let key_ttl = Duration::from_millis(key_ttl);
        let Some(Ruling::Open(Pass { relied, longest })) = self.rulings[node].clone() else {
            return false;
        };
        let is_there =
            cluster.nodes[node].is_up && !self.cut_off[node] && !cluster.nodes[node].hangs;
        if !is_there || longest < key_ttl {
            return false;
        }
        let sent = self.now(cluster);
        if !self.guards.covers(node_id(node), key_ttl, sent) {
            // The look goes out ahead of the command.
            self.look(cluster, node);
            self.follow_up(cluster);
            if !self.guards.covers(node_id(node), key_ttl, sent) || !self.is_open(node) {
                return false;
            }
        }
        let (is_free, remembers) = self.set(cluster, node, key_ttl, &relied);
        let micros = cluster.micros(node);
        cluster.now += self.latency + cluster.nodes[node].slow;
        let reading = ClockReading { sent, received: self.now(cluster), micros };
        let counts = self.guards.handle_clock(node_id(node), reading) && remembers;
        self.take();
        if !counts {
            self.look(cluster, node);
            self.follow_up(cluster);
        }
        counts && is_free
    }

    /// The key is set if it is free, before the canary is read.
    fn set(
        &self,
        cluster: &mut Cluster,
        node: usize,
        key_ttl: Duration,
        relied: &quorlock_protocol::Relied,
    ) -> (bool, bool) {
        let micros = cluster.micros(node);
        let site = &mut cluster.nodes[node];
        let is_free = site.key.is_none_or(|key| key.until <= micros || key.owner == self.id);
        if is_free {
            let until = micros + u64::try_from(key_ttl.as_micros()).expect("a short lock");
            site.key = Some(Key { owner: self.id, until });
        }
        let canary = site.store.canary.as_deref().unwrap_or_default();
        (is_free, relied.count_in(canary.as_bytes()).is_some())
    }

    /// The same for a lock of ten seconds.
    pub(crate) fn grant(&mut self, cluster: &mut Cluster, node: usize) -> bool {
        self.grant_for(cluster, node, 10_000)
    }

    /// Asks all nodes for the lock; until when it may be trusted by true time, if a quorum granted it. What was
    /// granted is kept either way, save that a lost round is taken back.
    pub(crate) fn lock(&mut self, cluster: &mut Cluster, key_ttl: u64) -> Option<u64> {
        self.announce(cluster, key_ttl);
        let began = cluster.now;
        let count = cluster.nodes.len();
        let granted = (0..count).filter(|node| self.grant_for(cluster, *node, key_ttl)).count();
        if granted <= count / 2 {
            self.unlock(cluster);
            return None;
        }
        let ttl = Ttl::from_millis(key_ttl).expect("a ttl");
        let valid = Drift::default().end_of(ttl, Moment::default()).since_epoch();
        Some(began + u64::try_from(valid.as_millis()).expect("a short lock"))
    }

    /// It is about to tell the nodes that a lock of `key_ttl` ms will be asked for; whether it has anything to tell.
    pub(crate) fn means_to_keep(&mut self, cluster: &Cluster, key_ttl: u64) -> bool {
        let mut env = self.env(cluster);
        let wants = self.guards.begin_long_lock(&mut env, Duration::from_millis(key_ttl));
        self.drawn = env.drawn;
        self.guards.notes_for(node_id(0), self.now(cluster));
        self.take();
        wants
    }

    /// Has the nodes know that a lock of `key_ttl` ms is about to be asked for.
    pub(crate) fn announce(&mut self, cluster: &mut Cluster, key_ttl: u64) {
        if self.means_to_keep(cluster, key_ttl) {
            self.look_around(cluster);
        }
    }

    /// Gives the lock back on every node that it reaches.
    pub(crate) fn unlock(&mut self, cluster: &mut Cluster) {
        for (node, site) in cluster.nodes.iter_mut().enumerate() {
            if site.is_up && !site.hangs && !self.cut_off[node] {
                site.key.take_if(|key| key.owner == self.id);
            }
        }
    }

    /// No lock of `key_ttl` ms is left after `at` ms of true time.
    pub(crate) fn ends(&mut self, cluster: &mut Cluster, key_ttl: u64, at: u64) {
        let now = self.now(cluster);
        let at = now + Duration::from_millis(at.saturating_sub(cluster.now));
        self.guards.end_long_lock(Duration::from_millis(key_ttl), at, now);
        self.follow_up(cluster);
    }

    pub(crate) fn is_open(&self, node: usize) -> bool {
        matches!(self.rulings[node], Some(Ruling::Open(_)))
    }

    fn take(&mut self) {
        self.told.extend(self.guards.take_notices());
        self.lost += self.guards.take_lost_time();
    }

    /// The nodes whose grants count, with `q` and others for those whose grants do not.
    pub(crate) fn view(&self) -> String {
        let letter = |ruling: &Option<Ruling>| match ruling {
            Some(Ruling::Open(_)) => 'o',
            Some(Ruling::Quarantined(_)) => 'q',
            Some(Ruling::Undecided(_)) => '?',
            Some(Ruling::Write(_)) | None => '-',
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
