//! The guards in a golden schedule: what the nodes remember, what their clocks show, and what each
//! client concludes. Owns the looks; knows no lock.

use std::time::Duration;

use quorlock_protocol::{
    Checkup, ClockReading, Fault, FaultKind, GuardStore, Guards, Moment, NodeId, Policy, Quorum,
    Ruling,
};

use super::words::number;
use crate::look::Env;

/// The nodes, as far as the guards see them. None of them has been used when a schedule begins.
pub(super) struct Cluster {
    nodes: Vec<Site>,
    /// True time in milliseconds.
    pub(super) now: u64,
}

#[derive(Default)]
struct Site {
    run: u32,
    store: GuardStore,
    /// How far its clock was set forward, in milliseconds.
    ahead: u64,
}

/// One client's side.
pub(super) struct ClientGuards {
    guards: Guards,
    rulings: Vec<Option<Ruling>>,
    env: Env,
    /// What the lease clock is to be set forward by.
    lost: Duration,
}

impl Cluster {
    pub(super) fn new(nodes: usize) -> Self {
        Self { nodes: (0..nodes).map(|_| Site::default()).collect(), now: 0 }
    }

    /// Something happens to a node; whether its connections broke.
    pub(super) fn happen(&mut self, node: &str, words: &[&str]) -> Result<bool, String> {
        let place = usize::try_from(number(node)?).unwrap_or(usize::MAX);
        let site = self.nodes.get_mut(place).ok_or("no such node")?;
        match words {
            ["restarted"] => {
                *site = Site { run: site.run + 1, ahead: site.ahead, ..Site::default() }
            }
            ["flushed"] => site.store = GuardStore::default(),
            ["clock", by] => site.ahead += number(by.trim_start_matches('+'))?,
            _ => return Err("nothing that can happen to a node".to_owned()),
        }
        Ok(words == ["restarted"])
    }

    fn micros(&self, node: usize) -> u64 {
        (SINCE_1970 + self.now + self.nodes[node].ahead) * 1000
    }
}

impl ClientGuards {
    /// A client that looks at every node for the first time.
    pub(super) fn new(cluster: &mut Cluster, policy: &Policy, client: u8, now: Moment) -> Self {
        let count = cluster.nodes.len();
        let mut guards = Guards::new(policy, Quorum::of(count));
        guards.handle_policy(policy);
        let env = Env { now, wall: 0, client, drawn: 0 };
        let mut client_guards =
            Self { guards, rulings: vec![None; count], env, lost: Duration::ZERO };
        client_guards.look_around(cluster, now);
        client_guards
    }

    /// Looks at every node, by the clock that is never corrected, as always here. What the lease clock is to be set
    /// forward by is told by [`Self::lost_time`].
    pub(super) fn look_around(&mut self, cluster: &mut Cluster, now: Moment) {
        for node in 0..cluster.nodes.len() {
            self.look(cluster, node, now);
        }
        self.follow_up(cluster, now);
    }

    pub(super) fn lost_time(&mut self) -> Duration {
        std::mem::take(&mut self.lost)
    }

    /// A lock of `policy` is about to be asked for: the nodes are told if it is a long one, and looked at where that
    /// is due.
    pub(super) fn prepare(&mut self, cluster: &mut Cluster, policy: &Policy, now: Moment) {
        self.guards.handle_policy(policy);
        self.env.now = now;
        let key_ttl = policy.longest_key_ttl();
        let is_news = self.guards.begin_long_lock(&mut self.env, key_ttl);
        for node in 0..cluster.nodes.len() {
            let is_due = is_news
                || !self.guards.covers(id_of(node), key_ttl, now)
                || match &self.rulings[node] {
                    Some(Ruling::Open(_)) => false,
                    Some(Ruling::Quarantined(quarantine)) => quarantine.until <= now,
                    _ => true,
                };
            if is_due {
                self.look(cluster, node, now);
            }
        }
        self.follow_up(cluster, now);
    }

