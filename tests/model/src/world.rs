//! The world: nodes, clients and what is on its way between them, at one true time. Owns what each step
//! does; `choices` says which steps are possible and `check` what must hold.

use std::hash::{Hash, Hasher};

use quorlock_protocol::{Action, Answer, Fault, FaultKind, NodeId, Reply};

use crate::actor::{Actor, Event};
use crate::client::{Client, Phase, Status};
use crate::guarded::{NODE_WALL, Watch};
use crate::link::{Link, Op, Ward};
use crate::print::fingerprint;
use crate::property::{Property, Violation};
use crate::scope::{Budget, Scope};
use crate::site::{Flaw, Health, Owner, Request, Site};
use crate::step::Step;
use crate::users::Written;

/// Everything there is at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// True time in milliseconds.
    pub(crate) now: u64,
    pub(crate) nodes: Vec<Site>,
    pub(crate) clients: Vec<Client>,
    /// By client, then by node.
    pub(crate) links: Vec<Link>,
    pub(crate) budget: Budget,
    /// The highest token handed out, by resource.
    pub(crate) tokens: Vec<u64>,
    /// How many leases were won.
    pub(crate) won: u32,
    /// What each resource's target has seen.
    pub(crate) targets: Vec<Written>,
    pub(crate) views: Views,
}

/// What has happened to each node, in short: nodes with the same view are interchangeable.
///
/// A schedule and its mirror image, with two such nodes exchanged, come to the same; the search walks
/// one of them. What happened is no part of the state, so that states are merged whatever led to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Views(pub(crate) Vec<u64>);

impl PartialEq for Views {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Views {}

impl Hash for Views {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl World {
    pub(crate) fn new(scope: &Scope) -> Self {
        let ids = 0..u8::try_from(scope.clients).expect("a scope has at most 255 clients");
        let mut world = Self {
            // What comes late was under way before.
            now: scope.late,
            nodes: vec![Site::new(scope.resources()); scope.nodes],
            clients: ids.map(|id| Client::new(id, scope.locks_of(id))).collect(),
            links: vec![Link::default(); scope.nodes * scope.clients],
            budget: scope.budget,
            tokens: vec![0; scope.resources()],
            won: 0,
            targets: vec![Written::default(); scope.resources()],
            views: Views(vec![0; scope.nodes]),
        };
        for client in &mut world.clients {
            client.watch = Watch::new(&scope.policy_of(client.id), scope.nodes);
        }
        world.set_up_guards(scope);
        world
    }

    /// Notes that something happened between a client and a node.
    pub(crate) fn note(&mut self, client: u8, node: u8, what: impl Hash) {
        let seen = self.clients[usize::from(client)].outline();
        let view = &mut self.views.0[usize::from(node)];
        *view = fingerprint(&(*view, client, self.now, seen, what));
    }

    /// Whether no node before this one is interchangeable with it.
    pub(crate) fn stands_for_its_like(&self, node: u8) -> bool {
        let (before, rest) = self.views.0.split_at(usize::from(node));
        !before.contains(&rest[0])
    }

    /// Makes `step` happen.
    pub(crate) fn apply(&mut self, scope: &Scope, step: Step) -> Result<(), Violation> {
        match step {
            Step::Exec(client, node) => {
                self.exec(scope, client, node);
                Ok(())
            }
            Step::Reply(client, node) => self.deliver(scope, client, node),
            Step::Trip(client, node) => {
                self.exec(scope, client, node);
                self.deliver(scope, client, node)
            }
            Step::Batch(client) => self.deliver_all(scope, client),
            Step::Glance(client) => {
                self.glance(scope, client);
                Ok(())
            }
            Step::Timer(client) => self.act(scope, client, |actor| actor.wake()),
            Step::Until(time) => {
                self.pass(scope, time);
                Ok(())
            }
            Step::User(client, deed) => self.user(scope, client, deed),
            Step::Fault(fault) => {
                self.fail(scope, fault);
                Ok(())
            }
        }
    }

    pub(crate) const fn link(&self, client: u8, node: u8) -> &Link {
        let place = client as usize * self.nodes.len() + node as usize;
        &self.links.as_slice()[place]
    }

    pub(crate) fn link_mut(&mut self, client: u8, node: u8) -> &mut Link {
        let place = usize::from(client) * self.nodes.len() + usize::from(node);
        &mut self.links[place]
    }

