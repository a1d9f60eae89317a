//! Applies the server's replies to the commands that were sent. Owns which request gets which
//! answer; a reply of the wrong kind ends the session with a fault.

use quorlock_protocol::{Answer, Fault, FaultKind, Frees};
use redis::{ServerError, Value};

use super::batch::Batch;
use super::faults;
use super::in_flight::{InFlight, InFlightKind, Now};
use super::machine::Session;
use super::native::{NativeOutcome, NativeReply};
use super::request::Request;
use super::wire::{self, Answers, Form};
use crate::redis_node::transport::{Reply, garbled};

/// What happened in a session.
pub(crate) enum Event {
    Answered,
    /// The node was probed; the gate may have changed.
    Probed,
}

/// The end of the replies to one call, or to the commands of one native batch.
pub(crate) enum Received {
    Reply(Reply),
    /// All replies were received, or one was not of Redis's protocol.
    Native(Result<(), Fault>),
}

impl Session {
    /// Takes the next reply; `None` if others of the same batch must follow first.
    #[inline]
    pub(crate) fn receive(&mut self, reply: Reply) -> Option<Received> {
        self.has_answered = true;
        if let Some(InFlightKind::Native(batch, native)) =
            self.in_flight.front_mut().map(|it| &mut it.kind)
        {
            return match native.handle_reply(batch, reply) {
                Ok(false) => None,
                received => Some(Received::Native(received.map(|_| ()))),
            };
        }
        Some(Received::Reply(reply))
    }

    /// Applies a reply that was received at `now`. An error is a fault of the connection, which
    /// cannot be used any more.
    pub(crate) fn handle(&mut self, received: Received, now: Now) -> Result<Event, Fault> {
        let InFlight { sent, kind } = self.in_flight.pop_front().ok_or_else(garbled)?;
        let event = match (kind, received) {
            (InFlightKind::Native(batch, native), Received::Native(received)) => {
                self.handle_native((batch, native), received, (sent, now))?;
                Event::Answered
            }
            (InFlightKind::Batch(batch, form), Received::Reply(reply)) => {
                self.handle_batch((batch, form), reply, (sent, now))?;
                Event::Answered
            }
            (InFlightKind::Plain(asker), Received::Reply(reply)) => {
                // An error means that the asker has left.
                let _ = asker.send(reply.into());
                Event::Answered
            }
            (kind, Received::Reply(reply)) => self.handle_own(&kind, reply, (sent, now))?,
            (_, Received::Native(_)) => return Err(garbled()),
        };
        if self.in_flight.is_empty() && !self.to_replay.is_empty() {
            self.replay_kept(now);
        }
        Ok(event)
    }

    /// The reply to a call of the session's own.
    fn handle_own(
        &mut self,
        kind: &InFlightKind,
        reply: Reply,
        (sent, now): (Now, Now),
    ) -> Result<Event, Fault> {
        match kind {
            InFlightKind::Script => {
                if matches!(&reply, Reply::Other(Value::ServerError(error)) if faults::is_not_permitted(error))
                {
                    self.digests = None;
                }
                Ok(Event::Answered)
            }
            InFlightKind::Fences => {
                if let Some(time) = self.fences.handle_reply(&reply)? {
                    self.guard_probe.note_clock(time, now.boot);
                }
                Ok(Event::Answered)
            }
            InFlightKind::Facts => {
                self.facts.renew(&reply.into());
                self.guard_probe.handle_facts(&self.facts);
                Ok(Event::Answered)
            }
            InFlightKind::Probe => {
                let times = (sent.boot, now.boot);
                let next = self.guard_probe.handle_probe(times, &reply.into(), &self.facts);
                self.send_probe(next, now);
                Ok(Event::Probed)
            }
            InFlightKind::Batch(..) | InFlightKind::Native(..) | InFlightKind::Plain(_) => {
                Err(garbled())
            }
        }
    }

