//! Makes a node keep its table of fences (for each bucket of names, the highest fencing token). The table must exist,
//! and expire late enough, before a token is granted and as long as the connection lasts. Owns when the node is told to
//! keep it, and whether that worked: otherwise no token counts.

use std::time::Duration;

use quorlock_protocol::{Answer, Fault, Moment, Ttl};
use redis::Value;

use super::batch::Batch;
use super::faults;
use super::request::Request;
use crate::keys::FENCES_KEY;
use crate::redis_node::transport::{Call, Reply, garbled};

/// What this session knows of the node's table of fences.
#[derive(Default)]
pub(super) struct FenceExpiryCache {
    /// The longest time for which a command of this session wants fences kept; `None` before the first such command.
    retention: Option<Ttl>,
    /// When the node must be told again.
    due: Moment,
    /// Why it failed the last time.
    fault: Option<Fault>,
}

impl FenceExpiryCache {
    /// Whether the node must be told before `batch`, which is sent at `now`.
    pub(super) fn precede(&mut self, batch: &Batch, now: Moment) -> bool {
        let wanted = batch.requests().iter().filter_map(Request::fence_retention).max();
        let grows = wanted > self.retention;
        self.retention = self.retention.max(wanted);
        wanted.is_some() && (grows || self.due <= now || self.fault.is_some())
    }

    /// When the node must be told again; `None` if no command wanted fences.
    pub(super) fn due(&self) -> Option<Moment> {
        self.retention.map(|_| self.due)
    }

    /// Makes `call` the one that tells the node, sent at `now`.
    pub(super) fn write(&mut self, call: &mut Call, now: Moment) {
        let millis = self.retention.map_or(0, Ttl::as_millis);
        call.begin("EVAL").arg(include_str!("../../scripts/keep_fences.lua")).count(1);
        call.arg(FENCES_KEY).number(millis);
        self.due = now + KEEP_EVERY;
    }

    /// Reads the reply, which has the node's clock in microseconds. Fails if it is not what the script replies.
    pub(super) fn handle_reply(&mut self, reply: &Reply) -> Result<Option<u64>, Fault> {
        match reply {
            Reply::Other(Value::Int(time)) => {
                self.fault = None;
                u64::try_from(*time).map(Some).map_err(|_| garbled())
            }
            Reply::Other(Value::ServerError(error)) => {
                self.fault = Some(faults::of_fences(error));
                Ok(None)
            }
            _ => Err(garbled()),
        }
    }

    /// Turns grants of tokens into the fault if the node could not be told: it may forget the fence, or keep it for ever.
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

/// The time between two such calls. If the table alone is deleted, it expires again after this time at the latest. A
/// fence is remembered for the retention minus this time, at least.
const KEEP_EVERY: Duration = Duration::from_secs(10);
