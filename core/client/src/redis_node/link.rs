//! A session together with its share of a connection. Owns the clock readings and passes the bytes
//! on; decides nothing.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quorlock_protocol::Fault;
use redis::Cmd;
use tokio::time::Instant;

use super::connection::{Connection, Share};
use super::session::{self, ClientId, Facts, GuardProbe, Now, Session, Unanswered};
use super::transport::Outgoing;
use crate::clock;

/// A node's link to its server.
pub(super) struct Link {
    share: Share,
    session: Session,
    clock: Clock,
}

/// Reads the clocks.
pub(super) type Clock = fn() -> Now;

/// What happened on a link.
pub(super) enum Event {
    Answered,
    /// The node was probed; the gate may have changed.
    Probed,
    /// The connection has failed.
    Lost(Fault),
}

impl Now {
    pub(super) fn read() -> Self {
        Self { boot: clock::now(), awake: Instant::now() }
    }
}

impl Link {
    /// A link over `share`, to the server that `facts` describes.
    pub(super) fn new(
        share: Share,
        facts: Facts,
        prefix: &str,
        guard_probe: GuardProbe,
        clock: Clock,
    ) -> Self {
        let known = share.connection().known();
        let session = Session::new(known, facts, prefix, guard_probe, clock());
        Self { share, session, clock }
    }

    /// The session, for calls that neither send nor need a clock.
    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    /// Calls the session with the clocks' readings, and passes what it sends to the connection.
    pub(super) fn drive<T>(&mut self, act: impl FnOnce(&mut Session, Now) -> T) -> T {
        let result = act(&mut self.session, (self.clock)());
        self.flush();
        result
    }

    /// The bytes are written by the next [`Self::poll_event`].
    fn flush(&mut self) {
        let outgoing = self.session.outgoing();
        if outgoing.calls() > 0 {
            self.share.open().request(outgoing);
        }
    }

    /// Sends a call that is no lock command, on a link that carries none yet.
    pub(super) async fn ask(&mut self, call: &Cmd) -> Result<(), Fault> {
        self.share.request(&mut Outgoing::from(call));
        poll_fn(|context| self.share.poll_reply(context)).await.map(|_| ())
    }

    /// Probes the node, on a link that carries no command yet, until it is known whether grants
    /// count, or that this depends on other nodes.
    pub(super) async fn examine(&mut self) -> Result<(), Fault> {
        self.drive(Session::probe);
        while self.session.is_probing() {
            if let Event::Lost(fault) = poll_fn(|context| self.poll_event(context)).await {
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Reads and writes as much as possible, up to the next event.
    pub(super) fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        let mut open = self.share.open();
        let received = loop {
            let reply = match ready!(open.poll_reply(context)) {
                Ok(reply) => reply,
                Err(fault) => return Poll::Ready(Event::Lost(fault)),
            };
            if let Some(received) = self.session.receive(reply) {
                break received;
            }
        };
        drop(open);
        let event = self.session.handle(received, (self.clock)());
        self.flush();
        Poll::Ready(match event {
            Ok(session::Event::Answered) => Event::Answered,
            Ok(session::Event::Probed) => Event::Probed,
            Err(fault) => {
                // After bytes that are not Redis's protocol, no later reply can be recognised.
                self.share.fail(&fault);
                Event::Lost(fault)
            }
        })
    }

    /// Asks the connection when any of its users was last answered.
    pub(super) fn note_reply(&mut self) {
        if let Some(moment) = self.connection().last_reply() {
            self.session.note_reply(moment);
        }
    }

    /// The server's name for the connection.
    pub(super) fn client(&self) -> Option<&ClientId> {
        self.connection().client()
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        self.share.connection()
    }

    /// The server answers again: new users are given this connection, unless another one is in use by now.
    pub(super) fn restore(&self) {
        self.share.restore();
    }

    /// Waits, while the other users of the connection continue.
    pub(super) async fn wait(&self, time: Duration) {
        self.share.wait(time).await;
    }

    /// Ends the connection at once if it has no other user, and not a while later.
    pub(super) fn close(self) {
        self.share.close();
    }

    /// Ends the link; returns the requests without an answer.
    pub(super) fn into_unanswered(self) -> Unanswered {
        self.session.into_unanswered()
    }
}
