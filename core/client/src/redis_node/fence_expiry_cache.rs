//! Sees to it that the node remembers fences: its table must be there, and have an end that is far enough off, before
//! a fencing token is granted, and from then on for as long as the connection lasts. Owns when it is told so; every
//! grant goes by what it answered.

use std::time::Duration;

use quorlock_protocol::{Answer, Fault, Moment, Ttl};
use redis::Value;

use super::batch::{Batch, Request};
use super::call::Call;
use super::faults;
use super::frame::Reply;
use crate::keys::FENCES_KEY;

/// What is known of the node's table of fences.
#[derive(Default)]
pub(super) struct FenceExpiryCache {
    /// The longest time for which anyone on this connection wants it kept; `None` before the first fenced command.
    retention: Option<Ttl>,
    /// When the node is to be told again.
    due: Moment,
    /// Why it could not be done the last time.
    fault: Option<Fault>,
}

impl FenceExpiryCache {
    /// Whether the node is to be told ahead of `batch`, which goes out at `now`.
    pub(super) fn precede(&mut self, batch: &Batch, now: Moment) -> bool {
        let wanted = batch.requests().iter().filter_map(Request::fence_retention).max();
        let grows = wanted > self.retention;
        self.retention = self.retention.max(wanted);
        wanted.is_some() && (grows || self.due <= now || self.fault.is_some())
    }

    /// When it is to be told again, if nothing happens before; `None` if nobody wants fences.
    pub(super) fn due(&self) -> Option<Moment> {
        self.retention.map(|_| self.due)
    }

    /// Makes `call` the one that tells it, to go out at `now`.
    pub(super) fn write(&mut self, call: &mut Call, now: Moment) {
        let millis = self.retention.map_or(0, Ttl::as_millis);
        call.begin("EVAL").arg(include_str!("../scripts/keep_fences.lua")).count(1);
        call.arg(FENCES_KEY).number(millis);
        self.due = now + KEEP_EVERY;
    }

    /// Takes the node's answer in; tells its clock in microseconds. Fails with what is not Redis's protocol.
    pub(super) fn hear(&mut self, reply: &Reply) -> Result<Option<u64>, Fault> {
        match reply {
            Reply::Other(Value::Int(time)) => {
                self.fault = None;
                u64::try_from(*time).map(Some).map_err(|_| faults::garbled())
            }
            Reply::Other(Value::ServerError(error)) => {
                self.fault = Some(faults::of_fences(error));
                Ok(None)
            }
            _ => Err(faults::garbled()),
        }
    }

    /// Lets no grant of a token count on a node that may forget it at any time, or never.
    pub(super) fn judge(&self, answers: &mut [Result<Answer, Fault>]) {
        let Some(fault) = &self.fault else {
            return;
        };
        for answer in answers {
            if matches!(answer, Ok(Answer::Ours { token: Some(_), .. })) {
                *answer = Err(fault.clone());
            }
        }
    }
}

/// How often a node is told: its table has an end again so soon after it was deleted alone, and what was granted a
/// moment ago is remembered for the retention less so much, at least.
const KEEP_EVERY: Duration = Duration::from_secs(10);
