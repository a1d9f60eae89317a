//! Passes a user's actions and the nodes' answers to the shipping life of a lease, and carries out
//! what it says. Owns no rule and no property.

use std::mem;
use std::ops::ControlFlow;

use quorlock_protocol::{LeaseLife, Loss, Moment, Policy, Release as End, WorkEnd};

use crate::actor::{Actor, Event, Input};
use crate::client::{Bound, Phase, Release, Task};
use crate::holding::{Check, Driver, Holding};

impl Actor<'_> {
    /// Has the lease renewed, where the policy says so.
    pub(crate) fn resume(&mut self) {
        let clock = self.clock();
        let Phase::Holding(holding) = &mut self.client.phase else {
            return;
        };
        if let Some((id, wake)) = holding.life.resume(clock, true) {
            self.client.last_op += 1;
            holding.driver = Some(Driver { op: self.client.last_op, id, wake });
        }
    }

    /// Lets what is at work on the lease take an input.
    pub(crate) fn work(&mut self, input: &Input) {
        let Some((mut holding, driver)) = self.take_holding(|it| it.driver.take()) else {
            return;
        };
        let promised = holding.kept_until();
        match self.drive(driver.op, &mut holding.life.work(driver.id), input) {
            ControlFlow::Continue(wake) => {
                holding.driver = Some(Driver { wake, ..driver });
                self.client.phase = Phase::Holding(holding);
            }
            ControlFlow::Break(end) => {
                holding.bound = None;
                if let Some(loss) = holding.life.take_loss() {
                    holding.driver = Some(driver);
                    return self.lose(holding, loss, promised);
                }
                self.events.push(Event::Closed(driver.op));
                self.client.phase = Phase::Holding(holding);
                if matches!(end, WorkEnd::Extended(_)) {
                    self.resume();
                }
            }
        }
    }

    /// Lets a check take an input.
    pub(crate) fn check_on(&mut self, input: &Input) {
        let Some((mut holding, mut check)) = self.take_holding(|it| it.check.take()) else {
            return;
        };
        let promised = holding.kept_until();
        let Some(inspection) = self.turn(&mut check.task, input) else {
            holding.check = Some(check);
            self.client.phase = Phase::Holding(holding);
            return;
        };
        self.events.push(Event::Closed(check.task.op));
        let life = check.taken_over.as_mut().unwrap_or(&mut holding.life);
        life.checked(self.clock(), check.asked, &inspection.standing);
        if let Some(token) = check.taken_over.and_then(|life| life.fencing_token()) {
            self.events.push(Event::TakenOver(holding.serial, token));
        }
        match holding.life.take_loss() {
            Some(loss) => self.lose(holding, loss, promised),
            None => self.client.phase = Phase::Holding(holding),
        }
        self.resume();
    }

    /// What came for a lease that is over is still handed in: it must not bring it back.
    pub(crate) fn work_on_what_is_over(&mut self, mut holding: Box<Holding>, input: &Input) {
        if let Some(driver) = holding.driver {
            let _ = self.drive(driver.op, &mut holding.life.work(driver.id), input);
        }
        match self.client.phase {
            Phase::Lost(_) => self.client.phase = Phase::Lost(holding),
            _ => self.client.ended = Some(holding),
        }
    }

    /// The user extends the lease by the ttl of `policy`.
    pub(crate) fn extend(&mut self, policy: Policy) {
        let clock = self.clock();
        let Phase::Holding(holding) = &mut self.client.phase else {
            return;
        };
        let promised = holding.kept_until();
        let id = holding.life.extend(clock, policy.into());
        let loss = holding.life.take_loss();
        self.events.extend(holding.driver.take().map(|before| Event::Closed(before.op)));
        if let Some(id) = id {
            let patience = policy.timeout().unwrap_or(policy.unreachable_timeout());
            holding.asked = clock + patience + policy.node_timeout();
            let until = holding.until().min(holding.asked);
            holding.bound = Some(Bound { until, stopped: false });
            self.client.last_op += 1;
            holding.driver = Some(Driver { op: self.client.last_op, id, wake: clock });
            self.work(&Input::Nothing);
        }
        if let Some(loss) = loss
            && let Some((holding, ())) = self.take_holding(|_| Some(()))
        {
            self.lose(holding, loss, promised);
        }
    }

    /// The user asks the nodes whether they hold the lease.
    pub(crate) fn check(&mut self) {
        let clock = self.clock();
        let Phase::Holding(holding) = &mut self.client.phase else {
            return;
        };
        let promised = holding.kept_until();
        holding.life.expire(clock);
        if let Some(loss) = holding.life.take_loss() {
            if let Some((holding, ())) = self.take_holding(|_| Some(())) {
                self.lose(holding, loss, promised);
            }
            return;
        }
        let (asked, machine) = holding.life.look(clock, holding.life.policy());
        self.client.last_op += 1;
        let task = Task { op: self.client.last_op, machine, wake: clock };
        holding.check = Some(Box::new(Check { task, asked, taken_over: None }));
        self.check_on(&Input::Nothing);
    }

    /// Somebody takes the lease over by its holder id: asks for its token.
    pub(crate) fn take_over(&mut self) {
        let (clock, quorum) = (self.clock(), self.quorum());
        let Phase::Holding(holding) = &mut self.client.phase else {
            return;
        };
        let claim = holding.lease().claim().clone();
        let policy = holding.life.policy().clone();
        let life = LeaseLife::taken_over(clock, claim, policy, quorum);
        let (asked, machine) = life.look(clock, life.policy());
        self.client.last_op += 1;
        let task = Task { op: self.client.last_op, machine, wake: clock };
        holding.check = Some(Box::new(Check { task, asked, taken_over: Some(life) }));
        self.check_on(&Input::Nothing);
    }

    /// The user gives the lease back.
    pub(crate) fn release(&mut self) {
        let Some(mut holding) = self.let_go() else {
            return;
        };
        let clock = self.clock();
        let was_extending = holding.life.is_extending();
        let keeps = holding.life.since() + holding.life.policy().min_hold();
        if keeps > clock {
            self.client.let_run_out(&holding);
        }
        let end = holding.life.release(clock);
        if let End::Asked { withdraw, .. } | End::Lost(Some(withdraw)) = &end
            && withdraw.max_remaining(clock).is_some_and(|most| most.is_zero())
            && holding.until() <= clock
        {
            self.client.let_run_out(&holding);
        }
        match end {
            End::NotHeld => {}
            // The work under a lost lease has ended, and the outcome is told at once.
            End::Lost(left) => {
                self.client.keeps_out = Moment::default();
                if let Some(withdraw) = left {
                    let op = self.new_op();
                    self.withdraw(op, withdraw, None);
                }
            }
            End::Asked { withdraw, was_over } => {
                let until = clock + holding.life.policy().node_timeout();
                let bound = Bound { until, stopped: false };
                let release = Release { stood: 0, deleted: 0, keeps, was_over, bound };
                let op = self.new_op();
                self.withdraw(op, withdraw, Some(release));
            }
        }
        if was_extending {
            self.work_on_what_is_over(holding, &Input::Cancel);
        } else {
            self.close(&holding);
        }
    }

    /// The user forgets the lease without giving it back.
    pub(crate) fn abandon(&mut self) {
        if let Some(holding) = self.let_go() {
            self.close(&holding);
            self.client.let_run_out(&holding);
        }
    }

    /// Nobody waits for what comes for it any more.
    pub(crate) fn close(&mut self, holding: &Holding) {
        self.events.extend(holding.driver.map(|driver| Event::Closed(driver.op)));
        self.events.extend(holding.check.as_ref().map(|check| Event::Closed(check.task.op)));
    }

    /// Takes a lease, lost or not, out of the user's hands.
    fn let_go(&mut self) -> Option<Box<Holding>> {
        match mem::replace(&mut self.client.phase, Phase::Idle) {
            Phase::Holding(holding) | Phase::Lost(holding) => Some(holding),
            other => {
                self.client.phase = other;
                None
            }
        }
    }

    /// Takes a lease out of the user's hands with what `part` takes out of it, if that is there.
    fn take_holding<T>(
        &mut self,
        part: impl FnOnce(&mut Holding) -> Option<T>,
    ) -> Option<(Box<Holding>, T)> {
        let Phase::Holding(holding) = &mut self.client.phase else {
            return None;
        };
        let part = part(holding)?;
        self.let_go().map(|holding| (holding, part))
    }

    /// The user is told that the lease is lost, of which others are kept out until `promised`.
    fn lose(&mut self, mut holding: Box<Holding>, loss: Loss, promised: Moment) {
        if promised > self.clock() {
            self.client.keep_others_out(promised);
        }
        self.events.extend(holding.check.take().map(|check| Event::Closed(check.task.op)));
        holding.over = true;
        if let Some(withdraw) = loss.withdraw {
            self.close(&holding);
            let op = self.new_op();
            self.withdraw(op, withdraw, None);
        } else {
            // As the shipping client does whenever something has come of a lease.
            let again = holding.life.resume(self.clock(), true);
            holding.driver = again.map_or(holding.driver, |(id, wake)| {
                holding.driver.map(|driver| Driver { id, wake, ..driver })
            });
            self.client.phase = Phase::Lost(holding);
        }
    }
}
