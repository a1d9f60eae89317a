//! Encodes batches as calls, and decodes replies into answers. Owns the format; sends nothing.

use std::time::Duration;

use quorlock_protocol::{
    Action, Answer, Fault, FaultKind, Fence, FencingToken, Frees, Place, Relied, Resource, Ticket,
};
use redis::Value;
use smallvec::{SmallVec, smallvec};

use super::batch::Batch;
use super::facts::Deletion;
use super::faults;
use super::gate::CANARY_KEY;
use super::request::Request;
use super::scripts::{Digests, Script};
use crate::keys::{FENCES_KEY, bucket, lives_key, lock_key, queue_key};
use crate::redis_node::transport::{Call, Reply};

/// Which call a batch became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `DELIFEQ` or `DELEX`, where the server has it: a revoke of one resource, of a lease or of a
    /// first round. If nothing was deleted, the reply does not say why, and the script is asked
    /// next. Later rounds are usually lost to other clients, so they use the script at once.
    Deletion,
    /// `EVALSHA`.
    ByDigest,
    /// `EVAL`.
    Whole,
}

/// The answers to a batch, mostly of one request.
pub(super) type Answers = SmallVec<[Result<Answer, Fault>; 1]>;

/// Encodes `batch` into `call`: by `digests` if the server knows the scripts, by `deletion` if it
/// has such a command. `prefix` goes before every lock key. A grant takes effect only if the canary
/// key matches `relied`; without `relied` nothing is guarded.
pub(super) fn encode(
    call: &mut Call,
    batch: &Batch,
    (digests, deletion): (Option<&Digests>, Option<Deletion>),
    (prefix, relied): (&str, Option<&Relied>),
) -> Form {
    let request = batch.first();
    if let (Some(deletion), [resource]) = (deletion, request.command.claim.resources.as_slice())
        && request.command.action == Action::REVOKE
        && request.command.ticket == Ticket::default()
        && !batch.has_missed()
    {
        let (key, holder) = (lock_key(prefix, resource), request.command.claim.holder.as_str());
        match deletion {
            Deletion::DelIfEq => call.begin("DELIFEQ").arg(&key).arg(holder),
            Deletion::DelEx => call.begin("DELEX").arg(&key).arg("IFEQ").arg(holder),
        };
        return Form::Deletion;
    }
    let script = script_of(&request.command.action);
    let (name, script_name, form) = match digests {
        Some(digests) => ("EVALSHA", digests.of(script), Form::ByDigest),
        None => ("EVAL", script.text(), Form::Whole),
    };
    call.begin(name).arg(script_name);
    match script {
        Script::Extend => write_extensions(call, batch.requests(), prefix),
        _ => write_one(call, request, (prefix, relied)),
    }
    form
}

/// The answers in the server's reply to `batch`, one for each request; `None` if the reply does not
/// have the expected form.
pub(super) fn decode(batch: &Batch, form: Form, reply: &Reply) -> Option<Answers> {
    let numbers = match (form, reply) {
        (Form::Deletion, Reply::Other(Value::Int(1))) => {
            return Some(smallvec![Ok(Answer::Ours { token: None, remaining: None })]);
        }
        (Form::ByDigest | Form::Whole, Reply::Numbers(numbers)) => numbers,
        _ => return None,
    };
    let requests = batch.requests();
    let extends = requests[0].is_extend();
    let size = if extends { 1 } else { REPLY_NUMBERS };
    // A single reply may have grown at its end; codes stand one after another.
    if extends && numbers.len() != requests.len() {
        return None;
    }
    let replies = requests.iter().zip(numbers.chunks_exact(size));
    let answers: Answers = replies.map_while(|(request, chunk)| answer(request, chunk)).collect();
    (answers.len() == requests.len()).then_some(answers)
}

fn script_of(action: &Action) -> Script {
    match action {
        Action::Grant { place: Some(_), .. } => Script::GrantFair,
        Action::Grant { .. } | Action::Restore { .. } => Script::Grant,
        Action::Extend { .. } => Script::Extend,
        Action::Revoke { calls: true, .. } => Script::RevokeAndCall,
        Action::Revoke { .. } => Script::Revoke,
        Action::RaiseFence { .. } => Script::RaiseFence,
        // Commands of queues go over the wake connection.
        Action::Inspect | Action::Enqueue { .. } | Action::Leave { .. } | Action::CountWaiters => {
            Script::Inspect
        }
    }
}

