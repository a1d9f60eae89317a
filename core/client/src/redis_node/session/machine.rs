//! The session machine: turns requests into bytes that go out. Owns the calls in flight and the
//! order in which they were sent. `replies` applies the answers, `replay` sends again.

use std::collections::VecDeque;
use std::time::Duration;

use quorlock_protocol::{Action, Fault, FaultKind, Moment};
use redis::Cmd;
use tokio::time::Instant;

use super::batch::Batch;
use super::batcher::Traits;
use super::contention_cache::ContentionCache;
use super::facts::{Deletion, Facts};
use super::fence_expiry_cache::FenceExpiryCache;
use super::gate::Gate;
use super::guard_probe::GuardProbe;
use super::handshake::Known;
use super::in_flight::{InFlight, InFlightKind, Now};
use super::native::{self, NativeContext};
use super::request::Request;
use super::scripts::Digests;
use super::wire;
use crate::redis_node::transport::{Call, Outgoing};

/// The commands of one node on one connection that is logged in.
pub(crate) struct Session {
    /// The digests of the scripts; `None` if this user may not load them or call them so.
    pub(super) digests: Option<Digests>,
    pub(super) facts: Facts,
    prefix: String,
    /// Reused for building each call.
    call: Call,
    /// The calls that were not passed to the connection yet.
    outgoing: Outgoing,
    /// The calls without an answer, in the order of their replies.
    pub(super) in_flight: VecDeque<InFlight>,
    /// Batches that the server did not run because it had forgotten the scripts, in order.
    pub(super) to_replay: VecDeque<Batch>,
    /// Batches that must not be sent before `to_replay` is.
    pub(super) waiting: VecDeque<Batch>,
    /// Whether several leases may share a call.
    pub(super) may_merge: bool,
    pub(super) contention: ContentionCache,
    pub(super) fences: FenceExpiryCache,
    /// The server's command that deletes a key by its value, while it is known to work.
    pub(super) deletion: Option<Deletion>,
    began: Instant,
    /// When requests were first accepted: earlier ones had to wait for the connection.
    pub(super) ready: Moment,
    /// When any user of the connection was last answered, as far as this one asked.
    last_reply: Instant,
    pub(super) has_answered: bool,
    pub(super) guard_probe: GuardProbe,
    /// Whether the server was asked who it is since it last forgot the scripts.
    pub(super) is_reexamined: bool,
}

impl Session {
    /// With this many batches unanswered, further requests wait in the queue, and a silent node gets no more revokes.
    const MOST_UNANSWERED: usize = 16 * 1024;
    /// With this many batches unanswered there are many users, who may have more to send.
    const BUSY_FROM: usize = 3;

    /// A session with the server that `facts` describes; `known` is what the log-in told. `prefix`
    /// goes before every lock key.
    pub(crate) fn new(
        known: Option<&Known>,
        facts: Facts,
        prefix: &str,
        guard_probe: GuardProbe,
        now: Now,
    ) -> Self {
        Self {
            digests: known.and_then(|known| known.digests.clone()),
            deletion: facts.deletion(),
            facts,
            prefix: prefix.to_owned(),
            call: Call::default(),
            outgoing: Outgoing::default(),
            in_flight: VecDeque::new(),
            to_replay: VecDeque::new(),
            waiting: VecDeque::new(),
            may_merge: true,
            contention: ContentionCache::default(),
            fences: FenceExpiryCache::default(),
            began: now.awake,
            ready: now.boot,
            last_reply: now.awake,
            has_answered: false,
            guard_probe,
            is_reexamined: false,
        }
    }

    /// Starts to accept requests.
    pub(crate) fn begin(&mut self, now: Now) {
        self.ready = now.boot;
    }

    /// The calls to write, in order. The caller passes them to the connection after each method
    /// that takes a clock reading.
    pub(crate) fn outgoing(&mut self) -> &mut Outgoing {
        &mut self.outgoing
    }

    /// Sends `batch` after everything that was sent before.
    pub(super) fn send(&mut self, batch: Batch, now: Now) {
        if self.to_replay.is_empty() {
            self.write(batch, false, now);
        } else {
            self.waiting.push_back(batch);
        }
    }

    /// Encodes `batch` as a call: with the `whole` script, or by its digest.
    pub(super) fn write(&mut self, mut batch: Batch, whole: bool, now: Now) {
        if let Some(fault) = self.guard_probe.refusal(&batch, now.boot) {
            let is_quarantined = fault.kind() == FaultKind::Quarantined;
            return if batch.was_sent() && !is_quarantined {
                batch.fail(&fault, now.boot);
            } else {
                batch.answer_all(&fault, now.boot);
            };
        }
        if batch.is_to_be_split() {
            return batch.split().for_each(|batch| self.write(batch, whole, now));
        }
        if self.fences.precede(&batch, now.boot) {
            self.keep_fences(now);
        }
        if self.guard_probe.wants_probe_ahead(&batch, now.boot) {
            self.probe(now);
        }
        let relied = self.guard_probe.relied();
        if batch.is_native() {
            let context = NativeContext { prefix: &self.prefix, relied: relied.cloned() };
            let native = native::write(&mut self.call, &batch, context, &mut self.outgoing);
            batch.note_sent();
            return self.note_sent(InFlightKind::Native(batch, native), now);
        }
        let means = (self.digests.as_ref().filter(|_| !whole), self.deletion);
        let form = wire::encode(&mut self.call, &batch, means, (&self.prefix, relied));
        batch.note_sent();
        self.outgoing.call(&self.call);
        self.note_sent(InFlightKind::Batch(batch, form), now);
    }

