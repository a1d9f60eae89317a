//! Runs the guards in the world: clients look at nodes as the shipping client does. Owns when a
//! client looks; the shipping `Guards` decides what follows.

mod promises;

use std::time::Duration;

use quorlock_protocol::{
    Action, ClockReading, Command, Guards, Moment, NodeId, Pass, Policy, Quorum, Ruling,
};

use crate::client::{Client, Phase, Status};
use crate::link::Ward;
use crate::look::Env;
use crate::scope::Scope;
use crate::site::{Flaw, Health};
use crate::world::World;

/// A client's side of the guards.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Guarding {
    pub(crate) guards: Guards,
    pub(crate) gates: Vec<Gate>,
    pub(crate) drawn: u32,
    /// For how long it asks nodes to keep the keys that it may have there, if that is long.
    keeps: Option<Duration>,
    /// It took itself for one that had stood still, and had not.
    pub(crate) is_fooled: bool,
    /// It relies on a node that does not tell all that it knows itself of long locks.
    pub(crate) lacks_notes: bool,
    /// The lost time that it has found, while the other managers of the process know of none.
    pub(crate) rings: Duration,
}

/// What a client makes of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Gate {
    /// `None` before the first look, and while the node is gone.
    pub(crate) ruling: Option<Ruling>,
    /// The connection was lost since the last look.
    pub(crate) is_stale: bool,
    /// When it is looked at again, whatever it is.
    pub(crate) again: Option<Moment>,
}

impl Gate {
    /// When the node is to be looked at, if nothing happens before.
    pub(crate) fn due(&self) -> Option<Moment> {
        let due = match &self.ruling {
            Some(Ruling::Quarantined(quarantine)) => Some(quarantine.until),
            Some(Ruling::Undecided(at)) => Some(*at),
            _ => None,
        };
        let again = self.again.filter(|_| self.ruling.is_some());
        due.into_iter().chain(again).min()
    }
}

impl Guarding {
    /// The guards of a client with the settings `policy`; `None` if there is nothing to guard.
    pub(crate) fn new(policy: &Policy, nodes: usize) -> Option<Box<Self>> {
        let guards = Guards::new(policy, Quorum::of(nodes));
        let gates = vec![Gate::default(); nodes];
        guards.are_on().then(|| {
            Box::new(Self {
                guards,
                gates,
                drawn: 0,
                keeps: None,
                is_fooled: false,
                lacks_notes: false,
                rings: Duration::ZERO,
            })
        })
    }

    /// Under which conditions the node's grants count; `None` if no grant is sent.
    fn pass(&self, node: u8) -> Option<&Pass> {
        match &self.gates[usize::from(node)] {
            Gate { ruling: Some(Ruling::Open(pass)), is_stale: false, .. } => Some(pass),
            _ => None,
        }
    }
}

impl World {
    /// Sets the cluster up and lets the clients that were there from the start look at it.
    pub(crate) fn set_up_guards(&mut self, scope: &Scope) {
        if !scope.is_fresh {
            for place in 0..self.nodes.len() {
                self.nodes[place].set_up(scope, place);
            }
        }
        let settled = scope.clients - scope.newcomers;
        for round in 0..2 {
            for client in 0..u8::try_from(settled).unwrap_or(u8::MAX) {
                if round == 0 {
                    self.announce(scope, client);
                }
                self.look_around(scope, client, |_| true);
            }
        }
        for node in scope.nodes - scope.down..scope.nodes {
            self.nodes[node].health = Health::Down;
            for client in 0..u8::try_from(scope.clients).unwrap_or(u8::MAX) {
                self.forsake(client, u8::try_from(node).unwrap_or(u8::MAX));
            }
        }
    }

    /// The user is about to ask for a lock.
    pub(crate) fn announce(&mut self, scope: &Scope, client: u8) {
        let policy = scope.policy_of(client);
        let key_ttl = policy.longest_key_ttl();
        let now = self.boot(scope, client);
        let Some(guarding) = self.guarding_mut(client) else {
            return;
        };
        guarding.guards.handle_policy(&policy);
        if guarding.keeps.is_some() || key_ttl <= Guards::FLOOR {
            return;
        }
        guarding.keeps = Some(key_ttl);
        let mut env = Env { now, wall: 0, client, drawn: guarding.drawn };
        let wants_look = guarding.guards.begin_long_lock(&mut env, key_ttl);
        guarding.drawn = env.drawn;
        if wants_look {
            self.look_around(scope, client, |_| true);
        }
    }