    /// What the clock of a node shows.
    pub(crate) fn node_clock(&self, scope: &Scope, node: usize) -> u64 {
        self.nodes[node].clock(scope.node_rate, self.now)
    }

    fn exec(&mut self, scope: &Scope, client: u8, node: u8) {
        if scope.flaw == Flaw::RevokesOvertake {
            self.link_mut(client, node).let_overtake();
        }
        let goes_out = self.reconnect(scope, client, node);
        let Some(sent) = self.link(client, node).next_for_node().cloned() else {
            return;
        };
        let place = usize::from(node);
        let micros = self.node_clock(scope, place) * 1000 + NODE_WALL;
        if !goes_out || !self.remembers(scope, node, sent.ward.as_ref()) {
            self.note(client, node, 5_u8);
            self.link_mut(client, node).answered(Err(FaultKind::Quarantined), micros);
            return self.drop_unheard(client);
        }
        let clock = self.node_clock(scope, place);
        let request = Request {
            command: &sent.command,
            owner: sent.owner,
            resources: scope.wants_of(sent.owner.client),
            clock,
            wall: scope.wall(u8::MAX, self.now) + NODE_WALL,
            in_time: sent.in_time_until.is_some_and(|until| self.now <= until),
            fences_end: scope.fences_end,
            flaw: scope.flaw,
        };
        let held = self.nodes[place].stands_for(sent.owner, request.resources);
        if let Phase::Acquiring(acquiring) = &mut self.clients[usize::from(client)].phase {
            acquiring.met |= self.nodes[place].has_another(sent.owner, request.resources);
        }
        let answer = self.nodes[place].run(&request);
        if held && sent.command.action == Action::Revoke {
            self.note_deleted(sent.owner.client, sent.owner.draw, node);
        }
        self.note(client, node, (0_u8, answer));
        self.link_mut(client, node).answered(Ok(answer), micros);
        self.drop_unheard(client);
    }

    /// Takes the note that goes ahead of a grant; whether the node still has the canary that the grant
    /// relies on.
    fn remembers(&mut self, scope: &Scope, node: u8, ward: Option<&Ward>) -> bool {
        let (Some(ward), site) = (ward, &mut self.nodes[usize::from(node)]) else {
            return true;
        };
        site.notes.longest = site.notes.longest.max(ward.longest);
        let is_there = ward.canary.is_empty() || site.canary.as_ref() == Some(&ward.canary);
        is_there || scope.flaw == Flaw::IgnoresCanary
    }

    fn note_deleted(&mut self, client: u8, draw: u32, node: u8) {
        let background = self.clients[usize::from(client)].background.iter_mut();
        for release in background.filter(|it| it.draw == draw).filter_map(|it| it.release.as_mut())
        {
            release.deleted |= 1 << node;
        }
    }

    /// A reply that nobody waits for changes nothing, unless its connection may break and have the
    /// command sent again.
    pub(crate) fn drop_unheard(&mut self, client: u8) {
        if self.budget.resends == 0 || self.budget.faults == 0 {
            let nodes = self.nodes.len();
            let first = usize::from(client) * nodes;
            for link in &mut self.links[first..first + nodes] {
                link.drop_unheard();
            }
        }
    }

    fn deliver(&mut self, scope: &Scope, client: u8, node: u8) -> Result<(), Violation> {
        let Some((op, reply)) = self.take_reply(scope, client, node) else {
            return Ok(());
        };
        self.note(client, node, (1_u8, &reply));
        self.act(scope, client, |actor| {
            actor.hear(op, &[(NodeId(node), reply)]);
        })
    }

    /// The next reply, as the guards let it through.
    fn take_reply(&mut self, scope: &Scope, client: u8, node: u8) -> Option<(Op, Reply)> {
        let (op, mut reply, ward) = self.link_mut(client, node).take_reply()?;
        if let Some(ward) = ward {
            let has_forgotten = reply.answer.is_err();
            let counts = self.inspect_grant(scope, client, node, &ward, has_forgotten);
            if !counts && matches!(reply.answer, Ok(Answer::Ours { .. })) {
                reply.answer = Err(Fault::new(FaultKind::Quarantined, ""));
            }
        }
        Some((op, reply))
    }