    /// Probes the node once more, after everything that was sent before.
    pub(crate) fn probe(&mut self, now: Now) {
        let probe = self.guard_probe.probe(now.boot);
        self.send_probe(probe, now);
    }

    /// Probes the node, and asks which server is behind its address: another may have taken its place.
    pub(crate) fn reexamine(&mut self, now: Now) {
        self.command(&redis::cmd("INFO"), InFlightKind::Facts, now);
        self.probe(now);
    }

    /// Makes the node remember its fences for longer if that is due; returns when it will be due
    /// next.
    pub(crate) fn keep_fences_in_time(&mut self, now: Now) -> Option<Moment> {
        if self.fences.due().is_some_and(|due| due <= now.boot) {
            self.keep_fences(now);
        }
        self.fences.due()
    }

    fn keep_fences(&mut self, now: Now) {
        self.fences.write(&mut self.call, now.boot);
        self.outgoing.call(&self.call);
        self.note_sent(InFlightKind::Fences, now);
    }

    pub(super) fn send_probe(&mut self, call: Option<Cmd>, now: Now) {
        if let Some(call) = call {
            self.command(&call, InFlightKind::Probe, now);
        }
    }

    /// Sends a call that is rarely made.
    pub(super) fn command(&mut self, command: &Cmd, kind: InFlightKind, now: Now) {
        self.outgoing.command(command);
        self.note_sent(kind, now);
    }

    fn note_sent(&mut self, kind: InFlightKind, sent: Now) {
        self.in_flight.push_back(InFlight { sent, kind });
    }

    /// How `request` may be sent.
    pub(super) fn traits_of(&mut self, request: &Request, now: Now) -> Traits {
        let is_native = self.grants_natively(request, now);
        Traits { is_native, may_merge: self.may_merge }
    }

    /// Whether `request` is a grant for which the server's own commands are best: as far as is
    /// known, no other client holds its lock.
    fn grants_natively(&mut self, request: &Request, now: Now) -> bool {
        let Action::Grant { fence, .. } = request.command.action else {
            return false;
        };
        request.is_first_grant()
            && fence.is_none_or(|fence| self.guard_probe.allows(fence.proposal.0, now.boot))
            && !request.command.claim.resources.as_slice().iter().any(|it| self.contention.take(it))
    }

    /// Why the node has no vote; `None` if it has one.
    pub(crate) fn dependence(&self) -> Option<Fault> {
        self.guard_probe.dependence()
    }

    /// Whether grants are sent.
    pub(crate) fn gate(&self) -> &Gate {
        self.guard_probe.gate()
    }

    /// Whether a probe is in flight.
    pub(crate) fn is_probing(&self) -> bool {
        self.guard_probe.is_probing()
    }

    /// When the node must be probed again, if nothing happens before.
    pub(crate) fn probe_at(&self) -> Moment {
        self.guard_probe.probe_at()
    }

    /// Since when no user of the connection was answered, while a call of this one waits. It may be
    /// outdated, as other users may have been answered later.
    pub(crate) fn silent_since(&self) -> Option<Instant> {
        Some(self.in_flight.front()?.sent.awake.max(self.last_reply))
    }

    /// Some user of the connection was answered at `moment`.
    pub(crate) fn note_reply(&mut self, moment: Instant) {
        self.last_reply = self.last_reply.max(moment);
    }

    /// When the latest unanswered call was sent.
    pub(crate) fn asked_at(&self) -> Option<Moment> {
        self.in_flight.back().map(|it| it.sent.boot)
    }

    fn unanswered(&self) -> usize {
        self.in_flight.len() + self.to_replay.len() + self.waiting.len()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.unanswered() == 0
    }

    /// Whether further requests must wait in the queue.
    pub(crate) fn is_full(&self) -> bool {
        self.unanswered() >= Self::MOST_UNANSWERED
    }

    /// Whether there are enough users that others probably have something to send as well.
    pub(crate) fn is_busy(&self) -> bool {
        self.unanswered() >= Self::BUSY_FROM
    }

    /// Whether the connection has answered a call, or has existed long enough to have done so.
    pub(crate) fn has_proved(&self, now: Now) -> bool {
        self.has_answered || now.awake.duration_since(self.began) >= PROVED_AFTER
    }
}

#[cfg(test)]
impl Session {
    /// Equal for sessions that behave alike from now on.
    pub(crate) fn fingerprint(&self) -> String {
        let in_flight: Vec<_> = self.in_flight.iter().map(|it| &it.kind).collect();
        let flags = (self.digests.is_some(), self.deletion, self.may_merge, self.is_reexamined);
        format!("{:?}", (in_flight, &self.to_replay, &self.waiting, flags, &self.contention))
    }
}

/// A server that breaks every connection does that sooner; one that closes idle connections does it
/// later.
const PROVED_AFTER: Duration = Duration::from_secs(1);
