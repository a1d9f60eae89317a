//! Runs one machine in a test: the test sets the time and gives the replies, and random numbers are counted up.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    Action, Answer, Claim, Command, Environment, Fault, FaultKind, FencingToken, Frees, HolderId,
    Lease, LeaseLife, Machine, Moment, NodeId, Output, Policy, PolicyBuilder, Quorum, Reply,
    Resources, WorkEnd, WorkId,
};

/// The machine's environment, as the test sets it.
#[derive(Clone, Debug)]
pub(crate) struct TestEnvironment {
    pub(crate) now: Moment,
    pub(crate) wall: u64,
    pub(crate) nodes: Option<u64>,
    pub(crate) drawn: u8,
}

impl Environment for TestEnvironment {
    fn now(&self) -> Moment {
        self.now
    }

    fn wall_micros(&self) -> u64 {
        self.wall
    }

    fn nodes_micros(&self) -> Option<u64> {
        self.nodes
    }

    fn random(&mut self) -> [u8; HolderId::RANDOM_BYTES] {
        self.drawn += 1;
        [self.drawn; HolderId::RANDOM_BYTES]
    }
}

/// A machine with its environment, and all that it has sent so far.
pub(crate) struct Harness<M: Machine> {
    pub(crate) machine: M,
    pub(crate) env: TestEnvironment,
    pub(crate) sent: Vec<(NodeId, Command)>,
    pub(crate) wake_at: Option<Moment>,
    pub(crate) done: Option<M::Outcome>,
}

impl<M: Machine> Harness<M> {
    pub(crate) fn start(machine: M) -> Self {
        Self::at(Moment::from_millis(0), machine)
    }

    /// The same at another time.
    pub(crate) fn at(now: Moment, machine: M) -> Self {
        let env = TestEnvironment { now, wall: 1_000, nodes: None, drawn: 0 };
        let mut harness = Self { machine, env, sent: Vec::new(), wake_at: None, done: None };
        harness.settle();
        harness
    }

    /// Polls until the machine waits or is done.
    pub(crate) fn settle(&mut self) {
        while self.done.is_none() {
            match self.machine.poll(&mut self.env) {
                Output::Send(node, command) => self.sent.push((node, command)),
                Output::WakeAt(at) => {
                    self.wake_at = Some(at);
                    return;
                }
                Output::Done(outcome) => self.done = Some(outcome),
            }
        }
    }

    /// The command of this kind that was last sent to `node`.
    pub(crate) fn last(&self, node: u8, wanted: &str) -> Command {
        let found =
            self.sent.iter().rev().find(|(to, command)| to.0 == node && kind(command) == wanted);
        found.unwrap_or_else(|| panic!("no {wanted} was sent to node {node}")).1.clone()
    }

    /// How many commands of this kind were sent.
    pub(crate) fn count(&self, wanted: &str) -> usize {
        self.sent.iter().filter(|(_, command)| kind(command) == wanted).count()
    }

    /// The nodes that got a command of this kind, in order.
    pub(crate) fn targets(&self, wanted: &str) -> Vec<u8> {
        let fitting = self.sent.iter().filter(|(_, command)| kind(command) == wanted);
        fitting.map(|(node, _)| node.0).collect()
    }

    /// `node` answers the last command of this kind.
    pub(crate) fn answer(&mut self, node: u8, wanted: &str, answer: Result<Answer, Fault>) {
        let ticket = self.last(node, wanted).ticket;
        self.reply(node, Reply { ticket, answer, repeated: false });
    }

    pub(crate) fn reply(&mut self, node: u8, reply: Reply) {
        self.machine.handle_reply(&mut self.env, NodeId(node), reply);
        self.settle();
    }

    /// Lets time pass and wakes the machine as often as it asks for it.
    pub(crate) fn wait_until(&mut self, millis: u64) {
        let end = Moment::from_millis(millis);
        while self.done.is_none() {
            let wake_at = self.wake_at.unwrap_or(Moment::FAR_FUTURE);
            if wake_at > end {
                break;
            }
            self.env.now = self.env.now.max(wake_at);
            self.machine.handle_timeout(&mut self.env);
            self.settle();
        }
        self.env.now = self.env.now.max(end);
    }

