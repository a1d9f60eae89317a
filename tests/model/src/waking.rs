//! Carries out what happens on the second connections of the world, which are for waiting: what nodes do with commands
//! for their queues, who gets which news, and how the first in a queue watches the key. Owns no property.

use std::time::Duration;

use quorlock_protocol::{
    Action, Answer, Command, FaultKind, News, NodeId, Reply, Waiter, WakeCause,
};

use crate::client::{Phase, Status};
use crate::link::Op;
use crate::property::Violation;
use crate::scope::Scope;
use crate::site::{Flaw, Health, Holder, Key, Request, buckets};
use crate::wake::{Asked, State, Told, Wake};
use crate::world::World;

impl World {
    pub(crate) fn wake(&self, client: u8, node: u8) -> Option<&Wake> {
        self.wakes.get(usize::from(client) * self.nodes.len() + usize::from(node))
    }

    pub(crate) fn wake_mut(&mut self, client: u8, node: u8) -> Option<&mut Wake> {
        let nodes = self.nodes.len();
        self.wakes.get_mut(usize::from(client) * nodes + usize::from(node))
    }

    /// Sends a command for a queue, or refuses it at once.
    pub(crate) fn send_to_queue(
        &mut self,
        scope: &Scope,
        client: u8,
        (op, node, command): (Op, NodeId, Command),
    ) {
        self.note(client, node.0, (8_u8, command.ticket, command.action));
        let is_cut = scope.cuts.contains(&(client, node.0));
        let is_down = self.nodes[node.index()].health == Health::Down;
        let waits = self.waits_for(client, op);
        let Some(wake) = self.wake_mut(client, node.0) else {
            return;
        };
        if is_cut || is_down || wake.state == State::Lost {
            if waits {
                wake.refuse(op, &command, FaultKind::NotSent);
            }
        } else {
            wake.send(op, command);
        }
    }

    /// A node does the next that a client asks its queue for.
    pub(crate) fn exec_for_queue(&mut self, scope: &Scope, client: u8, node: u8) {
        let Some(asked) = self.wake_mut(client, node).and_then(|wake| wake.out.pop_front()) else {
            return;
        };
        let place = usize::from(node);
        let clock = self.node_clock(scope, place);
        let told = match asked {
            Asked::Read { arms } => {
                if arms {
                    self.nodes[place].watchers |= 1 << client;
                }
                let resource = scope.wants_of(client).first().map_or(0, |it| usize::from(*it));
                let left = self.nodes[place].keys[resource].map(|key| key.left(clock));
                self.note(client, node, (9_u8, left));
                Some(Told::Key(left))
            }
            Asked::Drop(waiter) => {
                let listeners = self.listeners(node);
                self.note(client, node, (15_u8, waiter));
                self.nodes[place].drop_place(waiter, listeners, clock);
                None
            }
            Asked::Command(op, command) => {
                if matches!(command.action, Action::Enqueue { .. }) {
                    self.count_look(client);
                }
                let request = Request {
                    command: &command,
                    holder: Holder { client, draw: 0 },
                    resources: scope.wants_of(client),
                    clock,
                    wall: scope.node_wall(place, self.now),
                    in_time: true,
                    is_first: false,
                    fences_end: scope.fences_end,
                    buckets: buckets(scope.wants_of(client), scope.shares_bucket).collect(),
                    flaw: scope.flaw,
                    listeners: self.listeners(node),
                };
                let answer = self.nodes[place].run(&request);
                self.note(client, node, (10_u8, answer));
                if matches!(answer, Answer::Queued { queued, .. } if !queued.is_turn()) {
                    self.note_met(client);
                }
                let reply = Reply { ticket: command.ticket, answer: Ok(answer), repeated: false };
                self.waits_for(client, op).then_some(Told::Reply(op, reply))
            }
        };
        if let Some(wake) = self.wake_mut(client, node)
            && wake.state == State::Standing
        {
            wake.back.extend(told);
        }
        self.count_message(node);
        self.spread_news(node);
    }

    /// A client hears the next that a node says to it.
    pub(crate) fn hear(&mut self, scope: &Scope, client: u8, node: u8) -> Result<(), Violation> {
        let Some(told) = self.wake_mut(client, node).and_then(|wake| wake.back.pop_front()) else {
            return Ok(());
        };
        self.note(client, node, (11_u8, &told));
        let arms = scope.flaw != Flaw::WatchesOnce;
        let from = NodeId(node);
        match told {
            Told::Reply(op, reply) => {
                if is_first(&reply)
                    && self.waits_for(client, op)
                    && let Some(wake) = self.wake_mut(client, node)
                {
                    wake.read(true);
                }
                self.act(scope, client, |actor| actor.hear(op, &[(from, reply)]))
            }
            Told::News(waiter, news) => {
                if self.waiter(client) != Some(waiter) {
                    if let Some(wake) = self.wake_mut(client, node) {
                        wake.out.push_back(Asked::Drop(waiter));
                    }
                    return Ok(());
                }
                self.act(scope, client, |actor| actor.hear_news(from, news))
            }
            Told::Changed => {
                if let Some(wake) = self.wake_mut(client, node).filter(|wake| wake.watches) {
                    wake.read(arms);
                }
                Ok(())
            }
            Told::Key(left) => {
                if !self.wake(client, node).is_some_and(|wake| wake.watches) {
                    return Ok(());
                }
                let news = left.map_or(News::Freed(WakeCause::Watch), News::Held);
                self.act(scope, client, |actor| actor.hear_news(from, news))
            }
        }
    }

