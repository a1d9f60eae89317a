//! Follows one acquisition while it waits, for events and figures. Owns what was told already; the
//! machine decides.

use std::time::Duration;

use quorlock_protocol::{Acquire, AcquireOutcome, Quorum, Resources};

use super::events::{EventKind, EventName, WakeCause};
use super::telemetry::Telemetry;

/// What was told of the waits of one acquisition.
pub(crate) struct WaitWatch<'a> {
    telemetry: &'a Telemetry,
    quorum: Quorum,
    resources: &'a Resources,
    is_waiting: bool,
    /// The rounds before their time that are known.
    uncounted: u32,
}

impl<'a> WaitWatch<'a> {
    pub(crate) const fn new(
        telemetry: &'a Telemetry,
        quorum: Quorum,
        resources: &'a Resources,
    ) -> Self {
        Self { telemetry, quorum, resources, is_waiting: false, uncounted: 0 }
    }

    /// Looks at the machine after a change.
    #[inline]
    pub(crate) fn see(&mut self, machine: &Acquire) {
        if machine.waits_after().is_some() != self.is_waiting {
            self.turn(machine);
        }
    }

    #[cold]
    fn turn(&mut self, machine: &Acquire) {
        let telemetry = self.telemetry;
        let uncounted = machine.uncounted_rounds();
        if let Some(lost) = machine.waits_after() {
            self.is_waiting = true;
            if lost.is_contended(self.quorum) {
                telemetry.note_contended(self.resources, || lost.frees_in(self.quorum));
            }
            telemetry.note_wait(self.resources);
        } else {
            self.is_waiting = false;
            let is_early = uncounted > self.uncounted;
            let by = if is_early { WakeCause::Watch } else { WakeCause::Timer };
            telemetry.note_wake(self.resources, by);
        }
        self.uncounted = uncounted;
    }
}

impl WaitWatch<'_> {
    /// Takes the end of the acquisition.
    pub(crate) fn end(&self, outcome: &AcquireOutcome) {
        // Who gives up while it waits has told of the last round already.
        let last =
            outcome.lost_rounds.last().filter(|_| outcome.result.is_err() && !self.is_waiting);
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
    pub(crate) fn note_wait(&self, resources: &Resources) {
        self.figures().note_wait();
        self.emit(EventName::Waiting, || EventKind::Waiting { resources: resources.clone() });
    }

    /// A caller that waited tries again.
    pub(crate) fn note_wake(&self, resources: &Resources, by: WakeCause) {
        self.figures().note_wake(by);
        self.emit(EventName::Woken, || EventKind::Woken { resources: resources.clone(), by });
    }
}
