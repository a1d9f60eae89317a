//! The requests that a schedule submits, and the answers that come back. Owns how they are written
//! down in a test.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    Action, Claim, Command, Fence, FencingToken, HolderId, Moment, NodeId, Place, Reply, Resources,
    Ticket, Ttl, Waiter,
};

use super::server::TIME;
use crate::clock::LeaseClock;
use crate::inbox::{Inbox, ReplyTo};
use crate::redis_node::session::Request;

/// What one user asks: groups of requests that arrive together.
pub(super) type Plan = Vec<Vec<Asked>>;

/// One request of a plan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) holder: &'static str,
    pub(super) resource: &'static str,
    pub(super) kind: Kind,
    is_first_round: bool,
    pub(super) is_fenced: bool,
    /// Beside a queue.
    is_queued: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Grant,
    Extend,
    Revoke,
}

/// Of a first round: by the server's own commands, where it has them.
pub(super) fn first(holder: &'static str, kind: Kind) -> Asked {
    Asked {
        holder,
        resource: holder,
        kind,
        is_first_round: true,
        is_fenced: false,
        is_queued: false,
    }
}

/// Of a later round: by script.
pub(super) fn later(holder: &'static str, kind: Kind) -> Asked {
    Asked { is_first_round: false, ..first(holder, kind) }
}

/// Of a fair grant, and of the revoke that calls the first waiter: by scripts of their own.
pub(super) fn queued(holder: &'static str, kind: Kind) -> Asked {
    Asked { is_queued: true, ..first(holder, kind) }
}

/// Of a first round, with a fencing token.
pub(super) fn fenced(holder: &'static str, kind: Kind) -> Asked {
    Asked { is_fenced: true, ..first(holder, kind) }
}

impl Asked {
    /// The same for another resource than the one named like the holder.
    pub(super) fn on(self, resource: &'static str) -> Self {
        Self { resource, ..self }
    }

    fn command(self, deadline: Moment) -> Command {
        let key_ttl = Ttl::from_millis(10_000).expect("a key_ttl");
        let fence = Fence { proposal: FencingToken(TIME), retention: key_ttl };
        let action = match self.kind {
            Kind::Grant => {
                let waiter = Waiter { process: 1, number: 1 };
                let place = self.is_queued.then_some(Place { arrived: TIME, waiter });
                Action::Grant { key_ttl, fence: self.is_fenced.then_some(fence), place }
            }
            Kind::Extend => Action::Extend { key_ttl, may_shorten: None },
            Kind::Revoke => Action::Revoke { calls: self.is_queued, max_remaining: None },
        };
        let claim = Claim {
            resources: Resources::new([self.resource]).expect("a name"),
            holder: HolderId::adopt(self.holder).expect("an id"),
        };
        let not_after = if self.kind == Kind::Revoke { Moment::FAR_FUTURE } else { deadline };
        let ticket = Ticket(u32::from(!self.is_first_round));
        Command { ticket, claim: Arc::new(claim), action, not_after }
    }
}

/// A request that was handed over, and where its answer goes.
pub(super) struct Submitted {
    pub(super) asked: Asked,
    inbox: Arc<Inbox>,
    pub(super) answers: Vec<Reply>,
}

impl Submitted {
    /// Makes the request, which must not be sent for the first time after `deadline`.
    pub(super) fn new(asked: Asked, deadline: Moment) -> (Self, Request) {
        let inbox = Inbox::with_room_for(1, &LeaseClock::default(), None);
        let request = Request::new(asked.command(deadline), ReplyTo::new(&inbox, NodeId(0)));
        (Self { asked, inbox, answers: Vec::new() }, request)
    }

    /// Takes the answers that have come.
    pub(super) fn collect(&mut self) {
        let mut arrivals = Vec::new();
        while self.inbox.try_take(&mut arrivals).is_some() {
            self.answers.extend(arrivals.drain(..).map(|arrival| arrival.reply));
        }
    }
}

/// Time enough for every command of a schedule, unless its step says that it has passed.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);
