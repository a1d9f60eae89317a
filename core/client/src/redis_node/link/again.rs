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

use super::{Event, Link, Load, Out};
use crate::clock;
use crate::redis_node::faults;
use crate::redis_node::login;
use crate::redis_node::mail::{Letter, Parcel};
use crate::redis_node::native::Outcome;
use crate::redis_node::scripts::Script;
use crate::redis_node::wire::Answers;

impl Link {
    /// Answers those first grants of the oldest call that were done; asks for each of the others by script, which
    /// has more to say.
    pub(super) fn handle_native(&mut self, heard: Result<(), Fault>) -> Result<Event, Fault> {
        let Some(Out { sent, load: Load::Native(parcel, hearing), .. }) = self.out.pop_front()
        else {
            return Err(faults::garbled());
        };
        if let Err(fault) = heard {
            parcel.answer_all(&fault);
            return Err(fault);
        }
        let mut granted = Answers::with_capacity(parcel.letters().len());
        granted.extend(hearing.granted(&parcel).map(Ok));
        if let Some(count) = hearing.count() {
            self.lookout.note_count(count);
        }
        let look = self.lookout.inspect(sent, hearing.time(), &mut granted, &parcel);
        self.request_look(look);
        self.fences.judge(&mut granted);
        if granted.len() == parcel.letters().len() {
            parcel.answer_each(granted);
            return Ok(Event::Answered);
        }
        let (mut granted, mut undone) = (granted.into_iter(), Vec::new());
        // When another answer would be here that takes no more than twice as long.
        let now = clock::now();
        let in_time = now + now.since(sent) * 2;
        let outcomes: Vec<_> = hearing.outcomes(&parcel).cloned().collect();
        for (mut parcel, outcome) in parcel.split().zip(outcomes) {
            match outcome {
                Outcome::Granted => parcel.answer_each(granted.next()),
                Outcome::Failed(fault) => {
                    self.heed(&fault);
                    parcel.answer_all(&fault);
                }
                // Nothing else was asked, or there is no time to ask: it is told as it is, and further rounds
                // ask by script.
                Outcome::Refused
                    if !hearing.asks_time() || parcel.first().command.not_after < in_time =>
                {
                    parcel.answer_each([Ok(REFUSED)]);
                }
                Outcome::Refused => {
                    parcel.note_missed();
                    undone.push(parcel);
                }
                Outcome::Unclear => undone.push(parcel),
            }
        }
        self.send_each(undone);
        Ok(Event::Answered)
    }

    /// Sends what was not done together, one by one.
    pub(super) fn send_each(&mut self, parcels: impl IntoIterator<Item = Parcel>) {
        let now = clock::now();
        for parcel in parcels {
            if parcel.first().is_grant() && self.is_followed(parcel.first()) {
                parcel.fail(&withdrawn());
            } else if let Some(parcel) = parcel.still_wanted(now, &late()) {
                self.send(parcel);
            }
        }
    }

    /// Whether something else of `letter`'s holder is out already: what ends a lease, or prolongs it by so much
    /// and no more. A grant must not follow it.
    fn is_followed(&self, letter: &Letter) -> bool {
        let out = self.out.iter().filter_map(|out| out.load.parcel());
        let mut parcels = out.chain(&self.undone).chain(&self.waiting);
        parcels.any(|parcel| !parcel.first().is_grant() && parcel.concerns_holder_of(letter))
    }

    /// What is kept for the holder whose revoke was done is no longer wanted.
    pub(super) fn drop_withdrawn(&mut self, done: &Parcel) {
        if self.undone.is_empty() || !done.first().is_revoke() {
            return;
        }
        let fault = withdrawn();
        self.undone = mem::take(&mut self.undone)
            .into_iter()
            .filter_map(|parcel| parcel.without_holder_of(done.first(), &fault))
            .collect();
    }

    /// Sends what the server did not know the scripts for, and what has waited behind it.
    pub(super) fn redo(&mut self) {
        // A server that has taken the place of another behind the address does not know the scripts.
        if self.lookout.is_on() && !mem::replace(&mut self.is_reexamined, true) {
            self.lookout.forget();
            return self.reexamine();
        }
        self.is_reexamined = false;
        if self.digests.is_some() {
            for script in Script::ALL {
                self.request(&login::load(script), Load::Script);
            }
        }
        let (late, now) = (late(), clock::now());
        for parcel in mem::take(&mut self.undone) {
            if let Some(parcel) = parcel.still_wanted(now, &late) {
                self.write(parcel, true);
            }
        }
        for parcel in mem::take(&mut self.waiting) {
            if let Some(parcel) = parcel.still_wanted(now, &late) {
                self.write(parcel, false);
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
