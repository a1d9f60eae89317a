//! Sends commands again: on the same connection when the server had forgotten the scripts, and on
//! the next one when a connection was lost. Owns their order, and which of them must not go out
//! again.
//!
//! # When the server has forgotten the scripts
//! A call by digest fails with NOSCRIPT then and has no effect. Other calls may be in flight behind it, among them the
//! revoke of the grant that has just failed; another process may load the scripts in between, so that the revoke takes
//! effect although the grant did not. If the grant were simply sent again, nobody would delete its key. So:
//! 1. From the first NOSCRIPT on, nothing new is written; further requests wait.
//! 2. The replies to all calls in flight are awaited. Calls that took effect are answered. The others are kept, in order,
//!    with one exception: a revoke that took effect drops the kept commands of its holder, which are answered as not sent.
//!    A revoke by the server's own command that deleted nothing is kept as well: it goes out behind its grant.
//! 3. When nothing is in flight any more, the scripts are loaded anew, the kept commands go out in order with the text of
//!    their scripts (which cannot fail this way), and then those that have waited.
//!
//! So on each node the commands of one holder take effect in the order of their requests. Those of different holders may
//! change places, as they may on different nodes anyway.
//!
//! # When the connection was lost
//! [`Session::into_unanswered`] gives the commands without an answer, in order. [`Unanswered::replay`] sends them over the
//! next connection before any new request: each at most once more, and only if it is not too late. The server must have
//! ended the lost connection before that (the handshake does it), so that no first copy can follow a second one. A command
//! that was sent and is not sent again is answered as broken: it may have taken effect.

use std::mem;

use quorlock_protocol::{Fault, FaultKind};

use super::batch::Batch;
use super::in_flight::{InFlightKind, Now};
use super::machine::Session;
use super::request::Request;
use super::scripts::{self, Script};

/// What a session has left without an answer, in order.
#[cfg_attr(test, derive(Debug))]
pub(crate) struct Unanswered(Vec<Batch>);

impl Unanswered {
    /// Sends it over the next connection; answers with `fault` what must not be sent again.
    pub(crate) fn replay(self, session: &mut Session, now: Now, fault: &Fault) {
        for batch in self.0 {
            if let Some(batch) = batch.still_wanted(now.boot, fault) {
                session.send(batch, now);
            }
        }
    }

    /// Answers the requests: those that may have taken effect with `lost`, the fault that ended the
    /// connection, and the rest with `problem`, the fault that prevents a new one.
    pub(crate) fn fail(self, lost: &Fault, problem: &Fault, now: Now) {
        for batch in self.0 {
            let fault = if batch.was_sent() { lost } else { problem };
            batch.fail(fault, now.boot);
        }
    }
}

impl Session {
    /// Ends the session; returns the requests without an answer.
    pub(crate) fn into_unanswered(self) -> Unanswered {
        let in_flight = self.in_flight.into_iter().filter_map(|it| it.kind.into_batch());
        Unanswered(self.to_replay.into_iter().chain(in_flight).chain(self.waiting).collect())
    }

    /// Sends batches that had no effect, or one that is in doubt, once more after all others.
    pub(super) fn send_each(&mut self, batches: impl IntoIterator<Item = Batch>, now: Now) {
        for batch in batches {
            if batch.first().is_grant() && self.is_followed(batch.first()) {
                batch.fail(&withdrawn(), now.boot);
            } else if let Some(batch) = batch.still_wanted(now.boot, &late()) {
                self.send(batch, now);
            }
        }
    }

    /// Whether a later command of `request`'s holder was already sent that ends the lease or
    /// extends it. A grant must not follow such a command.
    fn is_followed(&self, request: &Request) -> bool {
        let in_flight = self.in_flight.iter().filter_map(|it| it.kind.batch());
        let mut batches = in_flight.chain(&self.to_replay).chain(&self.waiting);
        batches.any(|batch| !batch.first().is_grant() && batch.concerns_holder_of(request))
    }

    /// Drops the kept commands of a holder whose revoke took effect.
    pub(super) fn drop_withdrawn(&mut self, done: &Batch, now: Now) {
        if self.to_replay.is_empty() || !done.first().is_revoke() {
            return;
        }
        let fault = withdrawn();
        self.to_replay = mem::take(&mut self.to_replay)
            .into_iter()
            .filter_map(|batch| batch.without_holder_of(done.first(), &fault, now.boot))
            .collect();
    }

    /// Sends the kept commands, with the text of their scripts, and then those that have waited.
    pub(super) fn replay_kept(&mut self, now: Now) {
        // Another server that has replaced the first behind the address does not know the scripts
        // either.
        if self.guard_probe.is_on() && !mem::replace(&mut self.is_reexamined, true) {
            self.guard_probe.forget();
            return self.reexamine(now);
        }
        self.is_reexamined = false;
        if self.digests.is_some() {
            for script in Script::ALL {
                self.command(&scripts::load(script), InFlightKind::Script, now);
            }
        }
        let late = late();
        for batch in mem::take(&mut self.to_replay) {
            if let Some(batch) = batch.still_wanted(now.boot, &late) {
                self.write(batch, true, now);
            }
        }
        for batch in mem::take(&mut self.waiting) {
            if let Some(batch) = batch.still_wanted(now.boot, &late) {
                self.write(batch, false, now);
            }
        }
    }
}

fn withdrawn() -> Fault {
    Fault::new(FaultKind::NotSent, "it was revoked before it could be sent again")
}

fn late() -> Fault {
    Fault::new(FaultKind::Late, "it was too late to send it again")
}
