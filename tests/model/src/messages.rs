//! The messages in flight between clients and nodes. Owns how a command is carried out and how its
//! reply arrives.

use quorlock_protocol::{Action, Answer, Command, Fault, FaultKind, NodeId, Reply};

use crate::client::{Phase, Status};
use crate::guarded::NODE_WALL;
use crate::link::{Op, Progress, Sent, Ward, is_revoke};
use crate::property::Violation;
use crate::scope::Scope;
use crate::site::{Flaw, Health, Holder, Request, buckets};
use crate::world::World;

impl World {
    /// Sends the commands of a machine of `client`, or refuses them at once.
    pub(crate) fn send(
        &mut self,
        scope: &Scope,
        client: u8,
        (op, node, mut command): (Op, NodeId, Command),
    ) {
        // Converted to the clock that connections use, as in the shipping client.
        if command.action.is_of_queue() {
            return self.send_to_queue(scope, client, (op, node, command));
        }
        let lost_time = self.clients[usize::from(client)].lost_time;
        command.not_after = lost_time.to_boot(command.not_after);
        let clock = self.boot(scope, client);
        let holder = Holder::of(&command.claim.holder);
        let is_cut = scope.cuts.contains(&(client, node.0));
        let refused =
            is_cut || self.nodes[node.index()].health == Health::Down || command.not_after < clock;
        self.note(client, node.0, (3_u8, command.ticket, command.action));
        let ward = self.ward(scope, client, node.0, &command);
        let in_time_until = self.in_time_until(scope, client, &command);
        let link = self.link_mut(client, node.0);
        match ward {
            _ if refused => link.refuse(op, &command, FaultKind::NotSent),
            Err(()) => link.refuse(op, &command, FaultKind::Quarantined),
            Ok(ward) => link.send(op, holder, command, (ward, in_time_until)),
        }
    }

    /// A node carries out the next command of a client.
    pub(crate) fn exec(&mut self, scope: &Scope, client: u8, node: u8) {
        if scope.flaw == Flaw::RevokesOvertake {
            self.link_mut(client, node).let_overtake();
        }
        let goes_out = self.reconnect(scope, client, node);
        let Some(sent) = self.link(client, node).next_for_node().cloned() else {
            return;
        };
        let place = usize::from(node);
        let request = self.request(scope, node, &sent);
        let micros = request.clock * 1000 + NODE_WALL;
        if self.nodes[place].has_another(sent.holder, request.resources) {
            self.note_met(client);
        }
        let remembers = self.remembers(scope, node, sent.ward.as_ref());
        let site = &self.nodes[place];
        let is_over =
            sent.ward.is_some() && site.memory().is_some_and(|id| site.ended.contains(&id));
        if remembers && is_over {
            self.link_mut(client, node).mislead();
        }
        let has_looked = scope.flaw == Flaw::LooksAhead && sent.progress == Progress::Begun(true);
        let part = if scope.in_parts && !has_looked {
            self.do_part(scope, &request, place, (sent.progress, remembers, goes_out))
        } else {
            None
        };
        if let Some(progress) = part {
            self.note(client, node, (7_u8, progress));
            return self.link_mut(client, node).advance(progress, micros);
        }
        if let Progress::Looked(is_set, is_raised, stands) = sent.progress {
            let answer = self.nodes[place].conclude(&request, is_set, is_raised);
            let answer = answer.filter(|_| stands);
            self.note(client, node, (6_u8, answer));
            let link = self.link_mut(client, node);
            match answer {
                Some(answer) => link.answered(Ok(answer), micros),
                None => link.advance(Progress::ToReplay(is_set), micros),
            }
            return self.drop_unheard(client);
        }
        if !goes_out || !(remembers || has_looked) {
            self.note(client, node, 5_u8);
            self.nodes[place].leave(&request);
            self.link_mut(client, node).answered(Err(FaultKind::Quarantined), micros);
            return self.drop_unheard(client);
        }
        let held = self.nodes[place].stands_for(sent.holder, request.resources);
        let before = self.nodes[place].keys.clone();
        let answer = self.nodes[place].run(&request);
        // In fair mode the place of another is reason enough.
        let is_fair = matches!(sent.command.action, Action::Grant { place: Some(_), .. });
        if is_fair && matches!(answer, Answer::Theirs { .. }) {
            self.note_met(client);
        }
        if held && is_revoke(&sent.command) {
            self.note_deleted(sent.holder.client, sent.holder.draw, node);
        }
        self.note(client, node, (0_u8, answer));
        self.link_mut(client, node).answered(Ok(answer), micros);
        self.drop_unheard(client);
        self.count_message(node);
        self.fire_watches(node, &before);
        self.spread_news(node);
    }

