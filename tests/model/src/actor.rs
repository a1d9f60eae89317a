//! Moves one client: hands inputs to its machines, collects what they send, and goes on from what they
//! end with, as the shipping client does. Owns no property; it reports what happened as events.

use std::time::Duration;

use quorlock_protocol::{
    Acquire, AcquireOutcome, Command, ErrorKind, Extend, ExtendOutcome, Extension, FencingToken,
    Hold, HoldEnd, Lease, Machine, Moment, NodeId, Output, Policy, Quorum, ReleaseOutcome, Reply,
    Ticket, Withdraw, Withdrawal,
};

use crate::client::{
    Acquiring, Background, Bound, Client, Holding, Phase, Release, Status, Task, Work,
};
use crate::link::Op;
use crate::scope::Scope;
use crate::site::Owner;

/// A client at one moment.
pub(crate) struct Actor<'a> {
    pub(crate) scope: &'a Scope,
    pub(crate) now: u64,
    pub(crate) client: &'a mut Client,
    pub(crate) sends: Vec<(Op, NodeId, Command)>,
    pub(crate) events: Vec<Event>,
}

/// What the world should look at.
pub(crate) enum Event {
    /// A lease was won.
    Won,
    /// A release told its outcome; these nodes' keys were deleted by it.
    Told { draw: u32, outcome: ReleaseOutcome, deleted: u64 },
    /// A withdrawal ended; `all` if every node answered it.
    Withdrawn { draws: (u32, u32), all: bool },
    /// No reply to this operation is waited for any more.
    Closed(Op),
    /// A machine asks to be woken at once, again and again.
    Spins,
}

/// What a machine is given.
pub(crate) enum Input<'a> {
    Nothing,
    Replies(&'a [(NodeId, Reply)]),
    Timer,
    Cancel,
}

