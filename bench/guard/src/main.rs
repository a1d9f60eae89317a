//! Acquires and releases over five nodes that answer at once, in the protocol's machines alone: no
//! sockets, no clock.
//!
//! `quorlock-guard PAIRS` warms up, stops itself, does PAIRS pairs, and stops itself again, so that a
//! tracer counts exactly what lies in between. Knows nothing of counting.

#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{
    Acquire, Action, Answer, Command, Environment, FencingToken, HolderId, LeaseLife, Machine,
    Moment, NodeId, Output, Policy, Quorum, Release, ReleaseOutcome, Reply, Resources,
};

const NODES: usize = 5;
const WARM_UP: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pairs = std::env::args().nth(1).map_or(Ok(1), |word| word.parse())?;
    let mut env = FixedEnvironment { now: Moment::from_millis(1), drawn: 0 };
    // As leases that follow one another share it.
    let policy = Arc::new(Policy::default());
    let mut released = 0;
    for number in 0..WARM_UP + pairs {
        if number == WARM_UP {
            mark();
        }
        released += usize::from(pair(&mut env, &policy)? == ReleaseOutcome::Released);
    }
    mark();
    if released == WARM_UP + pairs { Ok(()) } else { Err("a lock was not released".into()) }
}

/// A place that the tracer can see.
fn mark() {
    #[cfg(unix)]
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
}

/// One lock, from the name to the release that a quorum has confirmed and every node has answered.
fn pair(
    env: &mut FixedEnvironment,
    policy: &Arc<Policy>,
) -> Result<ReleaseOutcome, Box<dyn std::error::Error>> {
    let quorum = Quorum::of(NODES);
    let resources = Resources::new(["invoice:42"])?;
    let known = FencingToken(0);
    let mut acquire = Acquire::new(env.now, resources, **policy, quorum, known);
    let won = drive(&mut acquire, env).result.map_err(|kind| format!("{kind:?}"))?;
    let mut life = LeaseLife::won(env.now, (won.lease, won.was_queued), Arc::clone(policy), quorum);
    let Release::Asked { withdraw: mut release, .. } = life.release(env.now) else {
        return Err("it was not held".into());
    };
    drive(&mut release, env);
    release.outcome().ok_or_else(|| "no outcome".into())
}

/// The loop of every driver; each command is answered, in order, when the machine waits.
fn drive<M: Machine>(machine: &mut M, env: &mut FixedEnvironment) -> M::Outcome {
    let mut asked: Vec<(NodeId, Command)> = Vec::with_capacity(NODES);
    loop {
        match machine.poll(env) {
            Output::Send(node, command) => asked.push((node, command)),
            Output::Done(outcome) => return outcome,
            Output::WakeAt(at) if asked.is_empty() => {
                env.now = env.now.max(at);
                machine.handle_timeout(env);
            }
            Output::WakeAt(_) => {
                env.now = env.now + Duration::from_micros(20);
                let (node, command) = asked.remove(0);
                machine.handle_reply(env, node, agree(&command));
            }
        }
    }
}

fn agree(command: &Command) -> Reply {
    let token = match command.action {
        Action::Grant { fence, .. } => fence.map(|fence| fence.proposal),
        _ => None,
    };
    let answer = Ok(Answer::Ours { token, remaining: None });
    Reply { ticket: command.ticket, answer, repeated: false }
}

/// An environment in which every run is the same.
struct FixedEnvironment {
    now: Moment,
    drawn: u8,
}

impl Environment for FixedEnvironment {
    fn now(&self) -> Moment {
        self.now
    }

    fn wall_micros(&self) -> u64 {
        1_700_000_000_000_000
    }

    fn random(&mut self) -> [u8; HolderId::RANDOM_BYTES] {
        self.drawn = self.drawn.wrapping_add(1);
        [self.drawn; HolderId::RANDOM_BYTES]
    }
}
