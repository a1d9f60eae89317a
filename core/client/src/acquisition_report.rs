//! Counts one acquisition as a whole, however it ends, and reports it as an event. Decides nothing.

use crate::error::LockError;
use crate::lease::Lease;
use crate::manager::Manager;
use crate::observe::{EventKind, EventName};

/// One acquisition, from its call to its end: dropped before, it was cancelled.
pub(crate) struct AcquisitionReport<'a> {
    manager: &'a Manager,
    has_ended: bool,
}

impl<'a> AcquisitionReport<'a> {
    pub(crate) const fn new(manager: &'a Manager) -> Self {
        Self { manager, has_ended: false }
    }

    /// It was won.
    pub(crate) fn won(mut self, lease: &Lease) {
        self.has_ended = true;
        let (attempts, waited) = (lease.attempts(), lease.elapsed());
        let telemetry = &self.manager.telemetry;
        telemetry.figures().note_acquired(attempts, waited);
        for round in lease.lost_rounds() {
            telemetry.figures().note_timeouts(round);
        }
        telemetry.emit(EventName::Acquired, || EventKind::Acquired {
            lease: lease.info(),
            waited,
            attempts,
            votes: lease.votes(),
        });
    }

    /// It failed.
    pub(crate) fn failed(self, error: &LockError) {
        let figures = self.manager.telemetry.figures();
        figures.note_not_acquired(Some(error.kind()), error.attempts());
        self.end_with(error);
    }

    /// It failed, and its caller goes on without the lock.
    pub(crate) fn degraded(self, error: &LockError) {
        self.manager.telemetry.figures().note_degraded(error.attempts());
        self.end_with(error);
    }

    fn end_with(mut self, error: &LockError) {
        self.has_ended = true;
        for round in error.rounds() {
            self.manager.telemetry.figures().note_timeouts(round);
        }
    }
}

impl Drop for AcquisitionReport<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            // Its rounds are counted where it is abandoned.
            self.manager.telemetry.figures().note_not_acquired(None, 0);
        }
    }
}
