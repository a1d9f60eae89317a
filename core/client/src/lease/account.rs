//! Reports that a lease was extended, lost or given back, by events, figures and the records beside the
//! lock. Owns what is reported when; the life of the lease decides.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    Claim, ErrorKind, FencingToken, LossReason, Moment, ReleaseOutcome, RoundReport, Stage,
};

use super::{Lease, Shared, State};
use crate::observe::{ABANDONED, EventKind, EventName, HoldSpan, LeaseInfo, Telemetry};

impl Lease {
    /// Which lease it is, for events.
    pub(crate) fn info(&self) -> LeaseInfo {
        self.shared.info(&self.shared.lock())
    }

    /// Begins the span that covers the lease until its end, if anyone wants it.
    #[cfg(feature = "tracing")]
    pub(crate) fn begin_hold(&self, caller: &tracing::Span) {
        let mut state = self.shared.lock();
        if state.life.stage() != Stage::Held || !self.shared.is_acquired() {
            return;
        }
        let token = state.life.fencing_token().map(|FencingToken(token)| token);
        if let Some(hold) = HoldSpan::begin(caller, token) {
            state.extras().hold = hold;
        }
    }
}

/// What was proved of a lease before an operation worked on it.
#[derive(Clone, Copy)]
pub(super) struct Before {
    /// Until when it was trusted.
    until: Moment,
    /// The ttl that it had.
    ttl: Duration,
    /// How many rounds of its renewal had failed.
    failures: u32,
}

/// What an operation has changed.
pub(super) enum Change {
    Extended {
        lease: LeaseInfo,
        validity: Duration,
        slack: f64,
    },
    /// A round of the renewal, if it is still known what the nodes did in it.
    Failed(Option<RoundReport>),
}

/// A lease that is being given back, until the nodes tell what becomes of it.
pub(super) struct EndOfLease {
    telemetry: Arc<Telemetry>,
    token: Option<FencingToken>,
    held_for: Duration,
    was_over: bool,
    /// A lease that was taken over is counted where it was acquired.
    is_acquired: bool,
    hold: HoldSpan,
}

impl State {
    pub(super) fn before(&self) -> Before {
        let until = self.life.lease().map_or(Moment::default(), quorlock_protocol::Lease::until);
        let ttl = self.life.policy().ttl().as_duration();
        Before { until, ttl, failures: self.life.renewal_failures() }
    }

    /// For how long it was held: until now, or until its validity was over.
    fn held_for(&self, now: Moment) -> Duration {
        let until = self.life.lease().map_or(now, |lease| lease.until().min(now));
        until.since(self.life.since())
    }

    fn take_hold(&mut self) -> HoldSpan {
        self.extras.as_mut().map(|extras| std::mem::take(&mut extras.hold)).unwrap_or_default()
    }
}

impl Shared {
    fn info(&self, state: &State) -> LeaseInfo {
        LeaseInfo::new(&self.claim, state.life.fencing_token())
    }

    /// What has changed until `now`.
    pub(super) fn change(&self, before: Before, state: &State, now: Moment) -> Option<Change> {
        let after = state.before();
        if state.life.stage() != Stage::Held {
            return None;
        }
        if after.until > before.until {
            let slack = before.until.since(now).as_secs_f64() / before.ttl.as_secs_f64();
            let (lease, validity) = (self.info(state), state.life.validity(now));
            return Some(Change::Extended { lease, validity, slack: slack.min(1.0) });
        }
        let has_failed = after.failures > before.failures;
        has_failed.then(|| Change::Failed(state.life.last_round()))
    }

    /// Tells a change, without the lock of the lease.
    pub(super) fn account(&self, change: Option<Change>, is_renewal: bool) {
        let telemetry = &self.manager.telemetry;
        match change {
            Some(Change::Extended { lease, validity, slack }) => {
                telemetry.figures().note_extended(is_renewal.then_some(slack));
                let make = || EventKind::Extended { lease, validity, slack };
                telemetry.emit(EventName::Extended, make);
                self.prolong_records();
            }
            Some(Change::Failed(round)) => self.account_failure(|| self.describe_failure(round)),
            None => {}
        }
    }

    /// The words of an extension that found no quorum: what the nodes did.
    fn describe_failure(&self, round: Option<RoundReport>) -> String {
        let (kind, rounds) = (ErrorKind::QuorumUnreachable, Vec::from_iter(round));
        let spent = (1, Duration::ZERO);
        self.manager.error(kind, &self.claim.resources, &rounds, spent).to_string()
    }

    pub(super) fn account_failure(&self, detail: impl FnOnce() -> String) {
        let telemetry = &self.manager.telemetry;
        telemetry.figures().note_extension_failed();
        telemetry.emit(EventName::ExtensionFailed, || {
            let state = self.lock();
            let (lease, validity) = (self.info(&state), state.life.validity(self.now()));
            drop(state);
            EventKind::ExtensionFailed { lease, validity, detail: detail() }
        });
    }

    pub(super) fn account_lost(&self, reason: LossReason) {
        let mut state = self.lock();
        let held_for = state.held_for(self.now());
        let (lease, hold) = (self.info(&state), state.take_hold());
        drop(state);
        hold.end(HoldSpan::LOST);
        let telemetry = &self.manager.telemetry;
        telemetry.figures().note_lost(reason);
        if self.is_acquired() {
            telemetry.figures().note_ended(held_for);
        }
        telemetry.emit(EventName::Lost, || EventKind::Lost { lease, reason, held_for });
    }

    /// The lease begins to be given back.
    pub(super) fn begin_end(&self, state: &mut State, was_over: bool, now: Moment) -> EndOfLease {
        EndOfLease {
            telemetry: Arc::clone(&self.manager.telemetry),
            token: state.life.fencing_token(),
            held_for: state.held_for(now),
            was_over,
            is_acquired: self.is_acquired(),
            hold: state.take_hold(),
        }
    }

    /// The last handle is dropped.
    pub(super) fn account_dropped(&self, state: &mut State) {
        if self.is_acquired() && state.life.stage() == Stage::Held {
            self.begin_end(state, false, self.now()).tell_as(&self.claim, ABANDONED);
        }
    }
}

impl EndOfLease {
    /// The nodes have told.
    pub(super) fn tell(self, claim: &Arc<Claim>, outcome: ReleaseOutcome) {
        let outcome = outcome.seen(self.was_over).name();
        self.tell_as(claim, outcome);
    }

    fn tell_as(self, claim: &Arc<Claim>, outcome: &'static str) {
        let Self { telemetry, token, held_for, hold, .. } = self;
        telemetry.figures().note_released(outcome);
        if self.is_acquired {
            telemetry.figures().note_ended(held_for);
        }
        hold.end(outcome);
        telemetry.emit(EventName::Released, || {
            let lease = LeaseInfo::new(claim, token);
            EventKind::Released { lease, outcome, held_for }
        });
    }
}