    /// What a node is told when it does a command now.
    pub(crate) fn request<'a>(&self, scope: &'a Scope, node: u8, sent: &'a Sent) -> Request<'a> {
        let place = usize::from(node);
        let resources = scope.wants_of(sent.holder.client);
        Request {
            command: &sent.command,
            holder: sent.holder,
            resources,
            clock: self.node_clock(scope, place),
            wall: scope.node_wall(place, self.now),
            in_time: sent.in_time_until.is_some_and(|until| self.now <= until),
            is_first: sent.is_first(),
            fences_end: scope.fences_end,
            buckets: buckets(resources, scope.shares_bucket).collect(),
            flaw: scope.flaw,
            listeners: self.listeners(node),
        }
    }

    /// Notes that a node had another's keys, or the place of another, when the client asked it.
    pub(crate) fn note_met(&mut self, client: u8) {
        if let Phase::Acquiring(acquiring) = &self.clients[usize::from(client)].phase
            && !acquiring.met
            && let Phase::Acquiring(acquiring) = &mut self.clients[usize::from(client)].phase
        {
            acquiring.met = true;
        }
    }

    /// Carries out one more of the commands for a first grant, except the last; `None` if there is
    /// none.
    fn do_part(
        &mut self,
        scope: &Scope,
        request: &Request<'_>,
        node: usize,
        (progress, remembers, goes_out): (Progress, bool, bool),
    ) -> Option<Progress> {
        let site = &mut self.nodes[node];
        match progress {
            Progress::Untouched if goes_out && request.native().is_some() => {
                let looks_ahead = scope.flaw == Flaw::LooksAhead;
                let is_well = if looks_ahead { remembers } else { site.begin(request) };
                Some(Progress::Begun(is_well))
            }
            Progress::Begun(is_set) => Some(Progress::Raised(is_set, site.raise_natively(request))),
            Progress::Raised(is_set, is_raised) => {
                Some(Progress::Looked(is_set, is_raised, remembers))
            }
            _ => None,
        }
    }

    /// Whether the node still has the memory that the grant relies on.
    pub(crate) fn remembers(&self, scope: &Scope, node: u8, ward: Option<&Ward>) -> bool {
        let (Some(ward), site) = (ward, &self.nodes[usize::from(node)]) else {
            return true;
        };
        let canary = site.store.canary.as_deref().unwrap_or_default();
        let is_there = ward.relied.count_in(canary.as_bytes()).is_some();
        is_there || scope.flaw == Flaw::IgnoresCanary
    }

    fn note_deleted(&mut self, client: u8, draw: u32, node: u8) {
        let background = self.clients[usize::from(client)].background.iter_mut();
        for release in background.filter(|it| it.draw == draw).filter_map(|it| it.release.as_mut())
        {
            release.deleted |= 1 << node;
        }
    }

    /// A reply that no operation waits for changes nothing, unless its connection may break and the
    /// command be sent again.
    pub(crate) fn drop_unheard(&mut self, client: u8) {
        let resends = self.budget.resends.max(self.budget.strays);
        if resends == 0 || self.budget.faults == 0 {
            let nodes = self.nodes.len();
            let first = usize::from(client) * nodes;
            for place in first..first + nodes {
                if self.links[place].has_unheard() {
                    self.links[place].drop_unheard();
                }
            }
        }
    }

    pub(crate) fn deliver(&mut self, scope: &Scope, client: u8, node: u8) -> Result<(), Violation> {
        let Some((op, reply)) = self.take_reply(scope, client, node) else {
            return Ok(());
        };
        self.note(client, node, (1_u8, &reply));
        self.act(scope, client, |actor| {
            actor.hear(op, &[(NodeId(node), reply)]);
        })
    }

    /// The next reply, after the guards have checked it.
    fn take_reply(&mut self, scope: &Scope, client: u8, node: u8) -> Option<(Op, Reply)> {
        while let Some(sent) = self.link_mut(client, node).take_to_replay() {
            self.ask_again(scope, client, node, sent);
        }
        let (op, mut reply, ward) = self.link_mut(client, node).take_reply()?;
        if let Some(ward) = ward {
            let has_forgotten = reply.answer.is_err();
            let counts = self.inspect_grant(scope, client, node, &ward, has_forgotten);
            if matches!(reply.answer, Ok(Answer::Ours { .. })) {
                if counts {
                    self.nodes[usize::from(node)].is_misled |= ward.is_misled;
                } else {
                    reply.answer = Err(Fault::new(FaultKind::Quarantined, ""));
                }
            }
        }
        Some((op, reply))
    }

    /// Asks again for a grant that is in doubt.
    fn ask_again(&mut self, scope: &Scope, client: u8, node: u8, sent: Sent) {
        if let Some(ward) = &sent.ward {
            self.inspect_grant(scope, client, node, ward, false);
        }
        let is_late = sent.command.not_after < self.boot(scope, client);
        let ward = self.ward(scope, client, node, &sent.command);
        self.link_mut(client, node).ask_again(sent, ward, is_late);
    }

    pub(crate) fn deliver_all(&mut self, scope: &Scope, client: u8) -> Result<(), Violation> {
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

    /// Whether a message could arrive now.
    pub(crate) fn has_messages(&self) -> bool {
        if self.has_news() {
            return true;
        }
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