fn write_extensions(call: &mut Call, requests: &[Request], prefix: &str) {
    let keys: usize = requests.iter().map(|it| it.command.claim.resources.as_slice().len()).sum();
    call.count(keys);
    for resource in requests.iter().flat_map(|it| it.command.claim.resources.as_slice()) {
        call.arg(&lock_key(prefix, resource));
    }
    for request in requests {
        let claim = &request.command.claim;
        let Action::Extend { key_ttl, may_shorten } = request.command.action else {
            continue;
        };
        call.arg(claim.holder.as_str());
        match may_shorten.map(millis) {
            Some(most) => call.arg(&format!("{}/{most}", key_ttl.as_millis())),
            None => call.number(key_ttl.as_millis()),
        };
        call.count(claim.resources.as_slice().len());
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn write_relied(call: &mut Call, relied: Option<&Relied>) {
    match relied.filter(|relied| !relied.is_anything()) {
        Some(relied) => call.arg(CANARY_KEY).arg(&format!("{} {}", relied.count, relied.prefix)),
        None => call.arg("").arg(""),
    };
}

/// The number of the keys, the lock keys, and behind them those of their queues (`has_queues`).
fn write_keys(call: &mut Call, resources: &[Resource], prefix: &str, has_queues: bool) {
    let locks = resources.iter().map(|resource| lock_key(prefix, resource));
    call.count(resources.len() * if has_queues { 3 } else { 1 });
    locks.clone().for_each(|lock| {
        call.arg(&lock);
    });
    if has_queues {
        locks.clone().for_each(|lock| {
            call.arg(&queue_key(&lock));
        });
        locks.for_each(|lock| {
            call.arg(&lives_key(&lock));
        });
    }
}

fn write_one(call: &mut Call, request: &Request, (prefix, relied): (&str, Option<&Relied>)) {
    let claim = &request.command.claim;
    let resources = claim.resources.as_slice();
    let write_fences = |call: &mut Call| {
        call.arg(FENCES_KEY);
        for resource in resources {
            call.number(bucket(&lock_key(prefix, resource)));
        }
    };
    let action = request.command.action;
    write_keys(call, resources, prefix, script_of(&action).has_queues());
    match action {
        Action::Grant { .. } => write_relied(call, relied),
        Action::Restore { .. } => write_relied(call, None),
        _ => {}
    }
    call.arg(claim.holder.as_str());
    match action {
        Action::Grant { key_ttl, fence, place } => {
            call.number(key_ttl.as_millis());
            if let Some(Fence { proposal, .. }) = fence {
                write_fences(call.number(proposal.0));
            }
            if let Some(Place { arrived, waiter }) = place {
                call.arg(&waiter.to_string()).number(arrived);
            }
        }
        Action::Restore { key_ttl } => {
            call.number(key_ttl.as_millis());
        }
        Action::Revoke { max_remaining: Some(most), .. } => {
            call.number(millis(most));
        }
        Action::RaiseFence { token, .. } => write_fences(call.number(token.0)),
        Action::Inspect => write_fences(call),
        _ => {}
    }
}

/// The answer in `{code, token, pttl, time}`, or in the code alone; `None` for numbers that no script of ours
/// replies.
fn answer(request: &Request, numbers: &[i64]) -> Option<Result<Answer, Fault>> {
    let (code, token, pttl) = match *numbers {
        [code] => (code, 0, -2),
        [code, token, pttl, _time] => (code, token, pttl),
        _ => return None,
    };
    let token = match u64::try_from(token).ok()? {
        0 => None,
        token => Some(FencingToken(token)),
    };
    let millis = u64::try_from(pttl).ok().map(Duration::from_millis);
    Some(match code {
        1 => {
            let remaining = millis.filter(|_| request.command.action == Action::Inspect);
            Ok(Answer::Ours { token, remaining })
        }
        2 => Ok(Answer::Absent),
        3 => {
            let frees = match (pttl, millis) {
                (-1, _) => Frees::Never,
                (_, Some(left)) => Frees::In(left),
                _ => Frees::Unknown,
            };
            Ok(Answer::Theirs { floor: token, frees })
        }
        5 => Err(Fault::new(FaultKind::Quarantined, FORGOT).lasting(Duration::ZERO)),
        4 => Err(Fault::new(FaultKind::WrongType, faults::wrong_type(request))),
        _ => return None,
    })
}

/// The node's clock in the reply to a grant or an inspection, in microseconds.
pub(super) fn time_in(reply: &Reply) -> Option<u64> {
    let Reply::Numbers(numbers) = reply else {
        return None;
    };
    let time = numbers.get(REPLY_NUMBERS - 1)?;
    u64::try_from(*time).ok().filter(|time| *time > 0)
}

const FORGOT: &str = "the node has forgotten its keys: it is being found out since when";
/// How many numbers a script replies for one claim, unless all are extended.
const REPLY_NUMBERS: usize = 4;
