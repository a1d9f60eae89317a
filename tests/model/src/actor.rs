//! Moves one client: hands inputs to its machines, collects what they send, and goes on from what they
//! end with, as the shipping client does. Owns no property; it reports what happened as events.

use std::ops::ControlFlow;
use std::time::Duration;

use quorlock_protocol::{
    Acquire, AcquireOutcome, Command, ErrorKind, FencingToken, Lease, LeaseLife, Machine, Moment,
    News, NodeId, Output, Policy, Quorum, ReleaseOutcome, Reply, Withdraw,
};

use crate::client::{Acquiring, Background, Bound, Client, Phase, Release, Task};
use crate::holding::Holding;
use crate::link::Op;
use crate::scope::Scope;
use crate::site::Holder;
use crate::waking::waiter_of;

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
    /// Who takes the lease with this serial number over got this token for it.
    TakenOver(u32, FencingToken),
    /// An acquisition was told that another holds the lock, and had met nobody.
    Refused,
    /// A release told its outcome.
    Told { draw: u32, outcome: ReleaseOutcome, release: Release },
    /// A withdrawal ended by the clock, not by the answers of all nodes.
    GivenUp(u32),
    /// No reply to this operation is waited for any more.
    Closed(Op),
    /// A machine asks to be woken at once, again and again.
    Spins,
}

/// What a machine is given.
pub(crate) enum Input<'a> {
    Nothing,
    Replies(&'a [(NodeId, Reply)]),
    News(NodeId, News),
    Timer,
    Cancel,
}

