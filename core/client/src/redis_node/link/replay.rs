//! Commands that the server did not do, and that go out again on the same connection. Owns their order.
//!
//! # When the server has forgotten the scripts
//! A call by digest then fails with NOSCRIPT and has no effect. Behind it other calls may be on their
//! way already, among them the revoke of a grant that has just failed; another process may have loaded
//! the scripts again in between, so that the revoke is done although the grant was not. Were the grant
//! simply sent again, its key would be left with no one to delete it. So:
//! 1. From the first NOSCRIPT on nothing new is written; what comes waits.
//! 2. Every call that is out is heard. What was done is answered. What was not is kept, in order, save
//!    that a revoke that was done takes the kept commands of its holder with it: answered as not sent.
//!    A revoke by the server's own command that found nothing is not done: it waits, and goes out behind
//!    its grant.
//! 3. When nothing is out any more, the scripts are loaded anew and the kept commands go out in order
//!    as whole scripts (which cannot fail this way), then what has waited.
//!
//! So on each node the commands of one holder take effect in the order they were handed over in. Those
//! of different holders may change places, as they may over different nodes anyway.

use std::mem;

use quorlock_protocol::{Answer, Fault, FaultKind, Frees};

use super::{Event, InFlight, InFlightKind, Link};
use crate::clock;
use crate::redis_node::batch::{Batch, Request};
use crate::redis_node::faults;
use crate::redis_node::login;
use crate::redis_node::native::Outcome;
use crate::redis_node::scripts::Script;
use crate::redis_node::wire::Answers;

impl Link {
    /// Answers those first grants of the oldest call that were done; asks for each of the others by script, which
    /// has more to say.
    pub(super) fn handle_native(&mut self, heard: Result<(), Fault>) -> Result<Event, Fault> {
        let Some(InFlight { sent, kind: InFlightKind::Native(batch, native), .. }) =
            self.out.pop_front()
        else {
            return Err(faults::garbled());
        };
        if let Err(fault) = heard {
            batch.answer_all(&fault);
            return Err(fault);
        }
        let mut granted = Answers::with_capacity(batch.requests().len());
        granted.extend(native.granted(&batch).map(Ok));
        if let Some(count) = native.count() {
            self.guard_probe.note_count(count);
        }
        let probe = self.guard_probe.inspect(sent, native.time(), &mut granted, &batch);
        self.send_probe(probe);
        self.fences.judge(&mut granted);
        if granted.len() == batch.requests().len() {
            batch.answer_each(granted);
            return Ok(Event::Answered);
        }
        let (mut granted, mut to_replay) = (granted.into_iter(), Vec::new());
        // When another answer would be here that takes no more than twice as long.
        let now = clock::now();
        let in_time = now + now.since(sent) * 2;
        let outcomes: Vec<_> = native.outcomes(&batch).cloned().collect();
        for (mut batch, outcome) in batch.split().zip(outcomes) {
            match outcome {
                Outcome::Granted => batch.answer_each(granted.next()),
                Outcome::Failed(fault) => {
                    self.heed(&fault);
                    batch.answer_all(&fault);
                }
                // Nothing else was asked, or there is no time to ask: it is told as it is, and further rounds
                // ask by script.
                Outcome::Refused
                    if !native.asks_time() || batch.first().command.not_after < in_time =>
                {
                    batch.answer_each([Ok(REFUSED)]);
                }
                Outcome::Refused => {
                    batch.note_missed();
                    to_replay.push(batch);
                }
                Outcome::Unclear => to_replay.push(batch),
            }
        }
        self.send_each(to_replay);
        Ok(Event::Answered)
    }

    /// Sends what was not done together, one by one.
    pub(super) fn send_each(&mut self, batches: impl IntoIterator<Item = Batch>) {
        let now = clock::now();
        for batch in batches {
            if batch.first().is_grant() && self.is_followed(batch.first()) {
                batch.fail(&withdrawn());
            } else if let Some(batch) = batch.still_wanted(now, &late()) {
                self.send(batch);
            }
        }
    }

    /// Whether something else of `request`'s holder is out already: what ends a lease, or prolongs it by so much
    /// and no more. A grant must not follow it.
    fn is_followed(&self, request: &Request) -> bool {
        let out = self.out.iter().filter_map(|out| out.kind.batch());
        let mut batches = out.chain(&self.to_replay).chain(&self.waiting);
        batches.any(|batch| !batch.first().is_grant() && batch.concerns_holder_of(request))
    }

    /// What is kept for the holder whose revoke was done is no longer wanted.
    pub(super) fn drop_withdrawn(&mut self, done: &Batch) {
        if self.to_replay.is_empty() || !done.first().is_revoke() {
            return;
        }
        let fault = withdrawn();
        self.to_replay = mem::take(&mut self.to_replay)
            .into_iter()
            .filter_map(|batch| batch.without_holder_of(done.first(), &fault))
            .collect();
    }

    /// Sends what the server did not know the scripts for, and what has waited behind it.
    pub(super) fn replay(&mut self) {
        // A server that has taken the place of another behind the address does not know the scripts.
        if self.guard_probe.is_on() && !mem::replace(&mut self.is_reexamined, true) {
            self.guard_probe.forget();
            return self.reexamine();
        }
        self.is_reexamined = false;
        if self.digests.is_some() {
            for script in Script::ALL {
                self.request(&login::load(script), InFlightKind::Script);
            }
        }
        let (late, now) = (late(), clock::now());
        for batch in mem::take(&mut self.to_replay) {
            if let Some(batch) = batch.still_wanted(now, &late) {
                self.write(batch, true);
            }
        }
        for batch in mem::take(&mut self.waiting) {
            if let Some(batch) = batch.still_wanted(now, &late) {
                self.write(batch, false);
            }
        }
    }
}

const REFUSED: Answer = Answer::Theirs { floor: None, frees: Frees::Unknown };

fn withdrawn() -> Fault {
    Fault::new(FaultKind::NotSent, "it was revoked before it could be sent again")
}

fn late() -> Fault {
    Fault::new(FaultKind::Late, "it was too late to send it again")
}
