//! Requests that go out in one call, and how many times they went out. Owns which requests may
//! share a call and which may be sent again; knows no wire format.

use std::mem;

use quorlock_protocol::{Answer, Fault, FaultKind, Moment};
use smallvec::{SmallVec, smallvec};

use super::request::Request;

/// Requests that go out in one call: a single one, several extensions, or several first grants.
#[cfg_attr(test, derive(Debug))]
pub(super) struct Batch {
    /// Never empty.
    requests: SmallVec<[Request; 1]>,
    keys: usize,
    /// How many times it was sent and may have taken effect.
    sends: u8,
    /// First grants, by the server's own commands instead of a script.
    is_native: bool,
    /// The server's own command had no effect, and does not say why: the script is asked next.
    has_missed: bool,
}

impl Batch {
    /// The most leases that one call extends: the server runs nothing else meanwhile.
    const MAX_LEASES: usize = 256;
    /// The most leases that one batch of native grants takes.
    pub(super) const MAX_GRANTS: usize = 32;
    /// How many places are allocated when a second request comes.
    const REQUESTS_MORE: usize = 7;
    /// The most keys in such a call.
    const MAX_KEYS: usize = 1024;
    /// A command whose reply was lost with its connection is sent once more, and not a third time.
    const MAX_SENDS: u8 = 2;

    pub(super) fn new(request: Request) -> Self {
        let keys = request.keys();
        Self { requests: smallvec![request], keys, sends: 0, is_native: false, has_missed: false }
    }

    /// A first grant by the server's own commands.
    pub(super) fn native(request: Request) -> Self {
        Self { is_native: true, ..Self::new(request) }
    }

    /// Adds an extension to extensions, or a first grant to native first grants, if there is room; otherwise hands
    /// the request back.
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

    /// Whether it uses the server's own commands: only the first time. If it were sent again, `SET
    /// NX` would fail on the key that the first copy has set.
    pub(super) fn is_native(&self) -> bool {
        self.is_native && !self.was_sent()
    }

    /// Whether it must be split before it is sent: the script grants one lease.
    pub(super) fn is_to_be_split(&self) -> bool {
        self.requests.len() > 1 && self.first().is_grant() && !self.is_native()
    }

    /// Whether one of its requests is of the same holder as `request`.
    pub(super) fn concerns_holder_of(&self, request: &Request) -> bool {
        self.requests.iter().any(|own| own.is_of_same_holder(request))
    }

    pub(super) fn was_sent(&self) -> bool {
        self.sends > 0
    }

    pub(super) fn note_sent(&mut self) {
        self.sends += 1;
    }

    /// The call had no effect on the server (it did not know the script), so it does not count as sent.
    pub(super) fn note_not_done(&mut self) {
        self.sends -= 1;
    }

    /// The server's own command had no effect: it does not count as sent, and the script is asked
    /// next.
    pub(super) fn note_missed(&mut self) {
        self.note_not_done();
        self.has_missed = true;
    }

    pub(super) fn has_missed(&self) -> bool {
        self.has_missed
    }

    /// One batch for each request.
    pub(super) fn split(self) -> impl Iterator<Item = Self> {
        let sends = self.sends;
        self.requests.into_iter().map(move |request| Self { sends, ..Self::new(request) })
    }

    /// The requests that may still be sent at `now`: not too late, and not sent twice already. The
    /// others are answered with `fault`.
    pub(super) fn still_wanted(mut self, now: Moment, fault: &Fault) -> Option<Self> {
        if self.sends >= Self::MAX_SENDS {
            self.fail(fault, now);
            return None;
        }
        let late = |request: &Request| request.command.not_after < now;
        if !self.requests.iter().any(late) {
            return Some(self);
        }
        let (dropped, kept) = mem::take(&mut self.requests).into_iter().partition(late);
        Self { requests: dropped, ..self }.fail(fault, now);
        Self { requests: kept, ..self }.filled()
    }

    /// The requests of other holders than that of `revoke`; the rest is answered with `fault`.
    pub(super) fn without_holder_of(
        mut self,
        revoke: &Request,
        fault: &Fault,
        now: Moment,
    ) -> Option<Self> {
        let (dropped, kept) = mem::take(&mut self.requests)
            .into_iter()
            .partition(|request| request.is_of_same_holder(revoke));
        Self { requests: dropped, ..self }.fail(fault, now);
        Self { requests: kept, ..self }.filled()
    }

    /// Gives the requests their answers, in order, until `answers` ends; they came at `at`.
    pub(super) fn answer_each(
        self,
        answers: impl IntoIterator<Item = Result<Answer, Fault>>,
        at: Moment,
    ) {
        let repeated = self.sends > 1;
        for (request, answer) in self.requests.into_iter().zip(answers) {
            request.answer(answer, repeated, at);
        }
    }

    /// Answers every request with `fault` as it is.
    pub(super) fn answer_all(self, fault: &Fault, at: Moment) {
        let repeated = self.sends > 1;
        for request in self.requests {
            request.answer(Err(fault.clone()), repeated, at);
        }
    }

    /// Answers every request with the words of `fault`: as broken if it may have been carried out,
    /// otherwise as not sent.
    pub(super) fn fail(self, fault: &Fault, at: Moment) {
        if self.was_sent() {
            return self.answer_all(&Fault::new(FaultKind::Broken, fault.detail()), at);
        }
        for request in self.requests {
            request.refuse(fault, at);
        }
    }

    fn filled(self) -> Option<Self> {
        (!self.requests.is_empty()).then_some(self)
    }
}
