//! A connection that carries commands: what goes out on it, and what is answered. Never reconnects; that is the
//! actor's.

mod again;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use quorlock_protocol::{Action, Answer, Fault, FaultKind, Moment};
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::call::Call;
use super::connection::{Connection, Share};
use super::contested::Contested;
use super::facts::{Deletion, Facts};
use super::faults;
use super::fences::Fences;
use super::frame::Reply;
use super::gate::Gate;
use super::login::ClientId;
use super::lookout::Lookout;
use super::mail::{Letter, Parcel};
use super::native::{self, Hearing};
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
    out: VecDeque<Out>,
    /// What the server did not do for want of the script, in order.
    undone: VecDeque<Parcel>,
    /// What must not be written before `undone` is.
    waiting: VecDeque<Parcel>,
    merges: bool,
    contested: Contested,
    fences: Fences,
    deletion: Option<Deletion>,
    since: Instant,
    /// When anybody was answered last, as far as was asked.
    heard: Instant,
    has_answered: bool,
    lookout: Lookout,
    /// The server was looked at since it last forgot the scripts.
    is_reexamined: bool,
}

/// A call that is out.
struct Out {
    since: Instant,
    /// The same by the boot clock.
    sent: Moment,
    load: Load,
}

enum Load {
    Parcel(Parcel, Form),
    /// First grants by commands of their own, and what was heard of them.
    Native(Parcel, Hearing),
    Script,
    Fences,
    Facts,
    Look,
}

impl Load {
    fn parcel(&self) -> Option<&Parcel> {
        match self {
            Self::Parcel(parcel, _) | Self::Native(parcel, _) => Some(parcel),
            Self::Script | Self::Fences | Self::Facts | Self::Look => None,
        }
    }

    fn into_parcel(self) -> Option<Parcel> {
        match self {
            Self::Parcel(parcel, _) | Self::Native(parcel, _) => Some(parcel),
            Self::Script | Self::Fences | Self::Facts | Self::Look => None,
        }
    }
}

/// What happened on a link.
pub(super) enum Event {
    Answered,
    /// The node was looked at; the gate may be another.
    Looked,
    Lost(Fault),
}

impl Link {
    pub(super) fn new(share: Share, facts: Facts, prefix: &str, lookout: Lookout) -> Self {
        let deletion = facts.deletion();
        let (known, now) = (share.connection().known(), Instant::now());
        Self {
            digests: known.and_then(|known| known.digests.clone()),
            share,
            facts,
            prefix: prefix.to_owned(),
            call: Call::default(),
            out: VecDeque::new(),
            undone: VecDeque::new(),
            waiting: VecDeque::new(),
            merges: true,
            contested: Contested::default(),
            fences: Fences::default(),
            deletion,
            since: now,
            heard: now,
            has_answered: false,
            lookout,
            is_reexamined: false,
        }
    }

