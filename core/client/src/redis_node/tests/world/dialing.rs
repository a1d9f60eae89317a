//! Connects the users of a world as the dialer does, with the handshake that ships.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use futures::task::noop_waker_ref;

use super::{ServerSide, Way, World, clock};
use crate::redis_node::connection::{Connection, ConnectionRegistry, Share};
use crate::redis_node::link::Link;
use crate::redis_node::session::{GuardProbe, Handshake, Told};
use crate::redis_node::tests::stream::Wire;
use crate::redis_node::transport::{Outgoing, Pipe};

impl World {
    /// A link over the connection that there is, or a new one, as the dialer makes it. The server ends connection `lost`.
    pub(super) fn connect(&mut self, lost: Option<usize>) -> Link {
        let predecessor = lost.and_then(|lost| self.connections[lost].client.clone());
        let mut outgoing = Outgoing::default();
        let current = self.users.iter().find_map(|user| match &user.way {
            Way::Up(link) => Some(Arc::clone(link.connection())),
            Way::Down(..) | Way::Moving => None,
        });
        let current = current.filter(|connection| !connection.has_ended());
        let (share, handshake) = if let Some(connection) = current {
            let handshake = Handshake::ask(predecessor.as_ref(), &mut outgoing);
            (connection.share(), handshake)
        } else {
            let wire = Wire::default();
            let address = Arc::new("redis://test".parse().expect("an address"));
            let pipe = Pipe::new(Box::new(wire.clone()));
            let share = Connection::over(pipe, &address, Weak::<EmptyRegistry>::new());
            let (calls, replies) = (VecDeque::new(), VecDeque::new());
            self.connections.push(ServerSide { wire, calls, replies, client: None });
            let handshake = Handshake::log_in(&address, predecessor.as_ref(), &mut outgoing);
            (share, handshake)
        };
        let told = self.converse(&share, handshake, outgoing);
        let side = self.connections.last_mut().expect("a connection");
        if side.client.is_none() {
            side.client.clone_from(&told.known.client);
            share.connection().learn(told.known);
        }
        Link::new(share, told.facts, "", GuardProbe::new(None, Arc::default()), clock)
    }

    /// Does everything on the connection until the handshake has ended.
    fn converse(
        &mut self,
        share: &Share,
        mut handshake: Handshake,
        mut outgoing: Outgoing,
    ) -> Told {
        let mut context = Context::from_waker(noop_waker_ref());
        loop {
            share.request(&mut outgoing);
            match share.poll_reply(&mut context) {
                Poll::Ready(reply) => {
                    let reply = reply.expect("a connection that stands");
                    if let Some(told) =
                        handshake.handle_reply(reply, &mut outgoing).expect("a server")
                    {
                        return told;
                    }
                }
                Poll::Pending => {
                    self.read_calls();
                    let side = self.connections.last_mut().expect("a connection");
                    if side.replies.is_empty() {
                        self.execute(self.connections.len() - 1);
                    }
                    self.deliver();
                }
            }
        }
    }
}

/// The registry of these connections, which keeps none.
struct EmptyRegistry;

impl ConnectionRegistry for EmptyRegistry {
    fn handle_unused(self: Arc<Self>, _: &Arc<Connection>, _: u64, _: bool) {}
    fn dismiss(&self, _: &Arc<Connection>) {}
    fn restore(&self, _: &Arc<Connection>) {}
}
