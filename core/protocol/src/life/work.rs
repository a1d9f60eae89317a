//! The one operation that works on a lease: its renewal, or an extension. Owns which of them may
//! act, and applies its result.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::{LeaseLife, Mark, Untold};
use crate::command::Reply;
use crate::error::ErrorKind;
use crate::extend::{Extend, ExtendOutcome, LastRound};
use crate::hold::{Hold, HoldEnd, LossReason};
use crate::identity::{Claim, NodeId};
use crate::lease::Lease;
use crate::machine::{Environment, Machine, Output};
use crate::round::RoundReport;
use crate::time::Moment;

/// Tells the current operation on a lease from earlier ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkId(u32);

/// What is proved of a lease, and the operation at work on it. Boxed, so that a lease at rest takes
/// little memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Work {
    /// Nothing is proved of the lease with this claim, and no operation is at work.
    Unproved(Arc<Claim>),
    Idle(Box<Lease>),
    Renewing(Box<Hold>),
    Extending(Box<Extending>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Extending {
    lease: Option<Box<Lease>>,
    extend: Extend,
}

/// The operation at work on a lease, as its driver sees it: a [`Machine`] until it has ended.
#[derive(Debug)]
pub struct LeaseWork<'a> {
    life: &'a mut LeaseLife,
    id: WorkId,
}

/// How the operation ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WorkEnd {
    /// The lease is lost; with the round that proved it, if a round did. See
    /// [`LeaseLife::take_loss`].
    Lost(Option<RoundReport>),
    /// An extension has ended.
    Extended(ExtensionEnd),
    /// It was stopped, by its driver or because another operation was started.
    Stopped,
}

/// How an extension ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ExtensionEnd {
    /// Whether the lease is prolonged, or why it is not: see [`ExtendOutcome::result`].
    pub result: Result<(), ErrorKind>,
    /// How many rounds were begun.
    pub attempts: u32,
    /// How long it took.
    pub elapsed: Duration,
    /// The last round.
    pub last: LastRound,
}

impl Work {
    pub(super) fn extending(lease: Option<Box<Lease>>, extend: Extend) -> Self {
        Self::Extending(Box::new(Extending { lease, extend }))
    }
}

impl Extending {
    pub(super) fn lease(&self) -> Option<&Lease> {
        self.lease.as_deref()
    }

    pub(super) const fn claim(&self) -> &Arc<Claim> {
        self.extend.claim()
    }

    /// Notes for how long any node may keep the keys by now.
    fn outlast(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.outlast(self.extend.keys_expire_by());
        }
    }
}

impl ExtensionEnd {
    fn of(outcome: ExtendOutcome) -> (Self, Option<Lease>) {
        let (result, lease) = match outcome.result {
            Ok(lease) => (Ok(()), Some(lease)),
            Err(kind) => (Err(kind), None),
        };
        let ExtendOutcome { attempts, elapsed, last, .. } = outcome;
        (Self { result, attempts, elapsed, last }, lease)
    }
}

impl LeaseLife {
    /// The number of the operation at work now, if there is one.
    pub const fn work_id(&self) -> WorkId {
        self.work_id
    }

