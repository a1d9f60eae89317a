//! One look of a client at a node: the node answers as `checkup.lua` does, and the shipping
//! `Guards` reads the answer. Owns the order of what the client receives.

use std::time::Duration;

use quorlock_protocol::{
    Canary, Checkup, ClockReading, Environment, GuardStore, Guards, HolderId, Moment, NodeId,
    QuarantineReason, Ruling,
};

use crate::client::Client;
use crate::guarded::{LOOK_AGAIN, NODE_WALL, PATIENCE};
use crate::print::fingerprint;
use crate::scope::Scope;
use crate::site::{Health, Site};
use crate::world::World;

impl World {
    /// One look at one node, as often as there is something to write.
    pub(crate) fn look(&mut self, scope: &Scope, client: u8, node: u8) {
        self.hear_clocks(scope, client, node);
        self.try_to_reach(scope, client);
        let is_cut = scope.cuts.contains(&(client, node));
        let is_up = self.nodes[usize::from(node)].health == Health::Up && !is_cut;
        let ruling = if is_up { self.ask(scope, client, node) } else { None };
        let now = self.boot(scope, client);
        let Some(guarding) = self.guarding_mut(client) else {
            return;
        };
        if !is_up {
            guarding.guards.handle_down(NodeId(node), now);
        }
        if matches!(ruling, Some(Ruling::Open(_))) {
            guarding.lacks_notes |=
                !guarding.guards.notes_for(NodeId(node), now).holdings.is_empty();
        }
        let gate = &mut guarding.gates[usize::from(node)];
        gate.again = scope.spares_majority.then(|| now + LOOK_AGAIN);
        // A node that is gone is looked at when it is back.
        (gate.is_stale, gate.ruling) = (ruling.is_none() && gate.ruling.is_some(), ruling);
        let seen = (4_u8, gate.due(), gate.is_stale);
        // What was asked before its machine stood still tells nothing of that.
        if is_up && self.lateness(scope, client, node) == 0 {
            self.clients[usize::from(client)].has_looked(node, scope.quorum());
        }
        self.note(client, node, seen);
    }

    /// Every node that a client cannot reach is tried again and again meanwhile.
    fn try_to_reach(&mut self, scope: &Scope, client: u8) {
        let now = self.boot(scope, client);
        let nodes = (0_u8..).zip(self.nodes.iter());
        let gone: Vec<u8> = nodes
            .filter(|(node, site)| {
                site.health != Health::Up || scope.cuts.contains(&(client, *node))
            })
            .map(|(node, _)| node)
            .collect();
        if let Some(guarding) = self.guarding_mut(client) {
            for node in gone {
                guarding.guards.handle_failed_try(NodeId(node), now);
            }
        }
    }

    fn ask(&mut self, scope: &Scope, client: u8, node: u8) -> Option<Ruling> {
        let place = usize::from(node);
        let late = self.lateness(scope, client, node);
        let micros = (self.node_clock(scope, place) * 1000 + NODE_WALL).saturating_sub(late * 1000);
        let (site, client) = (&mut self.nodes[place], &mut self.clients[usize::from(client)]);
        let wall = scope.wall(client.id, self.now).saturating_sub(client.wall_back);
        let mut writing = None;
        for _ in 0..PATIENCE {
            let now = client.boot(scope, self.now);
            let sent = now.before(Duration::from_millis(late));
            let guarding = client.guarding.as_deref_mut()?;
            let mut env = Env { now, wall, client: client.id, drawn: guarding.drawn };
            let left = guarding.guards.notes_for(NodeId(node), now);
            let (canary, notes) = site.check_up(writing.as_ref(), &left, (self.now, micros));
            let checkup = Checkup {
                run: scope.may_ask.then(|| site.run.to_string().into()),
                lineage: scope.may_ask.then(|| site.lineage().into()),
                durable: scope.durable,
                canary,
                clock: ClockReading { sent, received: now, micros },
                notes,
            };
            let ruling = guarding.guards.handle_checkup(&mut env, NodeId(node), &checkup);
            guarding.drawn = env.drawn;
            client.settle();
            match ruling {
                Ruling::Write(next) => writing = Some(next),
                other => return Some(other),
            }
        }
        None
    }

    /// For how long the answer to a look has been under way, in milliseconds: the clock was read before
    /// that, and all the rest of it stands as it is. So no answer is late of a node that was struck meanwhile.
    fn lateness(&self, scope: &Scope, client: u8, node: u8) -> u64 {
        let is_late = fingerprint(&(client, node, self.now)).is_multiple_of(4);
        let struck_at = self.nodes[usize::from(node)].struck_at;
        let is_as_it_was = struck_at.is_none_or(|at| at + scope.late < self.now);
        if is_late && is_as_it_was { scope.late } else { 0 }
    }

    /// What is on its way from the node comes before the answer to a look.
    fn hear_clocks(&mut self, scope: &Scope, client: u8, node: u8) {
        let received = self.boot(scope, client);
        let place = usize::from(client) * self.nodes.len() + usize::from(node);
        let (link, client) = (&mut self.links[place], &mut self.clients[usize::from(client)]);
        let Some(guarding) = client.guarding.as_deref_mut() else {
            return;
        };
        link.judge_replies(|ward| {
            ward.micros.is_none_or(|micros| {
                let reading = ClockReading { sent: ward.sent, received, micros };
                guarding.guards.handle_clock(NodeId(node), reading)
            })
        });
        client.settle();
    }
}

impl Client {
    /// Sets its lease clock forward by what the guards say that it has lost.
    pub(crate) fn settle(&mut self) {
        let Some(guarding) = self.guarding.as_deref_mut() else {
            return;
        };
        drop(guarding.guards.take_notices());
        let lost = guarding.guards.take_lost_time();
        if lost.is_zero() {
            return;
        }
        guarding.is_fooled |= !self.lost_time.has_stopped;
        guarding.rings += lost;
        self.lost_time.set_forward(lost);
        self.unaware = None;
        self.excuse();
    }
}

impl Site {
    /// Somebody has used it before the world begins, and has beaten its canary twice.
    pub(crate) fn set_up(&mut self, scope: &Scope, place: usize) {
        let canary = |count| Canary {
            id: place as u64 + 1,
            run: scope.may_ask.then(|| self.run.to_string().into()),
            lineage: scope.may_ask.then(|| self.lineage().into()),
            durable: scope.durable,
            count,
            floor: scope
                .policy
                .max_ttl()
                .map_or(Guards::FLOOR, |limit| limit.as_duration().min(Guards::FLOOR)),
            age: LONG_AGO,
            reason: QuarantineReason::NoHistory,
            wall_micros: scope.wall(0, scope.late),
            node_micros: NODE_WALL + scope.late * 1000,
        };
        let store = |count| {
            let mut store = GuardStore::default();
            store.canary = Some(canary(count).to_string().into());
            store
        };
        (self.old, self.store) = (store(1), store(2));
    }

    fn lineage(&self) -> String {
        format!("0:{}", self.lineage)
    }
}

/// The age of a memory that began two hours ago in a new cluster.
const LONG_AGO: Duration = Duration::from_secs(100 * 365 * 86_400 + 7200);

/// The time and the randomness of a client that looks.
pub(crate) struct Env {
    pub(crate) now: Moment,
    pub(crate) wall: u64,
    pub(crate) client: u8,
    pub(crate) drawn: u32,
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
        bytes[0] = self.client + 1;
        bytes[4..8].copy_from_slice(&self.drawn.to_be_bytes());
        bytes
    }
}
