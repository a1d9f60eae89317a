//! What a client does with a lease: renews, extends, releases or loses it, in the order that the shipping
//! client keeps. Owns no property.

use quorlock_protocol::{
    ErrorKind, Extend, ExtendOutcome, Extension, Hold, HoldEnd, Inspect, LossReason, Moment,
    Policy, Standing, Ticket, Withdraw, Withdrawal,
};

use crate::actor::{Actor, Event, Input};
use crate::client::{Bound, Phase, Release, Task};
use crate::holding::{Holding, Work};

impl Actor<'_> {
    /// Starts to renew the lease, where the policy says so.
    pub(crate) fn resume(&mut self) {
        let (clock, quorum) = (self.clock(), self.quorum());
        let Phase::Holding(holding) = &self.client.phase else {
            return;
        };
        if !holding.policy.auto_extend() {
            return;
        }
        let lease = holding.lease.clone();
        let machine = Hold::new(clock, lease, holding.policy, holding.since, quorum);
        let task = Task { op: self.new_op(), machine, wake: clock };
        if let Phase::Holding(holding) = &mut self.client.phase {
            holding.work = Work::Keeping(task);
        }
        self.move_foreground(&Input::Nothing);
    }

    pub(crate) fn keep(&mut self, mut holding: Box<Holding>, mut task: Task<Hold>, input: &Input) {
        let promised = holding.kept_until();
        let end = self.turn(&mut task, input);
        holding.lease = task.machine.lease().clone();
        let Some(end) = end else {
            holding.work = Work::Keeping(task);
            self.client.phase = Phase::Holding(holding);
            return;
        };
        self.events.push(Event::Closed(task.op));
        match end {
            HoldEnd::Stopped => self.client.phase = Phase::Holding(holding),
            HoldEnd::Lost(reason, withdraw) => {
                if keeps_others_out(&holding, reason) {
                    self.client.mourn(promised);
                }
                if let Some(withdraw) = withdraw {
                    let op = self.new_op();
                    self.withdraw(op, withdraw, None);
                } else {
                    self.client.phase = Phase::Lost(holding);
                }
            }
        }
    }

    /// The user extends the lease by the ttl of `policy`.
    pub(crate) fn extend(&mut self, policy: Policy) {
        let Some(mut holding) = self.stop_work() else {
            return;
        };
        let clock = self.clock();
        if holding.until() <= clock {
            let promised = holding.kept_until();
            return self.lose(holding, LossReason::Expired, promised);
        }
        let patience = policy.timeout().unwrap_or(policy.unreachable_timeout());
        let extension = Extension {
            claim: holding.lease.claim().clone(),
            fencing_token: holding.lease.fencing_token(),
            until: holding.lease.until(),
            patience,
            first_ticket: 0,
        };
        let machine = Extend::new(clock, extension, policy, self.quorum())
            .outlasting(holding.lease.forgotten());
        holding.asked = clock + patience + policy.node_timeout();
        let until = holding.until().min(holding.asked);
        let task = Task { op: self.new_op(), machine, wake: clock };
        holding.work = Work::Extending(task, Bound { until, stopped: false }, policy);
        self.client.phase = Phase::Holding(holding);
        self.move_foreground(&Input::Nothing);
    }

    pub(crate) fn extending(
        &mut self,
        mut holding: Box<Holding>,
        mut task: Task<Extend>,
        bound: Bound,
        policy: Policy,
        input: &Input,
    ) {
        let promised = holding.kept_until();
        let outcome = self.turn(&mut task, input);
        holding.lease.limit(task.machine.until());
        holding.lease.outlast(task.machine.forgotten());
        let Some(ExtendOutcome { result, .. }) = outcome else {
            holding.work = Work::Extending(task, bound, policy);
            self.client.phase = Phase::Holding(holding);
            return;
        };
        self.events.push(Event::Closed(task.op));
        match result {
            Ok(lease) => {
                holding.lease = lease;
                holding.policy = policy;
            }
            Err(ErrorKind::LeaseLost) => {
                let is_over = self.clock() >= task.machine.until();
                let reason = if is_over { LossReason::Expired } else { LossReason::Gone };
                return self.lose(holding, reason, promised);
            }
            Err(_) => {}
        }
        self.client.phase = Phase::Holding(holding);
        self.resume();
    }

    /// Somebody takes the lease over by its holder id: asks for its token.
    pub(crate) fn take_over(&mut self) {
        let Some(mut holding) = self.stop_work() else {
            return;
        };
        let (clock, quorum) = (self.clock(), self.quorum());
        let machine = Inspect::new(clock, holding.lease.claim(), holding.policy, quorum);
        let task = Task { op: self.new_op(), machine: machine.with_token(), wake: clock };
        holding.work = Work::TakingOver(task);
        self.client.phase = Phase::Holding(holding);
        self.move_foreground(&Input::Nothing);
    }

    pub(crate) fn taking_over(
        &mut self,
        mut holding: Box<Holding>,
        mut task: Task<Inspect>,
        input: &Input,
    ) {
        let Some(inspection) = self.turn(&mut task, input) else {
            holding.work = Work::TakingOver(task);
            self.client.phase = Phase::Holding(holding);
            return;
        };
        self.events.push(Event::Closed(task.op));
        if let Standing::Held(lease) = inspection.standing {
            let token = lease.fencing_token();
            self.events.extend(token.map(|token| Event::TakenOver(holding.serial, token)));
        }
        self.client.phase = Phase::Holding(holding);
        self.resume();
    }

    /// Stops what is at work on the lease, and takes the lease out.
    fn stop_work(&mut self) -> Option<Box<Holding>> {
        if self.foreground_op().is_some() {
            self.move_foreground(&Input::Cancel);
        }
        match std::mem::replace(&mut self.client.phase, Phase::Idle) {
            Phase::Holding(mut holding) => {
                match std::mem::replace(&mut holding.work, Work::Nothing) {
                    Work::Keeping(Task { op, .. }) | Work::TakingOver(Task { op, .. }) => {
                        self.events.push(Event::Closed(op));
                    }
                    Work::Nothing | Work::Extending(..) => {}
                }
                Some(holding)
            }
            other => {
                self.client.phase = other;
                None
            }
        }
    }

    /// The user gives the lease back.
    pub(crate) fn release(&mut self) {
        if let Some(holding) = self.stop_work() {
            let until = self.clock() + holding.policy.node_timeout();
            let bound = Bound { until, stopped: false };
            let keeps = self.keeps(&holding);
            let release = Release { stood: 0, deleted: 0, keeps, bound };
            self.take_back(&holding, keeps, Some(release));
        } else if let Some(holding) = self.let_go() {
            // The work under a lost lease has ended, and the outcome is told at once.
            self.client.keeps_out = Moment::default();
            let keeps = self.keeps(&holding);
            self.take_back(&holding, keeps, None);
        }
    }

    /// Until when the nodes are told to keep the keys of a lease that is given back.
    fn keeps(&mut self, holding: &Holding) -> Moment {
        let keeps = holding.since + holding.policy.min_hold();
        if keeps > self.clock() {
            self.client.let_run_out(holding);
        }
        keeps
    }

    /// The user forgets the lease without giving it back.
    pub(crate) fn abandon(&mut self) {
        if let Some(holding) = self.stop_work().or_else(|| self.let_go()) {
            self.client.let_run_out(&holding);
        }
    }

    /// Takes a lost lease out of the user's hands.
    fn let_go(&mut self) -> Option<Box<Holding>> {
        match std::mem::replace(&mut self.client.phase, Phase::Idle) {
            Phase::Lost(holding) => Some(holding),
            other => {
                self.client.phase = other;
                None
            }
        }
    }

    fn lose(&mut self, holding: Box<Holding>, reason: LossReason, promised: Moment) {
        if keeps_others_out(&holding, reason) {
            self.client.mourn(promised);
            self.client.phase = Phase::Lost(holding);
        } else {
            self.take_back(&holding, Moment::default(), None);
        }
    }

    fn take_back(&mut self, holding: &Holding, keeps: Moment, release: Option<Release>) {
        let clock = self.clock();
        let withdrawal = Withdrawal {
            ticket: Ticket(0),
            claim: holding.lease.claim().clone(),
            quorum: self.quorum(),
            forgotten: holding.lease.forgotten().max(clock + holding.policy.node_timeout()),
            unsent: holding.lease.unsent().to_vec(),
            node_timeout: holding.policy.node_timeout(),
        };
        let drift = holding.policy.drift();
        let machine = Withdraw::new(clock, withdrawal)
            .valid_until(holding.lease.kept_until(drift))
            .keeping(keeps, drift);
        let op = self.new_op();
        self.withdraw(op, machine, release);
    }
}

/// Whether what is left of the keys of a lost lease stays, as its user may still be at work.
fn keeps_others_out(holding: &Holding, reason: LossReason) -> bool {
    !holding.policy.lock_delay().is_zero() || reason == LossReason::Gone
}
