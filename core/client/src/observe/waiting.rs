//! Follows one acquisition while it waits, for events and figures. Owns what was told already; the
//! machine decides.

use std::time::Duration;

use quorlock_protocol::{Acquire, AcquireOutcome, Moment, Quorum, Resources, WakeCause};

use super::events::{EventKind, EventName};
use super::telemetry::Telemetry;
use crate::clock;

/// What was told of the waits of one acquisition.
pub(crate) struct WaitWatch<'a> {
    telemetry: &'a Telemetry,
    quorum: Quorum,
    resources: &'a Resources,
    /// The wait that is under way.
    wait: Option<Wait>,
}

struct Wait {
    began: Moment,
    /// Its beginning is told once its place is known, or at its end.
    is_told: bool,
    holder_ends_in: Option<Duration>,
}

impl<'a> WaitWatch<'a> {
    pub(crate) const fn new(
        telemetry: &'a Telemetry,
        quorum: Quorum,
        resources: &'a Resources,
    ) -> Self {
        Self { telemetry, quorum, resources, wait: None }
    }

    /// Looks at the machine after a change.
    #[inline]
    pub(crate) fn see(&mut self, machine: &Acquire) {
        let is_untold = self.wait.as_ref().is_some_and(|wait| !wait.is_told);
        if machine.is_between_rounds() != self.wait.is_some() || is_untold {
            self.follow(machine);
        }
    }

    #[cold]
    fn follow(&mut self, machine: &Acquire) {
        if !machine.is_between_rounds() {
            self.tell_beginning(None);
            // A caller that gives up is not told as woken.
            if let Some(wait) = self.wait.take_if(|_| !machine.has_ended()) {
                let waited = clock::now().since(wait.began);
                self.telemetry.note_wake(self.resources, machine.woken_by(), waited);
            }
            return;
        }
        if self.wait.is_none() {
            let lost = machine.last_lost().filter(|lost| lost.is_contended(self.quorum));
            let holder_ends_in = lost.and_then(|lost| lost.frees_in(self.quorum));
            if lost.is_some() {
                self.telemetry.note_contended(self.resources, || holder_ends_in);
            }
            self.wait = Some(Wait { began: clock::now(), is_told: false, holder_ends_in });
        }
        // Without a place there is no rank to wait for.
        if machine.rank().is_some() || !machine.is_waiting() {
            self.tell_beginning(machine.rank());
        }
    }

    fn tell_beginning(&mut self, rank: Option<u32>) {
        if let Some(wait) = self.wait.as_mut().filter(|wait| !wait.is_told) {
            wait.is_told = true;
            self.telemetry.note_wait(self.resources, rank, wait.holder_ends_in);
        }
    }
}

impl WaitWatch<'_> {
    /// Takes the end of the acquisition.
    pub(crate) fn end(&self, outcome: &AcquireOutcome) {
        // Who gives up while it waits has told of the last round already.
        let last =
            outcome.lost_rounds.last().filter(|_| outcome.result.is_err() && self.wait.is_none());
        if let Some(lost) = last
            && lost.is_contended(self.quorum)
        {
            let telemetry = self.telemetry;
            telemetry.note_contended(self.resources, || lost.frees_in(self.quorum));
        }
    }
}

impl Telemetry {
    /// Another holds the lock.
    pub(crate) fn note_contended(
        &self,
        resources: &Resources,
        holder_ends_in: impl FnOnce() -> Option<Duration>,
    ) {
        self.figures().note_futile_round();
        self.emit(EventName::Contended, || EventKind::Contended {
            resources: resources.clone(),
            holder_ends_in: holder_ends_in(),
        });
    }

    /// A caller begins to wait.
    pub(crate) fn note_wait(
        &self,
        resources: &Resources,
        rank: Option<u32>,
        holder_ends_in: Option<Duration>,
    ) {
        self.figures().note_wait();
        let resources = || resources.clone();
        self.emit(EventName::Waiting, || EventKind::Waiting {
            resources: resources(),
            rank,
            holder_ends_in,
        });
    }

    /// A caller that waited tries again.
    pub(crate) fn note_wake(&self, resources: &Resources, by: WakeCause, waited: Duration) {
        self.figures().note_wake(by);
        let resources = || resources.clone();
        self.emit(EventName::Woken, || EventKind::Woken { resources: resources(), by, waited });
    }
}