    fn handle_batch(
        &mut self,
        (batch, form): (Batch, Form),
        reply: Reply,
        (sent, now): (Now, Now),
    ) -> Result<(), Fault> {
        match reply {
            Reply::Other(Value::ServerError(error)) => {
                self.handle_error((batch, form), &error, now);
                return Ok(());
            }
            Reply::Other(Value::Int(0)) if form == Form::Deletion => {
                let mut batch = batch;
                batch.note_missed();
                self.send(batch, now);
                return Ok(());
            }
            _ => {}
        }
        let Some(mut answers) = wire::decode(&batch, form, &reply) else {
            batch.answer_all(&garbled(), now.boot);
            return Err(garbled());
        };
        let times = (sent.boot, now.boot);
        if batch.first().is_grant() {
            self.note_contention(batch.first(), &answers);
            let time = wire::time_in(&reply);
            let probe = self.guard_probe.inspect(times, time, &mut answers, &batch);
            self.send_probe(probe, now);
            self.fences.judge(&mut answers);
        } else {
            if let Some(time) = wire::time_in(&reply) {
                self.guard_probe.note_clock(time, now.boot);
            }
            self.guard_probe.require_vouched(times, &mut answers, &batch);
        }
        self.drop_withdrawn(&batch, now);
        batch.answer_each(answers, now.boot);
        Ok(())
    }

    /// The server replied to `batch` with an error: it had no effect.
    fn handle_error(&mut self, (mut batch, form): (Batch, Form), error: &ServerError, now: Now) {
        if faults::is_no_script(error) && form == Form::ByDigest {
            batch.note_not_done();
            self.to_replay.push_back(batch);
        } else if form == Form::Deletion && faults::is_not_there(error) {
            self.deletion = None;
            batch.note_not_done();
            self.send(batch, now);
        } else if batch.requests().len() > 1
            && (error.code() == "CROSSSLOT" || faults::is_not_permitted(error))
        {
            // A Redis Cluster of one node refuses calls with keys of several slots, and a user's
            // rights to keys may differ.
            self.may_merge &= error.code() != "CROSSSLOT";
            batch.note_not_done();
            self.send_each(batch.split(), now);
        } else {
            let fault = faults::of_reply(error, Some(batch.first()));
            self.heed(&fault, now);
            batch.answer_all(&fault, now.boot);
        }
    }

    /// Answers the native grants that were done; asks for the others by script, one by one, which says more.
    fn handle_native(
        &mut self,
        (batch, native): (Batch, NativeReply),
        received: Result<(), Fault>,
        (sent, now): (Now, Now),
    ) -> Result<(), Fault> {
        if let Err(fault) = received {
            batch.answer_all(&fault, now.boot);
            return Err(fault);
        }
        let mut granted = Answers::with_capacity(batch.requests().len());
        granted.extend(native.granted(&batch).map(Ok));
        if let Some(count) = native.count() {
            self.guard_probe.note_count(count);
        }
        let times = (sent.boot, now.boot);
        let probe = self.guard_probe.inspect(times, native.time(), &mut granted, &batch);
        self.send_probe(probe, now);
        self.fences.judge(&mut granted);
        if granted.len() == batch.requests().len() {
            batch.answer_each(granted, now.boot);
            return Ok(());
        }
        let (mut granted, mut unclear) = (granted.into_iter(), Vec::new());
        // When the reply to a script would be here, if that takes up to twice as long.
        let in_time = now.boot + now.boot.since(sent.boot) * 2;
        let outcomes: Vec<_> = native.outcomes(&batch).cloned().collect();
        for (mut batch, outcome) in batch.split().zip(outcomes) {
            match outcome {
                NativeOutcome::Granted => batch.answer_each(granted.next(), now.boot),
                NativeOutcome::Failed(fault) => {
                    self.heed(&fault, now);
                    batch.answer_all(&fault, now.boot);
                }
                // A script would tell no more, or there is no time for one: later rounds ask by
                // script.
                NativeOutcome::Refused
                    if !native.asks_time() || batch.first().command.not_after < in_time =>
                {
                    batch.answer_each([Ok(REFUSED)], now.boot);
                }
                NativeOutcome::Refused => {
                    batch.note_missed();
                    unclear.push(batch);
                }
                NativeOutcome::Unclear => unclear.push(batch),
            }
        }
        self.send_each(unclear, now);
        Ok(())
    }

    /// Asks a server that has become a replica which master it follows.
    fn heed(&mut self, fault: &Fault, now: Now) {
        let is_replica = fault.kind() == FaultKind::Replica;
        if is_replica && self.guard_probe.is_on() && !self.guard_probe.is_probing() {
            self.reexamine(now);
        }
    }

    /// A first grant that was refused shows that another client wants the resource.
    fn note_contention(&mut self, request: &Request, answers: &[Result<Answer, Fault>]) {
        if request.is_first_grant() && matches!(answers, [Ok(Answer::Theirs { .. })]) {
            for resource in request.command.claim.resources.as_slice() {
                self.contention.insert(resource);
            }
        }
    }
}

const REFUSED: Answer = Answer::Theirs { floor: None, frees: Frees::Unknown };
