//! A connection that carries commands: what goes out on it, and what is answered. Never reconnects; that is the
//! actor's.

mod replay;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quorlock_protocol::{Action, Answer, Fault, FaultKind, Moment};
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::batch::{Batch, Request};
use super::call::Call;
use super::connection::{Connection, Share};
use super::contention_cache::ContentionCache;
use super::facts::{Deletion, Facts};
use super::faults;
use super::fence_expiry_cache::FenceExpiryCache;
use super::frame::Reply;
use super::gate::Gate;
use super::guard_probe::GuardProbe;
use super::login::ClientId;
use super::native::{self, NativeReply};
use super::scripts::Digests;
use super::wire::{self, Form};
use crate::clock;

/// A node's part of a connection that is logged in, and the commands on it.
pub(super) struct Link {
    share: Share,
    /// What the server calls the scripts; `None` if this user may not load or call them so.
    digests: Option<Digests>,
    facts: Facts,
    prefix: String,
    /// Where calls are put together.
    call: Call,
    /// What is out, in the order of the replies.
    out: VecDeque<InFlight>,
    /// What the server did not do for want of the script, in order.
    to_replay: VecDeque<Batch>,
    /// What must not be written before `to_replay` is.
    waiting: VecDeque<Batch>,
    merges: bool,
    contention: ContentionCache,
    fences: FenceExpiryCache,
    deletion: Option<Deletion>,
    since: Instant,
    /// When anybody was answered last, as far as was asked.
    heard: Instant,
    has_answered: bool,
    guard_probe: GuardProbe,
    /// The server was looked at since it last forgot the scripts.
    is_reexamined: bool,
}

/// A call that is out.
struct InFlight {
    since: Instant,
    /// The same by the boot clock.
    sent: Moment,
    kind: InFlightKind,
}

enum InFlightKind {
    Batch(Batch, Form),
    /// First grants by commands of their own, and what was heard of them.
    Native(Batch, NativeReply),
    Script,
    Fences,
    Facts,
    Probe,
}

impl InFlightKind {
    fn batch(&self) -> Option<&Batch> {
        match self {
            Self::Batch(batch, _) | Self::Native(batch, _) => Some(batch),
            Self::Script | Self::Fences | Self::Facts | Self::Probe => None,
        }
    }

    fn into_batch(self) -> Option<Batch> {
        match self {
            Self::Batch(batch, _) | Self::Native(batch, _) => Some(batch),
            Self::Script | Self::Fences | Self::Facts | Self::Probe => None,
        }
    }
}

/// What happened on a link.
pub(super) enum Event {
    Answered,
    /// The node was looked at; the gate may be another.
    Probed,
    Lost(Fault),
}

impl Link {
    pub(super) fn new(share: Share, facts: Facts, prefix: &str, guard_probe: GuardProbe) -> Self {
        let deletion = facts.deletion();
        let (known, now) = (share.connection().known(), Instant::now());
        Self {
            digests: known.and_then(|known| known.digests.clone()),
            share,
            facts,
            prefix: prefix.to_owned(),
            call: Call::default(),
            out: VecDeque::new(),
            to_replay: VecDeque::new(),
            waiting: VecDeque::new(),
            merges: true,
            contention: ContentionCache::default(),
            fences: FenceExpiryCache::default(),
            deletion,
            since: now,
            heard: now,
            has_answered: false,
            guard_probe,
            is_reexamined: false,
        }
    }

    /// Sends `batch` behind all that was sent before.
    pub(super) fn send(&mut self, batch: Batch) {
        if self.to_replay.is_empty() {
            self.write(batch, false);
        } else {
            self.waiting.push_back(batch);
        }
    }

    /// Asks something that is no command, on a link that carries none yet.
    pub(super) async fn ask(&mut self, call: &Cmd) -> Result<(), Fault> {
        self.share.request(call);
        poll_fn(|context| self.share.poll_reply(context)).await.map(|_| ())
    }

