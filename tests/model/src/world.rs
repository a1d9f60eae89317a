//! The world of a search: nodes, clients and messages in flight, at one true time. Owns what each
//! step does; `messages` carries messages, `choices` lists possible steps, `check` and `event_checks`
//! what must hold.

use crate::actor::{Actor, Event};
use crate::client::{Client, Phase};
use crate::guarded::Guarding;
use crate::link::Link;
use crate::parts::Parts;
use crate::property::{Property, Violation};
use crate::scope::{Budget, Scope};
use crate::second_user::SecondUser;
use crate::site::{Holder, Site};
use crate::step::Step;
use crate::users::Written;
use crate::views::Views;
use crate::waits::Waits;
use crate::wake::Wake;

/// The whole world at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// True time in milliseconds.
    pub(crate) now: u64,
    pub(crate) nodes: Parts<Site>,
    pub(crate) clients: Parts<Client>,
    /// By client, then by node.
    pub(crate) links: Parts<Link>,
    /// The second connections, in the same order; none where nobody waits in queues.
    pub(crate) wakes: Parts<Wake>,
    pub(crate) waits: Waits,
    pub(crate) budget: Budget,
    /// The highest token handed out, by resource.
    pub(crate) tokens: Vec<u64>,
    /// The serial number of the last lease of each resource.
    pub(crate) latest: Vec<u32>,
    /// How many leases were won.
    pub(crate) won: u32,
    /// What each resource's target has seen.
    pub(crate) targets: Vec<Written>,
    pub(crate) views: Views,
    pub(crate) second_user: Option<Box<SecondUser>>,
}

impl World {
    pub(crate) fn new(scope: &Scope) -> Self {
        let ids = 0..u8::try_from(scope.clients).expect("a scope has at most 255 clients");
        let connections = scope.nodes * scope.clients;
        let second_connections = if scope.has_queues() { connections } else { 0 };
        let mut world = Self {
            // Time has passed before, so that late answers and idle nodes are possible from the
            // start.
            now: scope.late + scope.idle,
            nodes: (0..scope.nodes).map(|_| Site::new(scope.resources())).collect(),
            clients: ids
                .map(|id| {
                    let guarding = Guarding::new(&scope.policy_of(id), scope.nodes);
                    Client { guarding, ..Client::new(id, scope.locks_of(id)) }
                })
                .collect(),
            links: (0..connections).map(|_| Link::default()).collect(),
            wakes: (0..second_connections).map(|_| Wake::default()).collect(),
            waits: Waits::default(),
            budget: scope.budget,
            tokens: vec![0; scope.resources()],
            latest: vec![0; scope.resources()],
            won: 0,
            targets: vec![Written::default(); scope.resources()],
            views: Views((0..scope.nodes).map(|node| scope.mark_of(node)).collect()),
            second_user: None,
        };
        world.set_up_guards(scope);
        world.set_up_foreign(scope);
        world
    }

    /// Carries out `step`.
    pub(crate) fn apply(&mut self, scope: &Scope, step: Step) -> Result<(), Violation> {
        self.note_turns(scope);
        self.note_order(scope, step);
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
            Step::Queue(client, node) => {
                self.exec_for_queue(scope, client, node);
                Ok(())
            }
            Step::Hear(client, node) => self.hear(scope, client, node),
            Step::Ask(client, node) => {
                self.exec_for_queue(scope, client, node);
                self.hear(scope, client, node)
            }
            Step::Delete(node) => {
                self.delete_foreign(node);
                Ok(())
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

    pub(crate) fn link(&self, client: u8, node: u8) -> &Link {
        &self.links[usize::from(client) * self.nodes.len() + usize::from(node)]
    }

    pub(crate) fn link_mut(&mut self, client: u8, node: u8) -> &mut Link {
        let place = usize::from(client) * self.nodes.len() + usize::from(node);
        &mut self.links[place]
    }

    /// What the clock of a node shows.
    pub(crate) fn node_clock(&self, scope: &Scope, node: usize) -> u64 {
        self.nodes[node].clock(scope.rate_of(node), self.now)
    }

    /// Lets a client act, sends its commands and checks the events.
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
        let (sends, events) = (actor.sends, actor.events);
        for (op, node, command) in sends {
            self.send(scope, client, (op, node, command));
        }
        self.drop_unheard_news(client);
        for event in events {
            if let Err(violation) = self.check_event(scope, client, &event)
                && scope.minds(violation.property)
            {
                return Err(violation);
            }
        }
        Ok(())
    }

    fn check_event(&mut self, scope: &Scope, client: u8, event: &Event) -> Result<(), Violation> {
        match *event {
            Event::Won => {
                self.check_won(scope, client)?;
                self.check_turn(scope, client)
            }
            Event::TakenOver(serial, token) => self.check_taken_over(scope, client, serial, token),
            Event::Refused => Err(self.check_refused(client)),
            Event::Told { draw, outcome, release } => {
                self.check_told(scope, Holder { client, draw }, outcome, release)
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

    /// Lets time pass; keys that have expired on a node are gone.
    pub(crate) fn pass(&mut self, scope: &Scope, time: u64) {
        if self.has_messages() {
            self.budget.delays = self.budget.delays.saturating_sub(1);
        }
        self.look_when_due(scope);
        self.note_idleness(scope);
        self.now = self.now.max(time);
        for place in 0..self.clients.len() {
            if self.clients[place].is_just_over(self.clients[place].clock(scope, self.now))
                && let Phase::Holding(holding) = &mut self.clients[place].phase
            {
                holding.over = true;
            }
        }
        for node in 0..self.nodes.len() {
            let clock = self.node_clock(scope, node);
            if self.nodes[node].has_expired(clock) {
                self.nodes[node].expire(clock);
            }
        }
        self.look_when_due(scope);
    }
}