    /// The operation with the number `id`, for its driver. If it has ended, it does nothing any
    /// more.
    pub const fn work(&mut self, id: WorkId) -> LeaseWork<'_> {
        LeaseWork { life: self, id }
    }

    pub(super) fn begin(&mut self, work: Work) -> WorkId {
        self.work = work;
        self.work_id = WorkId(self.work_id.0.wrapping_add(1));
        self.work_id
    }

    /// Takes the operation, or the lease at rest, out of its field.
    fn take_work(&mut self) -> Work {
        let nothing = Work::Unproved(Arc::clone(self.claim()));
        mem::replace(&mut self.work, nothing)
    }

    /// Takes the lease at rest out of its field.
    pub(super) fn take_idle(&mut self) -> Option<Box<Lease>> {
        match self.take_work() {
            Work::Idle(lease) => Some(lease),
            other => {
                self.work = other;
                None
            }
        }
    }

    /// No operation is at work any more; this much is proved of the lease.
    pub(super) fn rest(&mut self, lease: Option<Box<Lease>>) {
        let idle = match lease {
            Some(lease) => Work::Idle(lease),
            None => Work::Unproved(Arc::clone(self.claim())),
        };
        self.begin(idle);
    }

    /// Stops the operation at work: nothing more is sent for it, and its later inputs are ignored.
    pub(super) fn stop_work(&mut self, now: Moment) {
        let id = self.work_id;
        match &self.work {
            Work::Unproved(_) | Work::Idle(_) => {}
            Work::Renewing(hold) => {
                let lease = Box::new(hold.lease().clone());
                self.rest(Some(lease));
            }
            Work::Extending(_) => {
                if let Work::Extending(extending) = self.take_work() {
                    let Extending { lease, extend } = *extending;
                    let (end, _) = ExtensionEnd::of(extend.cut_short(now));
                    self.untold().cut_short = Some((id, end));
                    self.rest(lease);
                }
            }
        }
    }

    pub(super) fn untold(&mut self) -> &mut Untold {
        self.untold.get_or_insert_default()
    }

    /// Drops an empty box.
    pub(super) fn tidy(&mut self) {
        self.untold = self.untold.take().filter(|it| it.loss.is_some() || it.cut_short.is_some());
    }

    fn poll_work(&mut self, env: &mut dyn Environment) -> Output<WorkEnd> {
        match &mut self.work {
            Work::Unproved(_) | Work::Idle(_) => Output::Done(WorkEnd::Stopped),
            Work::Renewing(hold) => {
                let output = hold.poll(env);
                if !matches!(output, Output::Send(..)) {
                    self.marks.set(Mark::AtRisk, hold.is_at_risk(env.now()));
                }
                match output {
                    Output::Send(node, command) => Output::Send(node, command),
                    Output::WakeAt(at) => Output::WakeAt(at),
                    Output::Done(HoldEnd::Stopped) => Output::Done(WorkEnd::Stopped),
                    Output::Done(HoldEnd::Lost(reason)) => {
                        let last = hold.last_round();
                        self.lose(env.now(), reason);
                        Output::Done(WorkEnd::Lost(last))
                    }
                }
            }
            Work::Extending(extending) => {
                let outcome = extending.extend.take_outcome(env);
                let output = outcome.map_or_else(|| extending.extend.poll(env), Output::Done);
                extending.outlast();
                match output {
                    Output::Send(node, command) => Output::Send(node, command),
                    Output::WakeAt(at) => Output::WakeAt(at),
                    Output::Done(outcome) => {
                        Output::Done(WorkEnd::Extended(self.end_extension(env.now(), outcome)))
                    }
                }
            }
        }
    }

    fn end_extension(&mut self, now: Moment, outcome: ExtendOutcome) -> ExtensionEnd {
        let is_over = now >= outcome.until;
        let (end, prolonged) = ExtensionEnd::of(outcome);
        if let Work::Extending(extending) = self.take_work() {
            let Extending { lease, extend } = *extending;
            if prolonged.is_some() {
                self.marks.set(Mark::Extended, false);
                // Renewal may have been turned off meanwhile.
                let renews = self.policy.auto_extend;
                self.policy = extend.into_policy();
                if self.policy.auto_extend && !renews {
                    self.policy = self.policy.without_auto_extend().into();
                }
            }
            self.rest(prolonged.map(Box::new).or(lease));
        }
        if end.result == Err(ErrorKind::LeaseLost) {
            self.lose(now, if is_over { LossReason::Expired } else { LossReason::Gone });
        }
        end
    }

    /// The result of an extension that was stopped when the lease ended.
    fn take_cut_short(&mut self, id: WorkId) -> WorkEnd {
        let cut_short = self.untold.as_mut().and_then(|it| it.cut_short.take_if(|it| it.0 == id));
        self.tidy();
        cut_short.map_or(WorkEnd::Stopped, |(_, end)| WorkEnd::Extended(end))
    }
}

impl LeaseWork<'_> {
    /// The operation at work, if it is still the one that this value stands for.
    fn current(&mut self) -> Option<&mut Work> {
        (self.id == self.life.work_id).then_some(&mut self.life.work)
    }
}

impl Machine for LeaseWork<'_> {
    type Outcome = WorkEnd;

    fn poll(&mut self, env: &mut dyn Environment) -> Output<WorkEnd> {
        if self.id == self.life.work_id {
            self.life.poll_work(env)
        } else {
            Output::Done(self.life.take_cut_short(self.id))
        }
    }

    fn handle_reply(&mut self, env: &mut dyn Environment, node: NodeId, reply: Reply) {
        match self.current() {
            Some(Work::Renewing(hold)) => hold.handle_reply(env, node, reply),
            Some(Work::Extending(extending)) => extending.extend.handle_reply(env, node, reply),
            Some(Work::Unproved(_) | Work::Idle(_)) | None => {}
        }
    }

    fn handle_timeout(&mut self, env: &mut dyn Environment) {
        match self.current() {
            Some(Work::Renewing(hold)) => hold.handle_timeout(env),
            Some(Work::Extending(extending)) => extending.extend.handle_timeout(env),
            Some(Work::Unproved(_) | Work::Idle(_)) | None => {}
        }
    }

    /// The caller cancelled: the lease keeps the validity that is proved.
    fn cancel(&mut self, env: &mut dyn Environment) {
        if self.id == self.life.work_id {
            self.life.stop_work(env.now());
        }
    }
}