    fn deliver_all(&mut self, scope: &Scope, client: u8) -> Result<(), Violation> {
        let mut by_op: Vec<(Op, Vec<(NodeId, Reply)>)> = Vec::new();
        for node in NodeId::all(self.nodes.len()) {
            while let Some((op, reply)) = self.take_reply(scope, client, node.0) {
                self.note(client, node.0, (2_u8, &reply));
                match by_op.iter_mut().find(|(other, _)| *other == op) {
                    Some((_, replies)) => replies.push((node, reply)),
                    None => by_op.push((op, vec![(node, reply)])),
                }
            }
        }
        self.act(scope, client, |actor| {
            for (op, replies) in &by_op {
                actor.hear(*op, replies);
            }
        })
    }

    /// Lets a client do something, sends what it wants to send and looks at what happened.
    pub(crate) fn act(
        &mut self,
        scope: &Scope,
        client: u8,
        deed: impl FnOnce(&mut Actor<'_>),
    ) -> Result<(), Violation> {
        let place = usize::from(client);
        if matches!(self.clients[place].phase, Phase::Acquiring(_)) {
            self.prepare(scope, client);
        }
        let mut actor = Actor {
            scope,
            now: self.now,
            client: &mut self.clients[place],
            sends: Vec::new(),
            events: Vec::new(),
        };
        deed(&mut actor);
        let (clock, sends, events) = (actor.clock(), actor.sends, actor.events);
        for (op, node, command) in sends {
            let owner = Owner::of(&command.claim.holder);
            let refused =
                self.nodes[node.index()].health == Health::Down || command.not_after < clock;
            self.note(client, node.0, (3_u8, command.ticket, command.action));
            let ward = self.ward(scope, client, node.0, &command);
            let in_time_until = self.in_time_until(scope, client, &command);
            let link = self.link_mut(client, node.0);
            match ward {
                _ if refused => link.refuse(op, &command, FaultKind::NotSent),
                Err(()) => link.refuse(op, &command, FaultKind::Quarantined),
                Ok(ward) => link.send(op, owner, command, (ward, in_time_until)),
            }
        }
        for event in events {
            if let Err(violation) = self.witness(scope, client, &event)
                && scope.minds(violation.property)
            {
                return Err(violation);
            }
        }
        Ok(())
    }

    fn witness(&mut self, scope: &Scope, client: u8, event: &Event) -> Result<(), Violation> {
        match *event {
            Event::Won => self.check_won(scope, client),
            Event::Refused => Err(self.check_refused(client)),
            Event::Told { draw, outcome, release } => {
                self.check_told(scope, Owner { client, draw }, outcome, release)
            }
            Event::GivenUp(draw) => self.check_given_up(client, draw),
            Event::Closed(op) => {
                let nodes = u8::try_from(self.nodes.len()).unwrap_or(u8::MAX);
                for node in 0..nodes {
                    self.link_mut(client, node).close(op);
                }
                self.drop_unheard(client);
                Ok(())
            }
            Event::Spins => Err(Violation::new(
                Property::Timely,
                "a machine asks to be woken at once, again and again",
            )),
        }
    }

    /// Lets time pass; what is over on a node is gone.
    pub(crate) fn pass(&mut self, scope: &Scope, time: u64) {
        if self.is_restless() {
            self.budget.delays = self.budget.delays.saturating_sub(1);
        }
        self.look_when_due(scope);
        self.now = self.now.max(time);
        for client in &mut self.clients {
            let clock = client.clock(scope, self.now);
            if let Phase::Holding(holding) = &mut client.phase {
                holding.over |= holding.until() <= clock;
            }
        }
        for node in 0..self.nodes.len() {
            let clock = self.node_clock(scope, node);
            self.nodes[node].expire(clock);
        }
        self.look_when_due(scope);
    }

    /// Whether a message could arrive now.
    pub(crate) fn is_restless(&self) -> bool {
        let nodes = self.nodes.len();
        self.links.iter().enumerate().any(|(place, link)| {
            let hears = self.clients[place / nodes].status == Status::Running;
            let (client, node) = (place / nodes, place % nodes);
            let short = |place: usize| u8::try_from(place).unwrap_or(u8::MAX);
            let up = self.nodes[node].health == Health::Up
                && self.is_connected(short(client), short(node));
            (hears && link.has_reply()) || (up && link.next_for_node().is_some())
        })
    }
}