    /// Tells the guards of those that have no key left anywhere.
    fn rest(&mut self, scope: &Scope) {
        for client in 0..u8::try_from(self.clients.len()).unwrap_or(u8::MAX) {
            let one = &self.clients[usize::from(client)];
            let is_at_rest = matches!(one.phase, Phase::Idle) && one.background.is_empty();
            let (now, is_sure) = (one.boot(scope, self.now), one.excused.is_empty());
            if let Some(guarding) = self.guarding_mut(client).filter(|_| is_at_rest)
                && let Some(key_ttl) = guarding.keeps.take()
            {
                let at = if is_sure { now } else { now + key_ttl + key_ttl / 50 };
                guarding.guards.end_long_lock(key_ttl, at, now);
            }
        }
    }

    /// Looks at every node that needs a look before a grant is sent.
    pub(crate) fn prepare(&mut self, scope: &Scope, client: u8) {
        let clock = self.boot(scope, client);
        self.look_around(scope, client, |gate| {
            gate.is_stale || gate.ruling.is_none() || gate.due().is_some_and(|due| due <= clock)
        });
    }

    /// What goes with a command: `Err` if it is not sent, because the node's grants do not count.
    pub(crate) fn ward(
        &mut self,
        scope: &Scope,
        client: u8,
        node: u8,
        command: &Command,
    ) -> Result<Option<Ward>, ()> {
        let Action::Grant { key_ttl, .. } = command.action else {
            return Ok(None);
        };
        if self.clients[usize::from(client)].guarding.is_none() {
            return Ok(None);
        }
        let now = self.boot(scope, client);
        let covers = |world: &mut Self| {
            let guarding = world.guarding_mut(client);
            guarding.is_some_and(|it| it.guards.covers(NodeId(node), key_ttl.as_duration(), now))
        };
        if !covers(self) {
            // The look goes out ahead of the grant.
            self.look(scope, client, node);
            self.follow_up(scope, client);
        }
        if !covers(self) {
            return Err(());
        }
        let pass =
            self.guarding_mut(client).and_then(|guarding| guarding.pass(node).cloned()).ok_or(())?;
        if pass.longest < key_ttl.as_duration() {
            return Err(());
        }
        Ok(Some(Ward { relied: pass.relied, sent: now, micros: None, is_misled: false }))
    }

    /// The connection to the node is lost, or the node is.
    pub(crate) fn forsake(&mut self, client: u8, node: u8) {
        if let Some(guarding) = self.guarding_mut(client) {
            guarding.gates[usize::from(node)].is_stale = true;
        }
    }

    /// Whether the node can do what lies on the connection: after a loss of it only if the client is
    /// there to look first.
    pub(crate) fn is_connected(&self, client: u8, node: u8) -> bool {
        let client = &self.clients[usize::from(client)];
        let stale = |guarding: &Guarding| guarding.gates[usize::from(node)].is_stale;
        !client.is_stopped() || !client.guarding.as_deref().is_some_and(stale)
    }

    /// A connection that was made anew begins with a look. Afterwards a grant that goes out once more
    /// relies on what was found; `false` if it does not go out.
    pub(crate) fn reconnect(&mut self, scope: &Scope, client: u8, node: u8) -> bool {
        let Some(guarding) = self.guarding_mut(client) else {
            return true;
        };
        if guarding.gates[usize::from(node)].is_stale
            && self.clients[usize::from(client)].status == Status::Running
        {
            self.look(scope, client, node);
            self.follow_up(scope, client);
        }
        let pass = self.guarding_mut(client).and_then(|it| it.pass(node)).cloned();
        self.link_mut(client, node).rely_on(pass.map(|pass| pass.relied))
    }

    /// Whether a client that runs is about to make a connection anew.
    pub(crate) fn is_cut_off(&self) -> bool {
        let clients = self.clients.iter().filter(|it| it.status == Status::Running);
        let mut gates = clients.filter_map(|it| it.guarding.as_deref()).flat_map(|it| &it.gates);
        gates.any(|gate| gate.is_stale && gate.ruling.is_some())
    }

    /// Before time passes every lost connection is made anew; then whatever has become due is looked at.
    pub(crate) fn look_when_due(&mut self, scope: &Scope) {
        self.rest(scope);
        for client in 0..u8::try_from(self.clients.len()).unwrap_or(u8::MAX) {
            let clock = self.boot(scope, client);
            let is_interested = is_interested(&self.clients[usize::from(client)]);
            self.look_around(scope, client, |gate| {
                gate.is_stale && gate.ruling.is_some()
                    || is_interested && gate.due().is_some_and(|due| due <= clock)
            });
        }
    }

