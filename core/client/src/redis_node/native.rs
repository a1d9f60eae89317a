//! First grants by the server's own commands, which take it half as long as a script. Owns their order and what
//! their replies amount to.
//!
//! For each lease `SET NX PX` and, with fencing, `ZADD GT` in the table of fences; behind them all `GET` of the canary
//! and `TIME`.
//! They are no transaction, and need to be none:
//! - The canary is read behind the lock keys. Had the node forgotten one of them in between, then also the canary.
//! - A fence is only ever raised, and a grant counts only if it is heard before its key can have run out: so the key
//!   still stood when the fence was raised, and whoever takes the lock next finds it raised. Who is refused raises it,
//!   too, by no more than his clock: tokens need to grow, not to be without gaps.
//! - A token counts only if it lies within a second of the node's clock, which is read last: what the node has forgotten
//!   of its fences, its clock makes up for.
//! - What is not granted beyond doubt is asked for again by script, which does all or nothing and tells why.

use quorlock_protocol::{Action, Answer, Fault, Fence, Relied};
use redis::Value;
use smallvec::SmallVec;

use super::batch::{Batch, Request};
use super::call::Call;
use super::faults;
use super::frame::Reply;
use super::gate::CANARY_KEY;
use crate::keys::{FENCES_KEY, bucket, lock_key};

/// What the replies to such a batch have said so far.
pub(super) struct NativeReply {
    /// Of the leases, in order.
    outcomes: SmallVec<[Outcome; 1]>,
    /// Which of its replies is next.
    step: Step,
    /// What must stand in the canary key of a guarded node.
    relied: Option<Relied>,
    /// How often the canary was beaten that stood there.
    count: Option<u64>,
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
    Canary,
    Time,
    End,
}

/// Hands the commands for `batch` to `send`, one by one. `prefix` goes before every lock key; on a guarded node
/// `relied` is what must stand in the canary key.
pub(super) fn write(
    call: &mut Call,
    batch: &Batch,
    (prefix, relied): (&str, Option<Relied>),
    mut send: impl FnMut(&Call),
) -> NativeReply {
    let requests = batch.requests();
    let asks_time = relied.is_some() || requests.iter().any(Request::is_fenced);
    let relied = relied.filter(|relied| !relied.is_anything());
    for request in requests {
        write_one(call, request, prefix, &mut send);
    }
    if relied.is_some() {
        send(call.begin("GET").arg(CANARY_KEY));
    }
    if asks_time {
        send(call.begin("TIME"));
    }
    let outcomes = SmallVec::with_capacity(requests.len());
    let (count, time) = (None, None);
    NativeReply { outcomes, step: Step::Set, relied, count, asks_time, stands: true, time }
}

fn write_one(call: &mut Call, request: &Request, prefix: &str, send: &mut impl FnMut(&Call)) {
    let Action::Grant { ttl, fence } = request.command.action else {
        return;
    };
    for resource in request.command.claim.resources.as_slice() {
        let key = lock_key(prefix, resource);
        call.begin("SET").arg(&key).arg(request.command.claim.holder.as_str());
        send(call.arg("NX").arg("PX").number(ttl.as_millis()));
        if let Some(fence) = fence {
            call.begin("ZADD").arg(FENCES_KEY).arg("GT").arg("CH");
            send(call.number(fence.proposal.0).number(bucket(&key)));
        }
    }
}

impl NativeReply {
    /// Takes the next reply to `batch` in; tells whether it was the last. Fails with what is not Redis's protocol.
    pub(super) fn hear(&mut self, batch: &Batch, reply: Reply) -> Result<bool, Fault> {
        let Reply::Other(value) = reply else {
            return Err(faults::garbled());
        };
        match (self.step, value) {
            (Step::Set, value) => {
                let request = &batch.requests()[self.outcomes.len()];
                self.outcomes.push(match value {
                    Value::Okay => Outcome::Granted,
                    Value::Nil => Outcome::Refused,
                    Value::ServerError(error) => {
                        Outcome::Failed(faults::of_reply(&error, Some(request)))
                    }
                    _ => return Err(faults::garbled()),
                });
            }
            (Step::Raise, Value::Int(1)) => {}
            (Step::Raise, Value::Int(0) | Value::ServerError(_)) => {
                if let Some(outcome @ Outcome::Granted) = self.outcomes.last_mut() {
                    *outcome = Outcome::Unclear;
                }
            }
            (Step::Canary, Value::BulkString(text)) => {
                self.count = self.relied.as_ref().and_then(|relied| relied.count_in(&text));
                self.stands &= self.count.is_some();
            }
            (Step::Canary, Value::Nil) | (Step::Canary | Step::Time, Value::ServerError(_)) => {
                self.stands = false;
            }
            (Step::Time, Value::Array(parts)) => {
                self.time = Some(micros(&parts).ok_or_else(faults::garbled)?);
            }
            _ => return Err(faults::garbled()),
        }
        self.step = self.next(batch);
        Ok(self.step == Step::End)
    }

    fn next(&self, batch: &Batch) -> Step {
        let requests = batch.requests();
        match self.step {
            Step::Set if requests[self.outcomes.len() - 1].is_fenced() => Step::Raise,
            Step::Set | Step::Raise if self.outcomes.len() < requests.len() => Step::Set,
            Step::Set | Step::Raise if self.relied.is_some() => Step::Canary,
            Step::Set | Step::Raise | Step::Canary if self.asks_time => Step::Time,
            Step::Set | Step::Raise | Step::Canary | Step::Time | Step::End => Step::End,
        }
    }

    /// Whether more was asked of the node than to set the keys.
    pub(super) fn asks_time(&self) -> bool {
        self.asks_time
    }

    /// How often the canary was beaten that stood there, if it was the right one.
    pub(super) fn count(&self) -> Option<u64> {
        self.count
    }

    /// The node's clock, in microseconds.
    pub(super) fn time(&self) -> Option<u64> {
        self.time
    }

    /// What became of each lease of `batch`, in order. Nothing is certain on a node whose canary does not stand, nor
    /// what its clock does not allow.
    pub(super) fn outcomes(&self, batch: &Batch) -> impl Iterator<Item = &Outcome> {
        let certain = |(outcome, request)| match outcome {
            &Outcome::Granted if !self.stands || !self.is_timely(request) => &Outcome::Unclear,
            outcome => outcome,
        };
        self.outcomes.iter().zip(batch.requests()).map(certain)
    }

    /// Whether the proposal for a lease lies where the node's clock is.
    fn is_timely(&self, request: &Request) -> bool {
        proposed(request).is_none_or(|fence| {
            self.time.is_some_and(|time| time.abs_diff(fence.proposal.0) <= Fence::SLACK_MICROS)
        })
    }

    /// The answers to those requests of `batch` that were granted.
    pub(super) fn granted(&self, batch: &Batch) -> impl Iterator<Item = Answer> {
        let requests = batch.requests().iter().zip(self.outcomes(batch));
        requests.filter(|(_, outcome)| matches!(outcome, Outcome::Granted)).map(|(request, _)| {
            Answer::Ours { token: proposed(request).map(|fence| fence.proposal), remaining: None }
        })
    }
}

fn proposed(request: &Request) -> Option<Fence> {
    match request.command.action {
        Action::Grant { fence, .. } => fence,
        _ => None,
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