    /// Goes to the moment that the machine asked to be woken at, and wakes it.
    pub(crate) fn wake(&mut self) {
        self.env.now = self.env.now.max(self.wake_at.expect("the machine waits"));
        self.machine.handle_timeout(&mut self.env);
        self.settle();
    }

    pub(crate) fn cancel(&mut self) {
        self.machine.cancel(&mut self.env);
        self.settle();
    }

    pub(crate) fn outcome(self) -> M::Outcome {
        self.done.expect("the machine has finished")
    }
}

/// What is at work on a lease under a number, as a machine that owns the lease.
#[derive(Debug)]
pub(crate) struct Working {
    pub(crate) life: LeaseLife,
    pub(crate) id: WorkId,
}

impl Working {
    /// Renews the lease, or watches its end.
    pub(crate) fn renewing(mut life: LeaseLife, now: Moment) -> Harness<Self> {
        let (id, first) = life.resume(now, true).expect("it is held, and to be kept");
        let harness = Harness::at(now, Self { life, id });
        assert_eq!(harness.wake_at, Some(first));
        harness
    }

    /// Extends the lease.
    pub(crate) fn extending(mut life: LeaseLife, now: Moment, policy: Policy) -> Harness<Self> {
        let id = life.extend(now, Arc::new(policy)).expect("it is held");
        Harness::at(now, Self { life, id })
    }

    /// The lease as it stands now.
    pub(crate) fn lease(&self) -> &Lease {
        self.life.lease().expect("it is proved")
    }
}

impl Machine for Working {
    type Outcome = WorkEnd;

    fn poll(&mut self, env: &mut dyn Environment) -> Output<WorkEnd> {
        self.life.work(self.id).poll(env)
    }

    fn handle_reply(&mut self, env: &mut dyn Environment, node: NodeId, reply: Reply) {
        self.life.work(self.id).handle_reply(env, node, reply);
    }

    fn handle_timeout(&mut self, env: &mut dyn Environment) {
        self.life.work(self.id).handle_timeout(env);
    }

    fn cancel(&mut self, env: &mut dyn Environment) {
        self.life.work(self.id).cancel(env);
    }
}

pub(crate) fn kind(command: &Command) -> &'static str {
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

pub(crate) fn ours(token: u64) -> Result<Answer, Fault> {
    Ok(Answer::Ours { token: Some(FencingToken(token)), remaining: None })
}

pub(crate) fn kept() -> Result<Answer, Fault> {
    Ok(Answer::Ours { token: None, remaining: None })
}

pub(crate) fn absent() -> Result<Answer, Fault> {
    Ok(Answer::Absent)
}

pub(crate) fn theirs(frees: Frees) -> Result<Answer, Fault> {
    Ok(Answer::Theirs { floor: None, frees })
}

pub(crate) fn frees_in(millis: u64) -> Frees {
    Frees::In(Duration::from_millis(millis))
}

pub(crate) fn fault(kind: FaultKind) -> Result<Answer, Fault> {
    Err(Fault::new(kind, "as the test says"))
}

/// A policy with ttl 1000 ms (drift 12 ms), node timeout 50 ms and no jitter.
pub(crate) fn policy(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Policy {
    let base = Policy::builder()
        .ttl(Duration::from_secs(1))
        .node_timeout(Duration::from_millis(50))
        .retry_delay(Duration::from_millis(100))
        .retry_jitter(Duration::ZERO);
    change(base).build().expect("a valid policy")
}

pub(crate) fn resources() -> Resources {
    Resources::new(["r"]).expect("a valid name")
}

pub(crate) fn claim(holder: &str) -> Arc<Claim> {
    let holder = HolderId::adopt(holder).expect("a valid id");
    Arc::new(Claim { resources: resources(), holder })
}

pub(crate) const fn quorum(nodes: usize) -> Quorum {
    Quorum::of(nodes)
}
