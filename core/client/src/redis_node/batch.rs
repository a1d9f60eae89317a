//! What travels through a Redis node: commands with their way back, and batches of them. Knows no wire
//! format.

use std::mem;

use std::time::Duration;

use quorlock_protocol::{Action, Answer, Command, Fault, FaultKind, Moment, Reply, Ticket, Ttl};
use smallvec::{SmallVec, smallvec};

use crate::clock;
use crate::inbox::ReplyTo;

/// What is put into a node's queue.
pub(super) enum NodeMessage {
    Request(Request),
    /// Look at the node before what comes behind.
    Probe,
    Close,
}

/// One command and where its reply goes.
pub(super) struct Request {
    pub(super) command: Command,
    reply_to: ReplyTo,
}

impl Request {
    pub(super) fn new(command: Command, reply_to: ReplyTo) -> Self {
        Self { command, reply_to }
    }

    pub(super) fn answer(self, answer: Result<Answer, Fault>, repeated: bool) {
        self.answer_at(clock::now(), answer, repeated);
    }

    /// The answer came at that moment.
    fn answer_at(self, at: Moment, answer: Result<Answer, Fault>, repeated: bool) {
        self.reply_to.deliver_at(at, Reply { ticket: self.command.ticket, answer, repeated });
    }

    pub(super) fn is_revoke(&self) -> bool {
        self.command.action == Action::Revoke
    }

    pub(super) fn is_grant(&self) -> bool {
        matches!(self.command.action, Action::Grant { .. })
    }

    /// Whether it is the grant of one resource in the first round of an acquisition, which nobody else wants
    /// most of the time.
    pub(super) fn is_first_grant(&self) -> bool {
        self.is_grant() && self.keys() == 1 && self.command.ticket == Ticket::default()
    }

    pub(super) fn is_fenced(&self) -> bool {
        matches!(self.command.action, Action::Grant { fence: Some(_), .. })
    }

    /// For how long it asks the node to keep keys, if it takes or prolongs a lock.
    pub(super) fn keeps(&self) -> Option<Duration> {
        match self.command.action {
            Action::Grant { ttl, .. } | Action::Extend { ttl } | Action::Restore { ttl } => {
                Some(ttl.as_duration())
            }
            Action::Revoke | Action::RaiseFence { .. } | Action::Inspect => None,
        }
    }

    /// The same, if it takes one.
    pub(super) fn grant_keeps(&self) -> Option<Duration> {
        self.keeps().filter(|_| self.is_grant())
    }

    /// How long the node is to remember fences, if it is about one.
    pub(super) fn fence_retention(&self) -> Option<Ttl> {
        match self.command.action {
            Action::Grant { fence, .. } => fence.map(|fence| fence.retention),
            Action::RaiseFence { retention, .. } => Some(retention),
            _ => None,
        }
    }

    pub(super) fn is_extend(&self) -> bool {
        matches!(self.command.action, Action::Extend { .. })
    }

    fn is_of_same_holder(&self, other: &Self) -> bool {
        self.command.claim.holder == other.command.claim.holder
    }

    fn keys(&self) -> usize {
        self.command.claim.resources.as_slice().len()
    }
}

/// Requests that go out together: one, several extensions, or several first grants.
pub(super) struct Batch {
    /// Never empty.
    requests: SmallVec<[Request; 1]>,
    keys: usize,
    /// How often it went out and may have been done.
    sends: u8,
    /// First grants that go by the server's own commands.
    is_native: bool,
    /// The server's own command did not do it: the script has yet to tell why.
    has_missed: bool,
}

impl Batch {
    /// The most leases that are extended by one call: a node runs nothing else meanwhile.
    const MAX_LEASES: usize = 256;
    /// The most leases that are granted together.
    pub(super) const MAX_GRANTS: usize = 32;
    /// Room for so many is made at once, at least.
    const REQUESTS_MORE: usize = 7;
    /// The most keys in such a call.
    const MAX_KEYS: usize = 1024;
    /// A command whose reply was lost goes out once more, and then no more.
    const MAX_SENDS: u8 = 2;

    pub(super) fn new(request: Request) -> Self {
        let keys = request.keys();
        Self { requests: smallvec![request], keys, sends: 0, is_native: false, has_missed: false }
    }

    /// A first grant by the server's own commands.
    pub(super) fn native(request: Request) -> Self {
        Self { is_native: true, ..Self::new(request) }
    }

