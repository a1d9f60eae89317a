//! One client of a golden schedule: its running machine, its lease, and the commands that it sent.
//! Owns what the schedule's events mean.

use std::time::Duration;

use quorlock_protocol::{
    Acquire, Action, Command, Environment, ErrorKind, HolderId, LeaseLife, LossReason, Machine,
    Moment, NodeId, Output, Policy, Reply, Ticket, Withdraw, WorkEnd, WorkId,
};

use super::guards::{ClientGuards, Cluster};
use super::settings::Settings;
use super::words::{answer, news, number};

pub(super) struct Session {
    pub(super) settings: Settings,
    pub(super) env: TestEnvironment,
    pub(super) work: Work,
    wake: Moment,
    pub(super) life: Option<LeaseLife>,
    /// That of the latest acquisition.
    pub(super) policy: Policy,
    pub(super) result: Outcome,
    pub(super) sent: Vec<(NodeId, Command)>,
    /// What was sent and not yet expected.
    pub(super) unexpected: Vec<(NodeId, &'static str)>,
    /// What the last error says.
    pub(super) text: String,
    pub(super) client_guards: Option<ClientGuards>,
    /// For how long its machine has stood still, in milliseconds; what it found out of that.
    pub(super) still: u64,
    pub(super) lost: Duration,
}

/// The machine under way.
pub(super) enum Work {
    None,
    Acquire(Box<Acquire>),
    /// What is at work on the lease.
    Lease(WorkId),
    Withdraw(Withdraw),
}

/// How the last one ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    Pending,
    Won,
    Extended,
    Error(ErrorKind),
    Lost(LossReason),
    AtRest,
}

pub(super) struct TestEnvironment {
    pub(super) now: Moment,
    wall: u64,
    clocks: Option<u64>,
    draws: u8,
}

impl Environment for TestEnvironment {
    fn now(&self) -> Moment {
        self.now
    }

    fn wall_micros(&self) -> u64 {
        self.wall
    }

    fn nodes_micros(&self) -> Option<u64> {
        self.clocks
    }

    fn random(&mut self) -> [u8; HolderId::RANDOM_BYTES] {
        self.draws += 1;
        [self.draws; HolderId::RANDOM_BYTES]
    }
}

impl Session {
    pub(super) fn new(
        settings: Settings,
        number: u8,
        cluster: &mut Cluster,
    ) -> Result<Self, String> {
        let (wall, clocks) = (settings.wall, settings.clocks);
        let env = TestEnvironment { now: Moment::default(), wall, clocks, draws: 0 };
        let (policy, now) = (settings.policy(None)?, Moment::from_millis(cluster.now));
        let guards = || ClientGuards::new(cluster, &policy, number, now);
        let client_guards = settings.guards.then(guards);
        Ok(Self {
            settings,
            env,
            work: Work::None,
            wake: Moment::FAR_FUTURE,
            life: None,
            policy,
            result: Outcome::Pending,
            sent: Vec::new(),
            unexpected: Vec::new(),
            text: String::new(),
            client_guards,
            still: 0,
            lost: Duration::ZERO,
        })
    }

    pub(super) fn nodes(&self) -> usize {
        self.settings.nodes()
    }

    /// Something happens at `time`.
    pub(super) fn happen(
        &mut self,
        true_time: u64,
        words: &[&str],
        cluster: &mut Cluster,
    ) -> Result<(), String> {
        if let ["still", millis] = words {
            self.still += number(millis)?;
        }
        let time = self.moment(true_time);
        if words == ["asleep"] {
            self.env.now = time;
            return Ok(());
        }
        if time > self.env.now || words == ["wait"] {
            self.pass(time);
        }
        match words {
            ["wait"] | ["still", _] => {}
            ["look"] => {
                let now = self.boot();
                if let Some(client_guards) = &mut self.client_guards {
                    client_guards.look_around(cluster, now);
                }
            }
            ["look", node] => self.look(cluster, node, true_time),
            ["acquire"] => self.acquire(None, cluster)?,
            ["acquire", "ttl", ttl] => self.acquire(Some(number(ttl)?), cluster)?,
            ["extend"] => self.extend(None)?,
            ["extend", "ttl", ttl] => self.extend(Some(number(ttl)?))?,
            ["hold"] => self.hold()?,
            ["release"] => self.release()?,
            ["cancel"] => self.cancel(),
            ["queue", node, rest @ ..] => {
                let node = NodeId(u8::try_from(number(node)?).map_err(|_| "no such node")?);
                if let Work::Acquire(machine) = &mut self.work {
                    machine.handle_news(&mut self.env, node, news(rest)?);
                }
            }
            ["node", node, command, "->", rest @ ..] => {
                let (mut answer, repeated) = answer(rest)?;
                let node = NodeId(u8::try_from(number(node)?).map_err(|_| "no such node")?);
                let ticket = self.ticket_of(node, command)?;
                if command.starts_with("grant") {
                    answer = self.inspect_grant(cluster, node, answer);
                }
                self.hear(node, Reply { ticket, answer, repeated });
            }
            _ => return Err("nothing that can happen".to_owned()),
        }
        self.settle();
        self.catch_up(true_time);
        Ok(())
    }

