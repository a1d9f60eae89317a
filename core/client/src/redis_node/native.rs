//! First grants by the server's own commands, which take it half as long as a script. Owns their order and what
//! their replies amount to.
//!
//! For each lease `SET NX PX`, with fencing `ZADD GT` and, now and then, `PEXPIRE`; behind them all `GET` of the canary
//! and `TIME`.
//! They are no transaction, and need to be none:
//! - The canary is read behind the lock keys. Had the node forgotten one of them in between, then also the canary.
//! - A fence is only ever raised, and its end put off, and a grant counts only if it is heard before its key can
//!   have run out: so the key still stood when the fence was raised, and whoever takes the lock next finds it
//!   raised. Who is refused raises it, too, by no more than his clock: tokens need to grow, not to be without gaps.
//! - What is not granted beyond doubt is asked for again by script, which does all or nothing and tells why.

use std::sync::Arc;

use quorlock_protocol::{Action, Answer, Fault, Moment};
use redis::Value;
use smallvec::SmallVec;

use super::call::Call;
use super::faults;
use super::fence_ends::{self, FenceEnds};
use super::frame::Reply;
use super::gate::CANARY_KEY;
use super::mail::{Letter, Parcel};
use crate::keys::{fence_key, lock_key};

/// What the replies to such a parcel have said so far.
pub(super) struct Hearing {
    /// Of the leases, in order.
    outcomes: SmallVec<[Outcome; 1]>,
    /// Those whose fence lasts for long enough as it is, a bit each.
    covered: u32,
    /// Which of its replies is next.
    step: Step,
    /// What must stand in the canary key.
    canary: Arc<str>,
    asks_time: bool,
    stands: bool,
    time: Option<u64>,
}

/// What became of a lease.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// It has its key, and the token that was proposed.
    Granted,
    /// Something stands in the key.
    Refused,
    /// It may have its key, but not all that belongs to it.
    Unclear,
    /// The key could not be set.
    Failed(Fault),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Set,
    Raise,
    Keep,
    Prolong,
    Canary,
    Time,
    End,
}

/// What the commands depend on beside the leases.
pub(super) struct Means<'a> {
    /// Goes before every lock key.
    pub(super) prefix: &'a str,
    /// What must stand in the canary key of a guarded node.
    pub(super) canary: Option<Arc<str>>,
    pub(super) fence_ends: &'a mut FenceEnds,
    pub(super) now: Moment,
}

/// Hands the commands for `parcel` to `send`, one by one.
pub(super) fn write(
    call: &mut Call,
    parcel: &Parcel,
    means: Means<'_>,
    mut send: impl FnMut(&Call),
) -> Hearing {
    let letters = parcel.letters();
    let asks_time = means.canary.is_some() || letters.iter().any(Letter::is_fenced);
    let canary = means.canary.unwrap_or_default();
    let mut covered = 0;
    for (place, letter) in letters.iter().enumerate() {
        let is_covered = means.fence_ends.cover(letter, &canary, means.now);
        covered |= u32::from(is_covered) << place;
        write_one(call, letter, means.prefix, is_covered, &mut send);
    }
    if !canary.is_empty() {
        send(call.begin("GET").arg(CANARY_KEY));
    }
    if asks_time {
        send(call.begin("TIME"));
    }
    let outcomes = SmallVec::with_capacity(letters.len());
    Hearing { outcomes, covered, step: Step::Set, canary, asks_time, stands: true, time: None }
}

fn write_one(
    call: &mut Call,
    letter: &Letter,
    prefix: &str,
    is_covered: bool,
    send: &mut impl FnMut(&Call),
) {
    let Action::Grant { ttl, fence } = letter.command.action else {
        return;
    };
    for resource in letter.command.claim.resources.as_slice() {
        let key = lock_key(prefix, resource);
        call.begin("SET").arg(&key).arg(letter.command.claim.holder.as_str());
        send(call.arg("NX").arg("PX").number(ttl.as_millis()));
        if let Some(fence) = fence {
            call.begin("ZADD").joined(fence_key(&key)).arg("GT").arg("CH");
            send(call.number(fence.proposal.0).arg(FENCE_MEMBER));
        }
        if !is_covered {
            // For a fence that has no end yet, and for one that ends sooner: another's may be needed longer.
            for which in ["NX", "GT"] {
                write_end(call, letter, &key, which, send);
            }
        }
    }
}

/// Puts the end of the fence beside the lock key `key` off, if there is fencing.
fn write_end(
    call: &mut Call,
    letter: &Letter,
    key: &str,
    which: &str,
    send: &mut impl FnMut(&Call),
) {
    if let Some(millis) = fence_ends::millis_kept(letter) {
        call.begin("PEXPIRE").joined(fence_key(key));
        send(call.number(millis).arg(which));
    }
}