    /// Looks at the node, on a link that carries no command yet, until it is known what becomes of
    /// grants, or that it depends on other nodes.
    pub(super) async fn examine(&mut self) -> Result<(), Fault> {
        self.probe();
        while self.guard_probe.is_probing() {
            if let Event::Lost(fault) = poll_fn(|context| self.poll_event(context)).await {
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Looks at the node once more, behind what was sent before.
    pub(super) fn probe(&mut self) {
        let probe = self.guard_probe.probe();
        self.send_probe(probe);
    }

    /// Looks at the node and at the server behind its address: another may have taken its place.
    pub(super) fn reexamine(&mut self) {
        self.request(&redis::cmd("INFO"), InFlightKind::Facts);
        self.probe();
    }

    /// Why the node has no vote of its own; `None` if it has.
    pub(super) fn dependence(&self) -> Option<Fault> {
        self.guard_probe.dependence()
    }

    /// What becomes of grants.
    pub(super) fn gate(&self) -> &Gate {
        self.guard_probe.gate()
    }

    /// When the node is to be looked at again, if nothing happens before.
    pub(super) fn probe_at(&self) -> Moment {
        self.guard_probe.probe_at()
    }

    /// Has the node remember its fences for longer if that is due; tells when it will be next, if at all.
    pub(super) fn keep_fences_in_time(&mut self) -> Option<Moment> {
        let now = clock::now();
        if self.fences.due().is_some_and(|due| due <= now) {
            self.keep_fences(now);
        }
        self.fences.due()
    }

    /// Reads and writes what can be, up to the next reply.
    pub(super) fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Event> {
        let mut open = self.share.open();
        let heard = loop {
            let reply = match ready!(open.poll_reply(context)) {
                Ok(reply) => reply,
                Err(fault) => return Poll::Ready(Event::Lost(fault)),
            };
            self.has_answered = true;
            if let Some(InFlightKind::Native(batch, native)) =
                self.out.front_mut().map(|it| &mut it.kind)
            {
                match native.hear(batch, reply) {
                    Ok(false) => continue,
                    heard => break Err(heard.map(|_| ())),
                }
            }
            break Ok(reply);
        };
        drop(open);
        let result = match heard {
            Err(native) => self.handle_native(native),
            Ok(reply) => match self.out.pop_front() {
                Some(out) => self.handle(out, reply),
                None => Err(faults::garbled()),
            },
        };
        if self.out.is_empty() && !self.to_replay.is_empty() {
            self.replay();
        }
        Poll::Ready(result.unwrap_or_else(|fault| {
            // What is not Redis's protocol is nobody's reply.
            self.share.fail(&fault);
            Event::Lost(fault)
        }))
    }

    /// Since when the oldest call has been out, or since when the connection is silent, as far as was noted: the
    /// calls of others may lie before it.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        Some(self.out.front()?.since.max(self.heard))
    }

    /// Asks the connection when it was heard last.
    pub(super) fn note_heard(&mut self) {
        self.heard = self.connection().heard().map_or(self.heard, |heard| heard.max(self.heard));
    }

    /// When the latest call was sent that is not answered.
    pub(super) fn asked_at(&self) -> Option<Moment> {
        self.out.back().map(|out| out.sent)
    }

    /// How many batches are not answered.
    pub(super) fn unanswered(&self) -> usize {
        self.out.len() + self.to_replay.len() + self.waiting.len()
    }

    /// Whether several leases may share a call.
    pub(super) fn merges(&self) -> bool {
        self.merges
    }

    /// Whether `request` is a grant that the server's own commands do best: nobody else wants it, as far as is known.
    pub(super) fn grants_natively(&mut self, request: &Request) -> bool {
        let Action::Grant { fence, .. } = request.command.action else {
            return false;
        };
        request.is_first_grant()
            && fence.is_none_or(|fence| self.guard_probe.allows(fence.proposal.0))
            && !request.command.claim.resources.as_slice().iter().any(|it| self.contention.take(it))
    }

    /// Whether it was of use, or could have been, had there been anything to do.
    pub(super) fn has_proved(&self) -> bool {
        self.has_answered || self.since.elapsed() >= PROVED_AFTER
    }

    /// How the server calls its connection.
    pub(super) fn client(&self) -> Option<&ClientId> {
        self.connection().client()
    }

    /// What it is a part of.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        self.share.connection()
    }

    /// It answers again: whoever comes is to use its connection, if no other is used by now.
    pub(super) fn restore(&self) {
        self.share.restore();
    }

    /// Waits, and lets the others on the connection go on.
    pub(super) async fn wait(&self, time: Duration) {
        self.share.wait(time).await;
    }

    /// Ends the connection at once if nobody else uses it, and not a while later.
    pub(super) fn close(self) {
        self.share.close();
    }

    /// Ends the connection; hands back what is not answered, in order.
    pub(super) fn into_unanswered(self) -> impl Iterator<Item = Batch> {
        let out = self.out.into_iter().filter_map(|out| out.kind.into_batch());
        self.to_replay.into_iter().chain(out).chain(self.waiting)
    }

    fn write(&mut self, mut batch: Batch, whole: bool) {
        if let Some(fault) = self.guard_probe.refusal(&batch) {
            let is_held_back = fault.kind() == FaultKind::Quarantined;
            return if batch.was_sent() && !is_held_back {
                batch.fail(&fault);
            } else {
                batch.answer_all(&fault);
            };
        }
        if batch.is_to_be_split() {
            return batch.split().for_each(|batch| self.write(batch, whole));
        }
        let now = clock::now();
        if self.fences.precede(&batch, now) {
            self.keep_fences(now);
        }
        if self.guard_probe.wants_probe_ahead(&batch) {
            self.probe();
        }
        let relied = self.guard_probe.relied();
        if batch.is_native() {
            let means = (self.prefix.as_str(), relied.cloned());
            let mut open = self.share.open();
            let send = |call: &Call| open.request_call(call);
            let native = native::write(&mut self.call, &batch, means, send);
            drop(open);
            batch.note_sent();
            return self.note_out(InFlightKind::Native(batch, native));
        }
        let digests = self.digests.as_ref().filter(|_| !whole);
        let means = (digests, self.deletion);
        let form = wire::encode(&mut self.call, &batch, means, (&self.prefix, relied));
        batch.note_sent();
        self.share.open().request_call(&self.call);
        self.note_out(InFlightKind::Batch(batch, form));
    }

    fn request(&mut self, call: &Cmd, kind: InFlightKind) {
        self.share.request(call);
        self.note_out(kind);
    }

    fn note_out(&mut self, kind: InFlightKind) {
        self.out.push_back(InFlight { since: Instant::now(), sent: clock::now(), kind });
    }

    fn keep_fences(&mut self, now: Moment) {
        self.fences.write(&mut self.call, now);
        self.share.open().request_call(&self.call);
        self.note_out(InFlightKind::Fences);
    }

    fn send_probe(&mut self, call: Option<Cmd>) {
        if let Some(call) = call {
            self.request(&call, InFlightKind::Probe);
        }
    }

    fn handle(&mut self, out: InFlight, reply: Reply) -> Result<Event, Fault> {
        let (mut batch, form) = match out.kind {
            InFlightKind::Batch(batch, form) => (batch, form),
            InFlightKind::Native(..) => return Err(faults::garbled()),
            InFlightKind::Script => {
                if matches!(&reply, Reply::Other(Value::ServerError(error)) if faults::is_not_permitted(error))
                {
                    self.digests = None;
                }
                return Ok(Event::Answered);
            }
            InFlightKind::Fences => {
                if let Some(time) = self.fences.hear(&reply)? {
                    self.guard_probe.note_clock(time);
                }
                return Ok(Event::Answered);
            }
            InFlightKind::Facts => {
                self.facts.renew(&reply.into());
                self.guard_probe.handle_facts(&self.facts);
                return Ok(Event::Answered);
            }
            InFlightKind::Probe => {
                let next = self.guard_probe.handle_probe(out.sent, &reply.into(), &self.facts);
                self.send_probe(next);
                return Ok(Event::Probed);
            }
        };
        match reply {
            Reply::Other(Value::ServerError(error))
                if faults::is_no_script(&error) && form == Form::ByDigest =>
            {
                batch.note_not_done();
                self.to_replay.push_back(batch);
            }
            Reply::Other(Value::Int(0)) if form == Form::Deletion => {
                batch.note_missed();
                self.send(batch);
            }
            Reply::Other(Value::ServerError(error))
                if form == Form::Deletion && faults::is_not_there(&error) =>
            {
                self.deletion = None;
                batch.note_not_done();
                self.send(batch);
            }
            // A single-node cluster takes each lease by itself, and so do the rights to keys.
            Reply::Other(Value::ServerError(error))
                if batch.requests().len() > 1
                    && (error.code() == "CROSSSLOT" || faults::is_not_permitted(&error)) =>
            {
                self.merges &= error.code() != "CROSSSLOT";
                batch.note_not_done();
                self.send_each(batch.split());
            }
            Reply::Other(Value::ServerError(error)) => {
                let fault = faults::of_reply(&error, Some(batch.first()));
                self.heed(&fault);
                batch.answer_all(&fault);
            }
            reply => {
                let Some(mut answers) = wire::decode(&batch, form, &reply) else {
                    batch.answer_all(&faults::garbled());
                    return Err(faults::garbled());
                };
                if batch.first().is_grant() {
                    self.note_contested(batch.first(), &answers);
                    let time = wire::time_in(&reply);
                    let probe = self.guard_probe.inspect(out.sent, time, &mut answers, &batch);
                    self.send_probe(probe);
                    self.fences.judge(&mut answers);
                } else {
                    if let Some(time) = wire::time_in(&reply) {
                        self.guard_probe.note_clock(time);
                    }
                    self.guard_probe.require_vouched(out.sent, &mut answers, &batch);
                }
                self.drop_withdrawn(&batch);
                batch.answer_each(answers);
            }
        }
        Ok(Event::Answered)
    }

    /// A server that has become a replica is asked whom it follows.
    pub(super) fn heed(&mut self, fault: &Fault) {
        if fault.kind() == FaultKind::Replica
            && self.guard_probe.is_on()
            && !self.guard_probe.is_probing()
        {
            self.reexamine();
        }
    }

    /// Whose first grant was refused is not alone in wanting its resource.
    fn note_contested(&mut self, request: &Request, answers: &[Result<Answer, Fault>]) {
        if request.is_first_grant() && matches!(answers, [Ok(Answer::Theirs { .. })]) {
            for resource in request.command.claim.resources.as_slice() {
                self.contention.insert(resource);
            }
        }
    }
}

/// A server that breaks connections as such does so sooner; one that closes idle ones, later.
const PROVED_AFTER: Duration = Duration::from_secs(1);