impl Actor<'_> {
    pub(crate) fn clock(&self) -> Moment {
        self.scope.client_rate.moment(self.now)
    }

    const fn quorum(&self) -> Quorum {
        Quorum::of(self.scope.nodes)
    }

    /// Lets a machine take an input and speak until it waits; its outcome if it ends.
    fn turn<M: Machine>(&mut self, task: &mut Task<M>, input: &Input) -> Option<M::Outcome> {
        let mut env = self.client.env(self.scope, self.now);
        match input {
            Input::Nothing => {}
            Input::Replies(replies) => {
                for (node, reply) in *replies {
                    task.machine.handle_reply(&mut env, *node, reply.clone());
                }
            }
            Input::Timer => task.machine.handle_timeout(&mut env),
            Input::Cancel => task.machine.cancel(&mut env),
        }
        loop {
            match task.machine.poll(&mut env) {
                Output::Send(node, command) => self.sends.push((task.op, node, command)),
                Output::Done(outcome) => return Some(outcome),
                Output::WakeAt(at) => {
                    task.wake = at;
                    return None;
                }
            }
        }
    }

    /// Replies have come in for the operation `op`.
    pub(crate) fn hear(&mut self, op: Op, replies: &[(NodeId, Reply)]) {
        let input = Input::Replies(replies);
        if self.foreground_op() == Some(op) {
            self.move_foreground(&input);
        } else if let Some(place) = self.client.background.iter().position(|it| it.task.op == op) {
            self.move_background(place, &input);
        }
    }

    /// Every timer that is due goes off.
    pub(crate) fn wake(&mut self) {
        let clock = self.clock();
        for _ in 0..PATIENCE {
            if self.foreground_wake() <= clock {
                self.move_foreground(&Input::Timer);
            }
            let mut place = 0;
            while place < self.client.background.len() {
                let before = self.client.background.len();
                if self.client.background[place].task.wake <= clock {
                    self.move_background(place, &Input::Timer);
                }
                place += usize::from(self.client.background.len() == before);
            }
            if self.client.wake() > clock {
                return;
            }
        }
        self.events.push(Event::Spins);
    }

    fn foreground_op(&self) -> Option<Op> {
        match &self.client.phase {
            Phase::Idle => None,
            Phase::Acquiring(acquiring) => Some(acquiring.task.op),
            Phase::Holding(holding) => match &holding.work {
                Work::Nothing => None,
                Work::Keeping(task) => Some(task.op),
                Work::Extending(task, ..) => Some(task.op),
            },
        }
    }

    fn foreground_wake(&self) -> Moment {
        match &self.client.phase {
            Phase::Idle => Moment::FAR_FUTURE,
            Phase::Acquiring(acquiring) => acquiring.task.wake,
            Phase::Holding(holding) => match &holding.work {
                Work::Nothing => Moment::FAR_FUTURE,
                Work::Keeping(task) => task.wake,
                Work::Extending(task, ..) => task.wake,
            },
        }
    }

    fn move_foreground(&mut self, input: &Input) {
        match std::mem::replace(&mut self.client.phase, Phase::Idle) {
            Phase::Idle => {}
            Phase::Acquiring(mut acquiring) => match self.turn(&mut acquiring.task, input) {
                None => self.client.phase = Phase::Acquiring(acquiring),
                Some(outcome) => self.acquired(&acquiring, outcome),
            },
            Phase::Holding(mut holding) => {
                match std::mem::replace(&mut holding.work, Work::Nothing) {
                    Work::Nothing => self.client.phase = Phase::Holding(holding),
                    Work::Keeping(task) => self.keep(holding, task, input),
                    Work::Extending(task, bound, policy) => {
                        self.extending(holding, task, bound, policy, input);
                    }
                }
            }
        }
    }

    fn move_background(&mut self, place: usize, input: &Input) {
        let mut item = self.client.background.remove(place);
        let is_done = self.turn(&mut item.task, input).is_some();
        if let (Some(release), Some(outcome)) = (item.release, item.task.machine.outcome()) {
            let (draw, deleted) = (item.draws.0, release.deleted);
            self.events.push(Event::Told { draw, outcome, deleted });
            item.release = None;
        }
        if is_done {
            let votes = item.task.machine.report().votes;
            let all = votes.iter().all(|vote| matches!(vote.answer, Some(Ok(_))));
            self.events.push(Event::Withdrawn { draws: item.draws, all });
            self.events.push(Event::Closed(item.task.op));
        } else {
            self.client.background.insert(place, item);
        }
    }

    /// The user asks for the lock.
    pub(crate) fn acquire(&mut self, policy: Policy) {
        let known = FencingToken(self.client.known);
        let resources = self.scope.resources_of(self.client.id);
        let machine = Acquire::new(self.clock(), resources, policy, self.quorum(), known);
        let bound = Bound { until: self.clock() + longest_acquisition(&policy), stopped: false };
        let task = Task { op: self.new_op(), machine, wake: self.clock() };
        let draws = self.client.draws;
        self.client.locks -= 1;
        self.client.phase = Phase::Acquiring(Box::new(Acquiring { task, draws, bound }));
        self.move_foreground(&Input::Nothing);
    }

    /// The user gives up what is under way; dropped half-way, it withdraws.
    pub(crate) fn cancel(&mut self) {
        self.move_foreground(&Input::Cancel);
    }

    fn acquired(&mut self, acquiring: &Acquiring, outcome: AcquireOutcome) {
        let draws = (acquiring.draws + 1, self.client.draws);
        let mut left = outcome.withdrawals;
        let Ok(won) = outcome.result else {
            // The last one goes on with the replies that are on their way; the others ask again.
            match left.pop() {
                Some(machine) => self.withdraw(acquiring.task.op, machine, draws, None),
                None => self.events.push(Event::Closed(acquiring.task.op)),
            }
            return self.withdraw_afresh(left, draws);
        };
        self.events.push(Event::Closed(acquiring.task.op));
        self.withdraw_afresh(left, draws);
        let token = won.lease.fencing_token().map_or(0, |token| token.0);
        self.client.known = self.client.known.max(token);
        self.client.phase = Phase::Holding(Box::new(Holding {
            draw: owner_of(&won.lease).draw,
            lease: won.lease,
            policy: self.scope.policy,
            serial: 0,
            since: self.clock(),
            work: Work::Nothing,
            looked: false,
        }));
        self.events.push(Event::Won);
        self.resume();
    }

    fn withdraw_afresh(&mut self, left: Vec<Withdraw>, draws: (u32, u32)) {
        for mut machine in left {
            machine.restart();
            let op = self.new_op();
            self.withdraw(op, machine, draws, None);
        }
    }

    fn withdraw(&mut self, op: Op, machine: Withdraw, draws: (u32, u32), release: Option<Release>) {
        let task = Task { op, machine, wake: self.clock() };
        self.client.background.push(Background { task, draws, release });
        self.move_background(self.client.background.len() - 1, &Input::Nothing);
    }

    /// Starts to renew the lease, where the policy says so.
    fn resume(&mut self) {
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

    fn keep(&mut self, mut holding: Box<Holding>, mut task: Task<Hold>, input: &Input) {
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
            HoldEnd::Lost(_, withdraw) => {
                let op = self.new_op();
                self.withdraw(op, withdraw, (holding.draw, holding.draw), None);
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
            return self.lose(&holding);
        }
        let patience = policy.timeout().unwrap_or(policy.unreachable_timeout());
        let extension = Extension {
            claim: holding.lease.claim().clone(),
            fencing_token: holding.lease.fencing_token(),
            until: holding.lease.until(),
            patience,
            first_ticket: 0,
        };
        let machine = Extend::new(clock, extension, policy, self.quorum());
        let until = holding.until().min(clock + patience + policy.node_timeout());
        let task = Task { op: self.new_op(), machine, wake: clock };
        holding.work = Work::Extending(task, Bound { until, stopped: false }, policy);
        self.client.phase = Phase::Holding(holding);
        self.move_foreground(&Input::Nothing);
    }

    fn extending(
        &mut self,
        mut holding: Box<Holding>,
        mut task: Task<Extend>,
        bound: Bound,
        policy: Policy,
        input: &Input,
    ) {
        let outcome = self.turn(&mut task, input);
        holding.lease.limit(task.machine.until());
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
            Err(ErrorKind::LeaseLost) => return self.lose(&holding),
            Err(_) => {}
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
                if let Work::Keeping(task) = std::mem::replace(&mut holding.work, Work::Nothing) {
                    self.events.push(Event::Closed(task.op));
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
        let Some(holding) = self.stop_work() else {
            return;
        };
        let until = self.clock() + holding.policy.node_timeout();
        let release = Release { deleted: 0, bound: Bound { until, stopped: false } };
        self.take_back(&holding, Some(release));
    }

    /// The user forgets the lease without giving it back.
    pub(crate) fn abandon(&mut self) {
        if let Some(holding) = self.stop_work() {
            self.client.excused.push(holding.draw);
        }
    }

    fn lose(&mut self, holding: &Holding) {
        self.take_back(holding, None);
    }

    fn take_back(&mut self, holding: &Holding, release: Option<Release>) {
        let clock = self.clock();
        let withdrawal = Withdrawal {
            ticket: Ticket(0),
            claim: holding.lease.claim().clone(),
            quorum: self.quorum(),
            forgotten: holding.lease.forgotten().max(clock + holding.policy.node_timeout()),
            node_timeout: holding.policy.node_timeout(),
        };
        let machine = Withdraw::new(clock, withdrawal);
        let op = self.new_op();
        self.withdraw(op, machine, (holding.draw, holding.draw), release);
    }

    const fn new_op(&mut self) -> Op {
        self.client.last_op += 1;
        self.client.last_op
    }

    /// Whether the client can be handed anything.
    pub(crate) fn runs(&self) -> bool {
        self.client.status == Status::Running
    }
}

/// Who made the keys of a lease.
fn owner_of(lease: &Lease) -> Owner {
    Owner::of(lease.holder())
}

/// The longest that an acquisition under `policy` may take.
fn longest_acquisition(policy: &Policy) -> Duration {
    let round = policy.node_timeout() * 2;
    let rounds = policy.retry_limit().map_or(Duration::MAX, |limit| {
        (round + LONGEST_DELAY).saturating_mul(limit).saturating_add(round)
    });
    policy.timeout().unwrap_or(rounds).min(rounds)
}

/// A bound on retry delay and jitter of every scope.
const LONGEST_DELAY: Duration = Duration::from_millis(250);
/// How often in a row a client may be woken at one moment.
const PATIENCE: usize = 8;