    /// Lets time pass; every timer goes off at its time.
    pub(super) fn pass(&mut self, time: Moment) {
        while self.wake <= time && !matches!(self.work, Work::None) {
            self.env.now = self.env.now.max(self.wake);
            let env = &mut self.env;
            match &mut self.work {
                Work::None => {}
                Work::Acquire(machine) => machine.handle_timeout(env),
                Work::Lease(id) => {
                    self.life.iter_mut().for_each(|life| life.work(*id).handle_timeout(env));
                }
                Work::Withdraw(machine) => machine.handle_timeout(env),
            }
            self.settle();
        }
        self.env.now = self.env.now.max(time);
    }

    fn hear(&mut self, node: NodeId, reply: Reply) {
        let env = &mut self.env;
        match &mut self.work {
            Work::None => {}
            Work::Acquire(machine) => machine.handle_reply(env, node, reply),
            Work::Lease(id) => {
                if let Some(life) = &mut self.life {
                    life.work(*id).handle_reply(env, node, reply);
                }
            }
            Work::Withdraw(machine) => machine.handle_reply(env, node, reply),
        }
    }

    /// Polls the machine under way until it waits or ends.
    pub(super) fn settle(&mut self) {
        match std::mem::replace(&mut self.work, Work::None) {
            Work::None => {}
            Work::Acquire(mut machine) => match self.poll(&mut *machine) {
                None => self.work = Work::Acquire(machine),
                Some(outcome) => match outcome.result {
                    Ok(won) => {
                        let (now, quorum) = (self.env.now, self.settings.quorum());
                        let won = (won.lease, won.was_queued);
                        self.life = Some(LeaseLife::won(now, won, self.policy, quorum));
                        self.result = Outcome::Won;
                    }
                    Err(kind) => {
                        self.text = self.explain(kind, &outcome);
                        self.result = Outcome::Error(kind);
                    }
                },
            },
            Work::Lease(id) => self.settle_lease(id),
            Work::Withdraw(mut machine) => {
                let is_done = self.poll(&mut machine).is_some();
                // What takes back what is left of a lost lease is not what the user waits for.
                if is_done && self.result == Outcome::Pending {
                    self.result = Outcome::AtRest;
                }
                self.work = Work::Withdraw(machine);
            }
        }
    }

    fn settle_lease(&mut self, id: WorkId) {
        let Some(mut life) = self.life.take() else {
            return;
        };
        let end = self.poll(&mut life.work(id));
        let loss = life.take_loss();
        self.life = Some(life);
        match end {
            None => self.work = Work::Lease(id),
            Some(WorkEnd::Extended(end)) => {
                self.result = end.result.map_or_else(Outcome::Error, |()| Outcome::Extended);
            }
            Some(WorkEnd::Lost(_)) => {
                self.result = loss.as_ref().map_or(Outcome::Pending, |it| Outcome::Lost(it.reason));
            }
            Some(WorkEnd::Stopped) => {}
        }
        if let Some(withdraw) = loss.and_then(|loss| loss.withdraw) {
            self.work = Work::Withdraw(withdraw);
            self.settle();
        }
    }

    fn poll<M: Machine>(&mut self, machine: &mut M) -> Option<M::Outcome> {
        let mut refused = Vec::new();
        loop {
            match machine.poll(&mut self.env) {
                Output::Send(node, command) => {
                    let is_grant = matches!(command.action, Action::Grant { .. });
                    let client_guards = self.client_guards.as_ref().filter(|_| is_grant);
                    if let Some(fault) = client_guards.and_then(|it| it.refusal(node, self.boot()))
                    {
                        let ticket = command.ticket;
                        refused.push((node, Reply { ticket, answer: Err(fault), repeated: false }));
                        continue;
                    }
                    self.unexpected.push((node, kind(&command)));
                    self.sent.push((node, command));
                }
                Output::WakeAt(_) if !refused.is_empty() => {
                    for (node, reply) in refused.drain(..) {
                        machine.handle_reply(&mut self.env, node, reply);
                    }
                }
                Output::WakeAt(at) => {
                    self.wake = at;
                    return None;
                }
                Output::Done(outcome) => {
                    self.wake = Moment::FAR_FUTURE;
                    return Some(outcome);
                }
            }
        }
    }

    /// The ticket of the last command `name` that `node` got, or of the one with the number behind `#`.
    fn ticket_of(&self, node: NodeId, name: &str) -> Result<Ticket, String> {
        let (name, place) = match name.split_once('#') {
            Some((name, place)) => (name, Some(number(place)?)),
            None => (name, None),
        };
        let mut fitting = self.sent.iter().filter(|(to, it)| *to == node && kind(it) == name);
        let found = match place {
            None => fitting.next_back(),
            Some(place) => fitting.nth(usize::try_from(place.max(1) - 1).unwrap_or(usize::MAX)),
        };
        found.map(|(_, command)| command.ticket).ok_or_else(|| format!("it got no {name}"))
    }
}

pub(super) const fn kind(command: &Command) -> &'static str {
    match command.action {
        Action::Grant { .. } => "grant",
        Action::Restore { .. } => "restore",
        Action::Extend { .. } => "extend",
        Action::Revoke { .. } => "revoke",
        Action::RaiseFence { .. } => "raise",
        Action::Inspect => "inspect",
        Action::Enqueue { .. } => "enqueue",
        Action::Leave { .. } => "leave",
        Action::CountWaiters => "count",
    }
}