impl Actor<'_> {
    pub(crate) fn clock(&self) -> Moment {
        self.client.clock(self.scope, self.now)
    }

    pub(crate) const fn quorum(&self) -> Quorum {
        Quorum::of(self.scope.nodes)
    }

    /// Lets a machine take an input and speak until it waits; its outcome if it ends.
    pub(crate) fn turn<M: Machine>(
        &mut self,
        task: &mut Task<M>,
        input: &Input,
    ) -> Option<M::Outcome> {
        match self.drive(task.op, &mut task.machine, input) {
            ControlFlow::Continue(wake) => {
                task.wake = wake;
                None
            }
            ControlFlow::Break(outcome) => Some(outcome),
        }
    }

    /// The same: until when it waits, or its outcome.
    pub(crate) fn drive<M: Machine>(
        &mut self,
        op: Op,
        machine: &mut M,
        input: &Input,
    ) -> ControlFlow<M::Outcome, Moment> {
        let mut env = self.client.env(self.scope, self.now);
        match input {
            Input::Nothing => {}
            Input::Replies(replies) => {
                for (node, reply) in *replies {
                    machine.handle_reply(&mut env, *node, reply.clone());
                }
            }
            Input::News(node, news) => machine.handle_news(&mut env, *node, *news),
            Input::Timer => machine.handle_timeout(&mut env),
            Input::Cancel => machine.cancel(&mut env),
        }
        loop {
            match machine.poll(&mut env) {
                Output::Send(node, command) => self.sends.push((op, node, command)),
                Output::Done(outcome) => return ControlFlow::Break(outcome),
                Output::WakeAt(at) => return ControlFlow::Continue(at),
            }
        }
    }

    /// Replies have come in for the operation `op`.
    pub(crate) fn hear(&mut self, op: Op, replies: &[(NodeId, Reply)]) {
        let input = Input::Replies(replies);
        if let Some(place) = self.client.background.iter().position(|it| it.task.op == op) {
            return self.move_background(place, &input);
        }
        let has_op = |holding: &Holding| holding.driver.is_some_and(|driver| driver.op == op);
        if let Some(ended) = self.client.ended.take_if(|ended| has_op(ended)) {
            return self.work_on_what_is_over(ended, &input);
        }
        match &self.client.phase {
            Phase::Acquiring(acquiring) if acquiring.task.op == op => self.acquire_on(&input),
            Phase::Holding(holding) if has_op(holding) => self.work(&input),
            Phase::Holding(holding)
                if holding.check.as_ref().is_some_and(|it| it.task.op == op) =>
            {
                self.check_on(&input);
            }
            Phase::Lost(holding) if has_op(holding) => {
                let holding = holding.clone();
                self.work_on_what_is_over(holding, &input);
            }
            _ => {}
        }
    }

    /// A node's queue has news for the acquisition under way.
    pub(crate) fn hear_news(&mut self, node: NodeId, news: News) {
        self.acquire_on(&Input::News(node, news));
    }

    /// Every timer that is due goes off.
    pub(crate) fn wake(&mut self) {
        let clock = self.clock();
        for _ in 0..PATIENCE {
            match &self.client.phase {
                Phase::Acquiring(acquiring) if acquiring.task.wake <= clock => {
                    self.acquire_on(&Input::Timer);
                }
                Phase::Holding(holding) => {
                    let is_due = |wake| wake <= clock;
                    let is_checked = holding.check.as_ref().is_some_and(|it| is_due(it.task.wake));
                    if holding.driver.is_some_and(|driver| is_due(driver.wake)) {
                        self.work(&Input::Timer);
                    }
                    if is_checked {
                        self.check_on(&Input::Timer);
                    }
                }
                Phase::Idle | Phase::Acquiring(_) | Phase::Lost(_) => {}
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

    /// Lets the acquisition under way take an input.
    fn acquire_on(&mut self, input: &Input) {
        match std::mem::replace(&mut self.client.phase, Phase::Idle) {
            Phase::Acquiring(mut acquiring) => match self.turn(&mut acquiring.task, input) {
                None => self.client.phase = Phase::Acquiring(acquiring),
                Some(outcome) => self.acquired(&acquiring, outcome),
            },
            other => self.client.phase = other,
        }
    }

    fn move_background(&mut self, place: usize, input: &Input) {
        let mut item = self.client.background.remove(place);
        let is_done = self.turn(&mut item.task, input).is_some();
        if let (Some(release), Some(outcome)) = (item.release, item.task.machine.outcome()) {
            let draw = item.draw;
            self.events.push(Event::Told { draw, outcome, release });
            item.release = None;
        }
        if is_done {
            if item.task.machine.votes().any(|vote| !matches!(vote.answer, Some(Ok(_)))) {
                self.events.push(Event::GivenUp(item.draw));
            }
            self.events.push(Event::Closed(item.task.op));
        } else {
            self.client.background.insert(place, item);
        }
    }

    /// The user asks for the lock.
    pub(crate) fn acquire(&mut self, policy: Policy) {
        if let Some(ended) = self.client.ended.take() {
            self.close(&ended);
        }
        let known = FencingToken(self.client.known);
        let resources = self.scope.resources_of(self.client.id);
        let machine = Acquire::new(self.clock(), resources, policy, self.quorum(), known);
        let bound = Bound { until: self.clock() + longest_acquisition(&policy), stopped: false };
        let op = self.new_op();
        let machine = machine.queued_as(waiter_of(self.client.id, op));
        let machine = if self.scope.queues_first { machine.queue_first() } else { machine };
        let task = Task { op, machine, wake: self.clock() };
        let draws = self.client.draws;
        self.client.locks -= 1;
        let acquiring = Acquiring { task, draws, bound, met: false };
        self.client.phase = Phase::Acquiring(Box::new(acquiring));
        self.acquire_on(&Input::Nothing);
    }

    /// The user cancels the operation under way; dropped before its end, it withdraws.
    pub(crate) fn cancel(&mut self) {
        self.acquire_on(&Input::Cancel);
        self.work(&Input::Cancel);
    }

    fn acquired(&mut self, acquiring: &Acquiring, outcome: AcquireOutcome) {
        let mut left = outcome.withdrawals;
        if outcome.result.as_ref().is_err_and(|kind| tells_of_another(*kind)) && !acquiring.met {
            self.events.push(Event::Refused);
        }
        let Ok(won) = outcome.result else {
            // The last one continues with the replies in flight; the others ask again.
            match left.pop() {
                Some(machine) => self.withdraw(acquiring.task.op, machine, None),
                None => self.events.push(Event::Closed(acquiring.task.op)),
            }
            return self.withdraw_afresh(left);
        };
        self.events.push(Event::Closed(acquiring.task.op));
        self.withdraw_afresh(left);
        let token = won.lease.fencing_token().map_or(0, |token| token.0);
        self.client.known = self.client.known.max(token);
        let draw = holder_of(&won.lease).draw;
        let policy = self.scope.policy_of(self.client.id);
        self.client.phase = Phase::Holding(Box::new(Holding {
            life: LeaseLife::won(self.clock(), (won.lease, won.was_queued), policy, self.quorum()),
            driver: None,
            bound: None,
            check: None,
            draw,
            serial: 0,
            asked: self.clock(),
            over: false,
            looked: false,
        }));
        self.events.push(Event::Won);
        self.resume();
    }

    fn withdraw_afresh(&mut self, left: Vec<Withdraw>) {
        for mut machine in left {
            machine.restart();
            let op = self.new_op();
            self.withdraw(op, machine, None);
        }
    }

    pub(crate) fn withdraw(&mut self, op: Op, machine: Withdraw, release: Option<Release>) {
        let draw = Holder::of(&machine.claim().holder).draw;
        let task = Task { op, machine, wake: self.clock() };
        self.client.background.push(Background { task, draw, release });
        self.move_background(self.client.background.len() - 1, &Input::Nothing);
    }

    pub(crate) const fn new_op(&mut self) -> Op {
        self.client.last_op += 1;
        self.client.last_op
    }
}

const fn tells_of_another(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::NotAcquired | ErrorKind::AcquireTimedOut)
}

/// Who made the keys of a lease.
fn holder_of(lease: &Lease) -> Holder {
    Holder::of(lease.holder())
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