    /// Takes in an extension behind others, or a first grant behind those of its kind, if there is room; otherwise
    /// hands it back.
    pub(super) fn merge(&mut self, request: Request) -> Option<Request> {
        let most = if self.first().is_extend() && request.is_extend() {
            Self::MAX_LEASES
        } else if self.is_native && request.is_first_grant() {
            Self::MAX_GRANTS
        } else {
            0
        };
        let has_room = self.requests.len() < most && self.keys + request.keys() <= Self::MAX_KEYS;
        if !has_room || self.was_sent() {
            return Some(request);
        }
        self.keys += request.keys();
        if self.requests.len() == self.requests.capacity() {
            self.requests.reserve(Self::REQUESTS_MORE);
        }
        self.requests.push(request);
        None
    }

    pub(super) fn first(&self) -> &Request {
        &self.requests[0]
    }

    pub(super) fn requests(&self) -> &[Request] {
        &self.requests
    }

    /// Whether it goes by the server's own commands. They do no good twice.
    pub(super) fn is_native(&self) -> bool {
        self.is_native && !self.was_sent()
    }

    /// Whether several leases can only be granted one by one: a script takes one.
    pub(super) fn is_to_be_split(&self) -> bool {
        self.requests.len() > 1 && self.first().is_grant() && !self.is_native()
    }

    /// Whether something of it is of `request`'s holder.
    pub(super) fn concerns_holder_of(&self, request: &Request) -> bool {
        self.requests.iter().any(|own| own.is_of_same_holder(request))
    }

    pub(super) fn was_sent(&self) -> bool {
        self.sends > 0
    }

    pub(super) fn note_sent(&mut self) {
        self.sends += 1;
    }

    /// The call had no effect (the script was not known), so it does not count as sent.
    pub(super) fn note_not_done(&mut self) {
        self.sends -= 1;
    }

    /// The same for one that is to be asked about.
    pub(super) fn note_missed(&mut self) {
        self.note_not_done();
        self.has_missed = true;
    }

    pub(super) fn has_missed(&self) -> bool {
        self.has_missed
    }

    /// Each request by itself.
    pub(super) fn split(self) -> impl Iterator<Item = Self> {
        let sends = self.sends;
        self.requests.into_iter().map(move |request| Self { sends, ..Self::new(request) })
    }

    /// What of it may go out at `now`; the rest is answered with `fault`.
    pub(super) fn still_wanted(mut self, now: Moment, fault: &Fault) -> Option<Self> {
        if self.sends >= Self::MAX_SENDS {
            self.fail(fault);
            return None;
        }
        let late = |request: &Request| request.command.not_after < now;
        if !self.requests.iter().any(late) {
            return Some(self);
        }
        let (dropped, kept) = mem::take(&mut self.requests).into_iter().partition(late);
        Self { requests: dropped, ..self }.fail(fault);
        Self { requests: kept, ..self }.filled()
    }

    /// What of it is not about `claim`'s holder; the rest is answered with `fault`.
    pub(super) fn without_holder_of(mut self, revoke: &Request, fault: &Fault) -> Option<Self> {
        let (dropped, kept) = mem::take(&mut self.requests)
            .into_iter()
            .partition(|request| request.is_of_same_holder(revoke));
        Self { requests: dropped, ..self }.fail(fault);
        Self { requests: kept, ..self }.filled()
    }

    /// Answers every request by its place, until `answers` ends.
    pub(super) fn answer_each(self, answers: impl IntoIterator<Item = Result<Answer, Fault>>) {
        let (now, repeated) = (clock::now(), self.sends > 1);
        for (request, answer) in self.requests.into_iter().zip(answers) {
            request.answer_at(now, answer, repeated);
        }
    }

    /// Answers every request with `fault`.
    pub(super) fn answer_all(self, fault: &Fault) {
        let (now, repeated) = (clock::now(), self.sends > 1);
        for request in self.requests {
            request.answer_at(now, Err(fault.clone()), repeated);
        }
    }

    /// Answers every request with the words of `fault`, as broken if it may have been done and
    /// otherwise as not sent.
    pub(super) fn fail(self, fault: &Fault) {
        if self.was_sent() {
            self.answer_all(&Fault::new(FaultKind::Broken, fault.detail()));
        } else {
            self.answer_all(&unsent(fault));
        }
    }

    fn filled(self) -> Option<Self> {
        (!self.requests.is_empty()).then_some(self)
    }
}

/// The fault of a command that was never sent because of `fault`: the kinds that only a person can mend
/// stay what they are, so that the caller hears of them.
pub(super) fn unsent(fault: &Fault) -> Fault {
    if fault.kind().is_permanent() || fault.kind() == FaultKind::Late {
        fault.clone()
    } else {
        Fault::new(FaultKind::NotSent, fault.detail())
    }
}