    /// Why no grant is sent to the node; `None` if one is.
    pub(super) fn refusal(&self, node: NodeId, now: Moment) -> Option<Fault> {
        let left = match self.rulings[node.index()].as_ref() {
            Some(Ruling::Open(_)) => return None,
            Some(Ruling::Quarantined(quarantine)) => Some(quarantine.until.since(now)),
            _ => None,
        };
        let fault = Fault::new(FaultKind::Quarantined, "its grants do not count");
        Some(left.map_or_else(|| fault.clone(), |left| fault.clone().lasting(left)))
    }

    /// A node has answered a grant: whether it has the canary that it should have, and a clock that
    /// continues as before. Otherwise it is looked at.
    pub(super) fn inspect_grant(
        &mut self,
        cluster: &mut Cluster,
        node: NodeId,
        now: Moment,
    ) -> bool {
        let micros = cluster.micros(node.index());
        let reading = ClockReading { sent: now, received: now, micros };
        let is_steady = self.guards.handle_clock(node, reading);
        self.lost += self.guards.take_lost_time();
        let canary = cluster.nodes[node.index()].store.canary.as_deref().unwrap_or_default();
        let remembers = matches!(&self.rulings[node.index()], Some(Ruling::Open(pass))
            if pass.relied.count_in(canary.as_bytes()).is_some());
        if !is_steady || !remembers {
            self.look(cluster, node.index(), now);
            self.follow_up(cluster, now);
        }
        is_steady && remembers
    }

    /// For how long the node is held back still, in whole milliseconds; zero if its grants count.
    pub(super) fn left(&self, node: u64, now: Moment) -> Result<u64, String> {
        let place = usize::try_from(node).unwrap_or(usize::MAX);
        match self.rulings.get(place) {
            Some(Some(Ruling::Open(_))) => Ok(0),
            Some(Some(Ruling::Quarantined(quarantine))) => {
                Ok(u64::try_from(quarantine.until.since(now).as_millis()).unwrap_or(u64::MAX))
            }
            _ => Err("it is not decided on".to_owned()),
        }
    }

    pub(super) fn look(&mut self, cluster: &mut Cluster, node: usize, now: Moment) {
        self.env.wall = (SINCE_1970 + cluster.now) * 1000;
        let id = id_of(node);
        let micros = cluster.micros(node);
        let site = &mut cluster.nodes[node];
        let mut writing = None;
        for _ in 0..PATIENCE {
            self.env.now = now;
            let left = self.guards.notes_for(id, now);
            let (canary, notes) = site.store.look(writing.take().as_ref(), &left, micros);
            let checkup = Checkup {
                run: Some(site.run.to_string().into()),
                lineage: Some("0:0".into()),
                durable: false,
                canary,
                clock: ClockReading { sent: now, received: now, micros },
                notes,
            };
            let ruling = self.guards.handle_checkup(&mut self.env, id, &checkup);
            self.lost += self.guards.take_lost_time();
            match ruling {
                Ruling::Write(next) => writing = Some(next),
                ruling => {
                    self.rulings[node] = Some(ruling);
                    return;
                }
            }
        }
    }

    pub(super) fn follow_up(&mut self, cluster: &mut Cluster, now: Moment) {
        for _ in 0..PATIENCE {
            if !self.guards.take_news() {
                return;
            }
            for node in NodeId::all(cluster.nodes.len()) {
                let ruling = &self.rulings[node.index()];
                if matches!(ruling, Some(Ruling::Undecided(_))) || self.guards.wants_look(node) {
                    self.look(cluster, node.index(), now);
                }
            }
        }
    }
}

fn id_of(node: usize) -> NodeId {
    NodeId(u8::try_from(node).unwrap_or(u8::MAX))
}

/// How often in a row something may be looked at.
const PATIENCE: usize = 8;
/// The nodes' clocks when a schedule begins, in milliseconds.
const SINCE_1970: u64 = 1_700_000_000_000;