    /// Sends `parcel` behind all that was sent before.
    pub(super) fn send(&mut self, parcel: Parcel) {
        if self.undone.is_empty() {
            self.write(parcel, false);
        } else {
            self.waiting.push_back(parcel);
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
        self.look();
        while self.lookout.is_looking() {
            if let Event::Lost(fault) = poll_fn(|context| self.poll_event(context)).await {
                return Err(fault);
            }
        }
        Ok(())
    }

    /// Looks at the node once more, behind what was sent before.
    pub(super) fn look(&mut self) {
        let look = self.lookout.look();
        self.request_look(look);
    }

    /// Looks at the node and at the server behind its address: another may have taken its place.
    pub(super) fn reexamine(&mut self) {
        self.request(&redis::cmd("INFO"), Load::Facts);
        self.look();
    }

    /// Why the node has no vote of its own; `None` if it has.
    pub(super) fn dependence(&self) -> Option<Fault> {
        self.lookout.dependence()
    }

    /// What becomes of grants.
    pub(super) fn gate(&self) -> &Gate {
        self.lookout.gate()
    }

    /// When the node is to be looked at again, if nothing happens before.
    pub(super) fn look_at(&self) -> Moment {
        self.lookout.look_at()
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
            if let Some(Load::Native(parcel, hearing)) = self.out.front_mut().map(|it| &mut it.load)
            {
                match hearing.hear(parcel, reply) {
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
        if self.out.is_empty() && !self.undone.is_empty() {
            self.redo();
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

    /// How many parcels are not answered.
    pub(super) fn load(&self) -> usize {
        self.out.len() + self.undone.len() + self.waiting.len()
    }

    /// Whether several leases may share a call.
    pub(super) fn merges(&self) -> bool {
        self.merges
    }

    /// Whether `letter` is a grant that the server's own commands do best: nobody else wants it, as far as is known.
    pub(super) fn grants_natively(&mut self, letter: &Letter) -> bool {
        let Action::Grant { fence, .. } = letter.command.action else {
            return false;
        };
        letter.is_first_grant()
            && fence.is_none_or(|fence| self.lookout.allows(fence.proposal.0))
            && !letter.command.claim.resources.as_slice().iter().any(|it| self.contested.take(it))
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
    pub(super) fn into_unanswered(self) -> impl Iterator<Item = Parcel> {
        let out = self.out.into_iter().filter_map(|out| out.load.into_parcel());
        self.undone.into_iter().chain(out).chain(self.waiting)
    }

    fn write(&mut self, mut parcel: Parcel, whole: bool) {
        if let Some(fault) = self.lookout.refusal(&parcel) {
            let is_held_back = fault.kind() == FaultKind::Quarantined;
            return if parcel.was_sent() && !is_held_back {
                parcel.fail(&fault);
            } else {
                parcel.answer_all(&fault);
            };
        }
        if parcel.is_to_be_split() {
            return parcel.split().for_each(|parcel| self.write(parcel, whole));
        }
        let now = clock::now();
        if self.fences.precede(&parcel, now) {
            self.keep_fences(now);
        }
        if self.lookout.wants_look_ahead(&parcel) {
            self.look();
        }
        let relied = self.lookout.relied();
        if parcel.is_native() {
            let means = (self.prefix.as_str(), relied.cloned());
            let mut open = self.share.open();
            let send = |call: &Call| open.request_call(call);
            let hearing = native::write(&mut self.call, &parcel, means, send);
            drop(open);
            parcel.note_sent();
            return self.note_out(Load::Native(parcel, hearing));
        }
        let digests = self.digests.as_ref().filter(|_| !whole);
        let means = (digests, self.deletion);
        let form = wire::encode(&mut self.call, &parcel, means, (&self.prefix, relied));
        parcel.note_sent();
        self.share.open().request_call(&self.call);
        self.note_out(Load::Parcel(parcel, form));
    }

    fn request(&mut self, call: &Cmd, load: Load) {
        self.share.request(call);
        self.note_out(load);
    }

    fn note_out(&mut self, load: Load) {
        self.out.push_back(Out { since: Instant::now(), sent: clock::now(), load });
    }

    fn keep_fences(&mut self, now: Moment) {
        self.fences.write(&mut self.call, now);
        self.share.open().request_call(&self.call);
        self.note_out(Load::Fences);
    }

    fn request_look(&mut self, call: Option<Cmd>) {
        if let Some(call) = call {
            self.request(&call, Load::Look);
        }
    }

    fn handle(&mut self, out: Out, reply: Reply) -> Result<Event, Fault> {
        let (mut parcel, form) = match out.load {
            Load::Parcel(parcel, form) => (parcel, form),
            Load::Native(..) => return Err(faults::garbled()),
            Load::Script => {
                if matches!(&reply, Reply::Other(Value::ServerError(error)) if faults::is_not_permitted(error))
                {
                    self.digests = None;
                }
                return Ok(Event::Answered);
            }
            Load::Fences => {
                if let Some(time) = self.fences.hear(&reply)? {
                    self.lookout.note_clock(time);
                }
                return Ok(Event::Answered);
            }
            Load::Facts => {
                self.facts.renew(&reply.into());
                self.lookout.handle_facts(&self.facts);
                return Ok(Event::Answered);
            }
            Load::Look => {
                let next = self.lookout.handle_look(out.sent, &reply.into(), &self.facts);
                self.request_look(next);
                return Ok(Event::Looked);
            }
        };
        match reply {
            Reply::Other(Value::ServerError(error))
                if faults::is_no_script(&error) && form == Form::ByDigest =>
            {
                parcel.note_undone();
                self.undone.push_back(parcel);
            }
            Reply::Other(Value::Int(0)) if form == Form::Deletion => {
                parcel.note_missed();
                self.send(parcel);
            }
            Reply::Other(Value::ServerError(error))
                if form == Form::Deletion && faults::is_not_there(&error) =>
            {
                self.deletion = None;
                parcel.note_undone();
                self.send(parcel);
            }
            // A single-node cluster takes each lease by itself, and so do the rights to keys.
            Reply::Other(Value::ServerError(error))
                if parcel.letters().len() > 1
                    && (error.code() == "CROSSSLOT" || faults::is_not_permitted(&error)) =>
            {
                self.merges &= error.code() != "CROSSSLOT";
                parcel.note_undone();
                self.send_each(parcel.split());
            }
            Reply::Other(Value::ServerError(error)) => {
                let fault = faults::of_reply(&error, Some(parcel.first()));
                self.heed(&fault);
                parcel.answer_all(&fault);
            }
            reply => {
                let Some(mut answers) = wire::decode(&parcel, form, &reply) else {
                    parcel.answer_all(&faults::garbled());
                    return Err(faults::garbled());
                };
                if parcel.first().is_grant() {
                    self.note_contested(parcel.first(), &answers);
                    let time = wire::time_in(&reply);
                    let look = self.lookout.inspect(out.sent, time, &mut answers, &parcel);
                    self.request_look(look);
                    self.fences.judge(&mut answers);
                } else {
                    if let Some(time) = wire::time_in(&reply) {
                        self.lookout.note_clock(time);
                    }
                    self.lookout.require_vouched(out.sent, &mut answers, &parcel);
                }
                self.drop_withdrawn(&parcel);
                parcel.answer_each(answers);
            }
        }
        Ok(Event::Answered)
    }

    /// A server that has become a replica is asked whom it follows.
    pub(super) fn heed(&mut self, fault: &Fault) {
        if fault.kind() == FaultKind::Replica && self.lookout.is_on() && !self.lookout.is_looking()
        {
            self.reexamine();
        }
    }

    /// Whose first grant was refused is not alone in wanting its resource.
    fn note_contested(&mut self, letter: &Letter, answers: &[Result<Answer, Fault>]) {
        if letter.is_first_grant() && matches!(answers, [Ok(Answer::Theirs { .. })]) {
            for resource in letter.command.claim.resources.as_slice() {
                self.contested.insert(resource);
            }
        }
    }
}

/// A server that breaks connections as such does so sooner; one that closes idle ones, later.
const PROVED_AFTER: Duration = Duration::from_secs(1);
