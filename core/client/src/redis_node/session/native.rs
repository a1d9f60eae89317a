//! First grants by the server's own commands, which cost the server half the time of a script. Owns
//! their order and what their replies mean together.
//!
//! For each lease `SET NX PX` and, with fencing, `ZADD GT` in the table of fences; behind them all `GET` of the canary
//! and `TIME`.
//! They need not be a transaction:
//! - The canary is read behind the lock keys. A node that forgot one of them in between has forgotten the canary too.
//! - A fence is only ever raised, and a grant counts only if its reply comes before its key can have expired. So the key
//!   still stood when the fence was raised, and the next holder finds it raised. A client that is refused raises it too,
//!   by no more than its clock allows: tokens must grow; gaps between them do no harm.
//! - A token counts only if it lies within a second of the node's clock, which is read last: if the node has forgotten
//!   fences, its clock stands in for them.
//! - A grant that is in doubt is asked for again by script, which does all or nothing and says why.

use quorlock_protocol::{Action, Answer, Fault, Fence, Relied};
use redis::Value;
use smallvec::SmallVec;

use super::batch::Batch;
use super::faults;
use super::gate::CANARY_KEY;
use super::request::Request;
use crate::keys::{FENCES_KEY, bucket, lock_key};
use crate::redis_node::transport::{Call, Outgoing, Reply, garbled};

/// What the replies to a batch of native grants have told so far.
#[cfg_attr(test, derive(Debug))]
pub(super) struct NativeReply {
    /// What became of the leases, in order.
    outcomes: SmallVec<[NativeOutcome; 1]>,
    /// Which reply is next.
    step: Step,
    /// What must stand in the canary key of a guarded node.
    relied: Option<Relied>,
    /// How many beats the canary on the node has had.
    count: Option<u64>,
    asks_time: bool,
    stands: bool,
    time: Option<u64>,
}

/// What became of a lease.
#[derive(Clone, Debug)]
pub(super) enum NativeOutcome {
    /// It has its key and the proposed token.
    Granted,
    /// The key exists already.
    Refused,
    /// It may have its key, but not its token.
    Unclear,
    /// The key could not be set.
    Failed(Fault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Set,
    Raise,
    Canary,
    Time,
    End,
}

/// What the commands for native grants depend on.
pub(super) struct NativeContext<'a> {
    /// Goes before every lock key.
    pub(super) prefix: &'a str,
    /// What must stand in the canary key; `None` on a node that is not guarded.
    pub(super) relied: Option<Relied>,
}

/// Puts the commands for `batch` into `outgoing`.
pub(super) fn write(
    call: &mut Call,
    batch: &Batch,
    NativeContext { prefix, relied }: NativeContext<'_>,
    outgoing: &mut Outgoing,
) -> NativeReply {
    let requests = batch.requests();
    let asks_time = relied.is_some() || requests.iter().any(Request::is_fenced);
    let relied = relied.filter(|relied| !relied.is_anything());
    for request in requests {
        write_one(call, request, prefix, outgoing);
    }
    if relied.is_some() {
        outgoing.call(call.begin("GET").arg(CANARY_KEY));
    }
    if asks_time {
        outgoing.call(call.begin("TIME"));
    }
    let outcomes = SmallVec::with_capacity(requests.len());
    let (count, time) = (None, None);
    NativeReply { outcomes, step: Step::Set, relied, count, asks_time, stands: true, time }
}

fn write_one(call: &mut Call, request: &Request, prefix: &str, outgoing: &mut Outgoing) {
    let Action::Grant { key_ttl, fence, .. } = request.command.action else {
        return;
    };
    for resource in request.command.claim.resources.as_slice() {
        let key = lock_key(prefix, resource);
        call.begin("SET").arg(&key).arg(request.command.claim.holder.as_str());
        outgoing.call(call.arg("NX").arg("PX").number(key_ttl.as_millis()));
        if let Some(fence) = fence {
            call.begin("ZADD").arg(FENCES_KEY).arg("GT").arg("CH");
            outgoing.call(call.number(fence.proposal.0).number(bucket(&key)));
        }
    }
}

impl NativeReply {
    /// Takes the next reply to `batch`; tells whether it was the last. Fails if the reply is not
    /// Redis's protocol.
    pub(super) fn handle_reply(&mut self, batch: &Batch, reply: Reply) -> Result<bool, Fault> {
        let Reply::Other(value) = reply else {
            return Err(garbled());
        };
        match (self.step, value) {
            (Step::Set, value) => {
                let request = &batch.requests()[self.outcomes.len()];
                self.outcomes.push(match value {
                    Value::Okay => NativeOutcome::Granted,
                    Value::Nil => NativeOutcome::Refused,
                    Value::ServerError(error) => {
                        NativeOutcome::Failed(faults::of_reply(&error, Some(request)))
                    }
                    _ => return Err(garbled()),
                });
            }
            (Step::Raise, Value::Int(1)) => {}
            (Step::Raise, Value::Int(0) | Value::ServerError(_)) => {
                if let Some(outcome @ NativeOutcome::Granted) = self.outcomes.last_mut() {
                    *outcome = NativeOutcome::Unclear;
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
                self.time = Some(micros(&parts).ok_or_else(garbled)?);
            }
            _ => return Err(garbled()),
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

    /// Whether the node was asked for its clock.
    pub(super) fn asks_time(&self) -> bool {
        self.asks_time
    }

    /// How many beats the canary has had, if it was the right one.
    pub(super) fn count(&self) -> Option<u64> {
        self.count
    }

    /// The node's clock, in microseconds.
    pub(super) fn time(&self) -> Option<u64> {
        self.time
    }

    /// What became of each lease of `batch`, in order. A grant is in doubt if the canary is
    /// missing, or if the node's clock does not allow the token.
    pub(super) fn outcomes(&self, batch: &Batch) -> impl Iterator<Item = &NativeOutcome> {
        let certain = |(outcome, request)| match outcome {
            &NativeOutcome::Granted if !self.stands || !self.is_timely(request) => {
                &NativeOutcome::Unclear
            }
            outcome => outcome,
        };
        self.outcomes.iter().zip(batch.requests()).map(certain)
    }

    /// Whether the proposal for a lease is near the node's clock.
    fn is_timely(&self, request: &Request) -> bool {
        proposed(request).is_none_or(|fence| {
            self.time.is_some_and(|time| time.abs_diff(fence.proposal.0) <= Fence::SLACK_MICROS)
        })
    }

    /// The answers to those requests of `batch` that were granted.
    pub(super) fn granted(&self, batch: &Batch) -> impl Iterator<Item = Answer> {
        let requests = batch.requests().iter().zip(self.outcomes(batch));
        requests.filter(|(_, outcome)| matches!(outcome, NativeOutcome::Granted)).map(
            |(request, _)| Answer::Ours {
                token: proposed(request).map(|fence| fence.proposal),
                remaining: None,
            },
        )
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