    /// Delivers what the queues of a node have just said.
    pub(crate) fn spread_news(&mut self, node: u8) {
        for (waiter, news) in std::mem::take(&mut self.nodes[usize::from(node)].told) {
            let client = u8::try_from(waiter.process).unwrap_or(u8::MAX);
            self.note(client, node, (12_u8, news));
            self.count_message(node);
            if let Some(wake) = self.wake_mut(client, node) {
                wake.back.push_back(Told::News(waiter, news));
            }
        }
    }

    /// Tells those that watch the keys of a node what has changed since they were `before`.
    pub(crate) fn fire_watches(&mut self, node: u8, before: &[Option<Key>]) {
        let site = &self.nodes[usize::from(node)];
        if site.watchers == 0 || site.keys == before {
            return;
        }
        self.fire_all_watches(node);
    }

    /// The same when all keys were deleted, which is told also of those that were not there.
    pub(crate) fn fire_all_watches(&mut self, node: u8) {
        let watchers = std::mem::take(&mut self.nodes[usize::from(node)].watchers);
        for client in (0..u8::MAX).take(self.clients.len()).filter(|it| watchers >> it & 1 == 1) {
            self.note(client, node, 13_u8);
            self.count_message(node);
            if let Some(wake) = self.wake_mut(client, node).filter(|wake| wake.watches) {
                wake.back.push_back(Told::Changed);
            }
        }
    }

    /// A wake connection is lost.
    pub(crate) fn cut_wake(&mut self, client: u8, node: u8) {
        self.nodes[usize::from(node)].watchers &= !(1 << client);
        if let Some(wake) = self.wake_mut(client, node) {
            wake.cut();
        }
        self.drop_unheard_news(client);
    }

    /// It is back: what the node said before may be out of date.
    pub(crate) fn mend_wake(&mut self, client: u8, node: u8) {
        let waiter = self.waiter(client);
        if let Some(wake) = self.wake_mut(client, node) {
            wake.state = State::Standing;
            wake.back.extend(waiter.map(|waiter| Told::News(waiter, News::Gone)));
        }
    }

    /// Drops what an acquisition that has ended would have heard.
    pub(crate) fn drop_unheard_news(&mut self, client: u8) {
        if self.wakes.is_empty() {
            return;
        }
        let current = match &self.clients[usize::from(client)].phase {
            Phase::Acquiring(acquiring) => Some(acquiring.task.op),
            _ => None,
        };
        for node in self.node_ids() {
            if self.wake(client, node).is_some_and(|wake| !wake.knows_none_but(current))
                && let Some(wake) = self.wake_mut(client, node)
            {
                wake.forget_all_but(current);
            }
        }
    }

    /// The clients, as bits, that hear what the queues of a node say.
    pub(crate) fn listeners(&self, node: u8) -> u64 {
        let stands = |client: &u8| {
            self.wake(*client, node).is_some_and(|wake| wake.state == State::Standing)
        };
        let clients = (0..u8::MAX).take(self.clients.len());
        clients.filter(stands).fold(0, |bits, client| bits | 1 << client)
    }

    /// The name under which a client waits now.
    pub(crate) fn waiter(&self, client: u8) -> Option<Waiter> {
        match &self.clients.get(usize::from(client))?.phase {
            Phase::Acquiring(acquiring) => Some(waiter_of(client, acquiring.task.op)),
            _ => None,
        }
    }

    fn waits_for(&self, client: u8, op: Op) -> bool {
        self.waiter(client) == Some(waiter_of(client, op))
    }

    /// Whether a message could arrive on a second connection now.
    pub(crate) fn has_news(&self) -> bool {
        let nodes = self.nodes.len();
        self.wakes.iter().enumerate().any(|(place, wake)| {
            let hears = self.clients[place / nodes].status == Status::Running;
            let up = self.nodes[place % nodes].health == Health::Up;
            (hears && !wake.back.is_empty()) || (up && !wake.out.is_empty())
        })
    }
}

/// The name of an operation of a client in the nodes' queues.
pub(crate) fn waiter_of(client: u8, op: Op) -> Waiter {
    Waiter { process: u64::from(client), number: op }
}

/// Whether the answer to a look says that the client is the first, and that the key is held.
const fn is_first(reply: &Reply) -> bool {
    match &reply.answer {
        Ok(Answer::Queued { queued, .. }) => matches!(queued.rank, Some(0)) && !queued.is_free,
        _ => false,
    }
}

impl Key {
    fn left(&self, clock: u64) -> Duration {
        Duration::from_millis(self.expires.saturating_sub(clock))
    }
}
