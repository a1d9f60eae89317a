//! Commands that reach a node later than what was sent after them: those of a connection that broke, which may still be
//! on their way, and those of another process that has the token of a lease (`second_user`). Owns when they are done.

use crate::scope::Scope;
use crate::site::Health;
use crate::step::{Fault, Step};
use crate::world::World;

impl World {
    /// The strays that may be done now: at any time while their node runs.
    pub(crate) fn arrivals(&self, scope: &Scope, steps: &mut Vec<Step>) {
        for client in self.clients.iter() {
            let nodes = self.node_ids().filter(|node| {
                let is_up = self.nodes[usize::from(*node)].health == Health::Up;
                let has_strays = !self.link(client.id, *node).strays.is_empty();
                is_up && has_strays && (!scope.symmetric || self.stands_for_its_like(*node))
            });
            steps.extend(nodes.map(|node| Step::Fault(Fault::Arrive(client.id, node))));
        }
    }

    /// A node does the next stray of a client. Nobody hears what it replies, and nobody counts with it: keys that it
    /// makes expire by themselves.
    pub(crate) fn do_stray(&mut self, scope: &Scope, client: u8, node: u8) {
        let Some(mut sent) = self.link_mut(client, node).strays.pop_front() else {
            return;
        };
        sent.in_time_until = None;
        let place = usize::from(node);
        let before = self.nodes[place].keys.clone();
        let request = self.request(scope, node, &sent);
        if self.remembers(scope, node, sent.ward.as_ref()) {
            let answer = self.nodes[place].run(&request);
            self.note(client, node, (8_u8, answer));
            self.note_second_vote(node, &sent.command, answer);
        } else {
            self.nodes[place].leave(&request);
            self.note(client, node, 8_u8);
        }
        self.fire_watches(node, &before);
        self.spread_news(node);
    }
}