    /// When each client looks next.
    pub(crate) fn next_looks(&self) -> impl Iterator<Item = (&Client, Moment)> {
        self.clients.iter().filter(|it| is_interested(it)).flat_map(|client| {
            let gates = client.guarding.as_deref().into_iter().flat_map(|it| &it.gates);
            gates.filter_map(Gate::due).map(move |due| (client, due))
        })
    }

    /// Whether the node may forget or have its clock set, so that the guards have to do with a minority.
    pub(crate) fn may_be_struck(&self, scope: &Scope, node: u8) -> bool {
        let others = self.node_ids().filter(|other| *other != node);
        let struck = others.filter(|other| self.nodes[usize::from(*other)].is_struck(self.now));
        !scope.spares_majority || struck.count() < scope.nodes - scope.quorum()
    }

    /// A client looks at its nodes for no other reason than that it does so now and then.
    pub(crate) fn glance(&mut self, scope: &Scope, client: u8) {
        self.look_around(scope, client, |_| true);
    }

    /// The answer to a grant came in: whether it counts.
    pub(crate) fn inspect_grant(
        &mut self,
        scope: &Scope,
        client: u8,
        node: u8,
        ward: &Ward,
        has_forgotten: bool,
    ) -> bool {
        let received = self.boot(scope, client);
        let Some(guarding) = self.guarding_mut(client) else {
            return true;
        };
        let reading = ward.micros.map(|micros| ClockReading { sent: ward.sent, received, micros });
        let is_steady =
            reading.is_none_or(|reading| guarding.guards.handle_clock(NodeId(node), reading));
        self.clients[usize::from(client)].settle();
        if is_steady && !has_forgotten {
            return true;
        }
        if let Some(guarding) = self.guarding_mut(client) {
            guarding.gates[usize::from(node)].ruling = Some(Ruling::Undecided(received));
        }
        self.look(scope, client, node);
        self.follow_up(scope, client);
        false
    }

    pub(crate) fn guarding_mut(&mut self, client: u8) -> Option<&mut Guarding> {
        self.clients[usize::from(client)].guarding.as_deref_mut()
    }

    fn look_around(&mut self, scope: &Scope, client: u8, wanted: impl Fn(&Gate) -> bool) {
        let place = usize::from(client);
        if self.clients[place].status != Status::Running || self.clients[place].guarding.is_none() {
            return;
        }
        for node in 0..u8::try_from(self.nodes.len()).unwrap_or(u8::MAX) {
            let guarding = self.clients[place].guarding.as_deref();
            if guarding.is_some_and(|it| wanted(&it.gates[usize::from(node)])) {
                self.look(scope, client, node);
            }
        }
        self.follow_up(scope, client);
    }

    fn follow_up(&mut self, scope: &Scope, client: u8) {
        self.look_again(scope, client);
        // A client that has found that the machine stood still makes all managers of the process look at once.
        let lost = self.guarding_mut(client).map(|it| std::mem::take(&mut it.rings));
        let lost = lost.unwrap_or_default();
        for other in scope.process_of(client).filter(|other| !lost.is_zero() && *other != client) {
            if scope.flaw == Flaw::LostIsShared {
                self.clients[usize::from(other)].lost_time.set_forward(lost);
            }
            self.glance(scope, other);
        }
    }

    fn look_again(&mut self, scope: &Scope, client: u8) {
        for _ in 0..PATIENCE {
            if !self.guarding_mut(client).is_some_and(|guarding| guarding.guards.take_news()) {
                return;
            }
            for node in 0..u8::try_from(self.nodes.len()).unwrap_or(u8::MAX) {
                let is_wanted = self.guarding_mut(client).is_some_and(|guarding| {
                    let ruling = &guarding.gates[usize::from(node)].ruling;
                    let is_open = matches!(ruling, Some(Ruling::Undecided(_)));
                    is_open || ruling.is_some() && guarding.guards.wants_look(NodeId(node))
                });
                if is_wanted {
                    self.look(scope, client, node);
                }
            }
        }
    }
}

/// Whether it still wants locks, or looks now and then whether it does or not.
fn is_interested(client: &Client) -> bool {
    let looks = |guarding: &Guarding| guarding.gates.iter().any(|gate| gate.again.is_some());
    client.status == Status::Running
        && (client.locks > 0
            || matches!(client.phase, Phase::Acquiring(_))
            || client.guarding.as_deref().is_some_and(looks))
}

/// How often in a row something may be looked at.
pub(crate) const PATIENCE: usize = 8;
/// After how long a client looks again, where it does.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// The nodes' clocks show a time at which nothing is zero.
pub(crate) const NODE_WALL: u64 = 1_000_000;
