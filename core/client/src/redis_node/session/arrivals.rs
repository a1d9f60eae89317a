//! Requests that arrived together. Owns which of them are sent at all, and lets them share calls
//! where they may.

use quorlock_protocol::{Fault, FaultKind};

use super::batcher::Batcher;
use super::in_flight::{InFlightKind, Now};
use super::machine::Session;
use super::request::{PlainCall, Request};

/// Requests that arrived together, on their way into a session.
pub(crate) struct Arrivals<'a> {
    session: &'a mut Session,
    batcher: Batcher,
    /// The server is silent: only revokes are sent to it, as they must follow their grants.
    is_hung: bool,
    now: Now,
}

impl<'a> Arrivals<'a> {
    pub(crate) fn new(session: &'a mut Session, is_hung: bool, now: Now) -> Self {
        Self { session, batcher: Batcher::default(), is_hung, now }
    }

    /// Sends `request`, or answers it if it must not be sent.
    pub(crate) fn request(&mut self, request: Request) {
        let Self { session, batcher, is_hung, now } = self;
        if request.command.not_after < now.boot {
            let has_waited = request.command.not_after < session.ready;
            return request.refuse(&late(has_waited), now.boot);
        }
        if *is_hung && (!request.is_revoke() || session.is_full()) {
            return request.refuse(&Fault::new(FaultKind::NotSent, SILENT), now.boot);
        }
        let traits = session.traits_of(&request, *now);
        batcher.add(request, traits, |batch| session.send(batch, *now));
    }

    /// Probes the node before the requests that follow.
    pub(crate) fn probe(&mut self) {
        self.flush();
        if !self.is_hung {
            self.session.probe(self.now);
        }
    }

    /// Sends a call that is no lock command, after the requests before it. A silent server gets none:
    /// the asker then finds its channel closed.
    pub(crate) fn plain(&mut self, PlainCall { call, asker }: PlainCall) {
        self.flush();
        if !self.is_hung {
            self.session.command(&call, InFlightKind::Plain(asker), self.now);
        }
    }

    /// Sends the remaining batches.
    pub(crate) fn finish(mut self) {
        self.flush();
    }

    fn flush(&mut self) {
        let Self { session, batcher, now, .. } = self;
        batcher.finish(|batch| session.send(batch, *now));
    }
}

/// The fault of a command that is sent too late: the node was not connected, or this process did
/// not run.
fn late(had_no_connection: bool) -> Fault {
    if had_no_connection {
        Fault::new(FaultKind::NotSent, "it was connected to too late")
    } else {
        Fault::new(FaultKind::Late, "this process came to it too late to send it")
    }
}

/// The words for a server that leaves calls unanswered.
pub(crate) const SILENT: &str = "the node is connected, but does not answer";