impl Hearing {
    /// Takes the next reply to `parcel` in; tells whether it was the last. Fails with what is not Redis's protocol.
    pub(super) fn hear(&mut self, parcel: &Parcel, reply: Reply) -> Result<bool, Fault> {
        let Reply::Other(value) = reply else {
            return Err(faults::garbled());
        };
        match (self.step, value) {
            (Step::Set, value) => {
                let letter = &parcel.letters()[self.outcomes.len()];
                self.outcomes.push(match value {
                    Value::Okay => Outcome::Granted,
                    Value::Nil => Outcome::Refused,
                    Value::ServerError(error) => {
                        Outcome::Failed(faults::of_reply(&error, Some(letter)))
                    }
                    _ => return Err(faults::garbled()),
                });
            }
            (Step::Raise, Value::Int(1)) | (Step::Keep | Step::Prolong, Value::Int(0 | 1)) => {}
            (Step::Raise, Value::Int(0))
            | (Step::Raise | Step::Keep | Step::Prolong, Value::ServerError(_)) => {
                if let Some(outcome @ Outcome::Granted) = self.outcomes.last_mut() {
                    *outcome = Outcome::Unclear;
                }
            }
            (Step::Canary, Value::BulkString(text)) => {
                self.stands &= text == self.canary.as_bytes();
            }
            (Step::Canary, Value::Nil) | (Step::Canary | Step::Time, Value::ServerError(_)) => {
                self.stands = false;
            }
            (Step::Time, Value::Array(parts)) => {
                self.time = Some(micros(&parts).ok_or_else(faults::garbled)?);
            }
            _ => return Err(faults::garbled()),
        }
        self.step = self.next(parcel);
        Ok(self.step == Step::End)
    }

    fn next(&self, parcel: &Parcel) -> Step {
        let letters = parcel.letters();
        match self.step {
            Step::Set if letters[self.outcomes.len() - 1].is_fenced() => Step::Raise,
            Step::Raise if !self.covers(self.outcomes.len() - 1) => Step::Keep,
            Step::Keep => Step::Prolong,
            Step::Set | Step::Raise | Step::Prolong if self.outcomes.len() < letters.len() => {
                Step::Set
            }
            Step::Set | Step::Raise | Step::Prolong if !self.canary.is_empty() => Step::Canary,
            Step::Set | Step::Raise | Step::Prolong | Step::Canary if self.asks_time => Step::Time,
            Step::Set | Step::Raise | Step::Prolong | Step::Canary | Step::Time | Step::End => {
                Step::End
            }
        }
    }

    fn covers(&self, place: usize) -> bool {
        self.covered >> place & 1 == 1
    }

    /// Whether more was asked of the node than to set the keys.
    pub(super) fn asks_time(&self) -> bool {
        self.asks_time
    }

    /// The node's clock, in microseconds.
    pub(super) fn time(&self) -> Option<u64> {
        self.time
    }

    /// Hands commands to `send` that give an end to fences which were thought to have one: the node has forgotten it.
    pub(super) fn mend_ends(
        &self,
        call: &mut Call,
        parcel: &Parcel,
        prefix: &str,
        mut send: impl FnMut(&Call),
    ) {
        if self.stands {
            return;
        }
        for (place, letter) in parcel.letters().iter().enumerate() {
            for resource in letter.command.claim.resources.as_slice() {
                if self.covers(place) {
                    write_end(call, letter, &lock_key(prefix, resource), "NX", &mut send);
                }
            }
        }
    }

    /// Writes down for which granted leases of `parcel` the fence had its end put off, by commands that were sent at
    /// `sent`.
    pub(super) fn note_ends(&self, parcel: &Parcel, sent: Moment, ends: &mut FenceEnds) {
        for (place, (letter, outcome)) in parcel.letters().iter().zip(self.outcomes()).enumerate() {
            if matches!(outcome, Outcome::Granted) && !self.covers(place) {
                ends.note(letter, &self.canary, sent);
            }
        }
    }

    /// What became of each lease, in order. Nothing is certain on a node whose canary does not stand.
    pub(super) fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        let certain = |outcome| match outcome {
            &Outcome::Granted if !self.stands => &Outcome::Unclear,
            outcome => outcome,
        };
        self.outcomes.iter().map(certain)
    }

    /// The answers to those letters of `parcel` that were granted.
    pub(super) fn granted(&self, parcel: &Parcel) -> impl Iterator<Item = Answer> {
        let letters = parcel.letters().iter().zip(self.outcomes());
        letters.filter(|(_, outcome)| matches!(outcome, Outcome::Granted)).map(|(letter, _)| {
            let token = match letter.command.action {
                Action::Grant { fence, .. } => fence.map(|fence| fence.proposal),
                _ => None,
            };
            Answer::Ours { token, remaining: None }
        })
    }
}

/// The microseconds in a reply to `TIME`: seconds, and microseconds of the second.
fn micros(parts: &[Value]) -> Option<u64> {
    let [Value::BulkString(seconds), Value::BulkString(micros)] = parts else {
        return None;
    };
    let number = |digits: &[u8]| std::str::from_utf8(digits).ok()?.parse::<u64>().ok();
    number(seconds)?.checked_mul(1_000_000)?.checked_add(number(micros)?)
}

const _: () = assert!(Parcel::MAX_GRANTS <= u32::BITS as usize, "a bit for each lease of a parcel");

/// The member of a fence, a sorted set of one: its score is the token. Only scores can be raised without being read.
const FENCE_MEMBER: &str = "token";
