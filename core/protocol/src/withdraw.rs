//! The withdraw machine: takes a claim back from every node, for a release or after a lost round.
//!
//! ```text
//!            poll: send command           reply
//!   Ready ───────────────────────▶ Sent ─────────▶ Settled
//!     ▲                             │ no reply in time, or a fault
//!     │        time has passed      ▼
//!     └───────────────────────── Resting ─────────▶ Settled (late reply)
//! ```
//!
//! Nodes are handled independently of each other. The outcome is known when a quorum has answered
//! ([`Withdraw::outcome`]); the machine continues until every node has answered, or its keys have
//! expired.
//!
//! A release may have to keep the lock from others for a while ([`Withdraw::keeping`]): until then
//! a node is sent no revoke but an extension by the time that is left, after which the keys expire.

mod outcome;
mod progress;

use std::sync::Arc;
use std::time::Duration;

pub use self::outcome::ReleaseOutcome;
use self::progress::{Progress, State};
use crate::command::{Action, Answer, Command, Reply, Ticket};
use crate::fault::{Fault, FaultKind};
use crate::identity::{Claim, NodeId};
use crate::machine::{Environment, Machine, Output};
use crate::quorum::{Quorum, Vote};
use crate::round::NodeVote;
use crate::time::Moment;
use crate::validity::Drift;

/// Takes a claim back from the nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Withdraw {
    ticket: Ticket,
    claim: Arc<Claim>,
    quorum: Quorum,
    started: Moment,
    /// When the keys have expired on every node.
    keys_expire_by: Moment,
    /// The time before which the keys cannot have expired.
    valid_until: Moment,
    keep: Option<Keep>,
    /// Keys that last longer than until then stay.
    spared_from: Option<Moment>,
    /// Whether nodes call those that wait for the keys.
    calls: bool,
    node_timeout: Duration,
    nodes: Vec<Progress>,
}

/// Until when the keys must stay, and how much faster than the lease clock a node's clock may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Keep {
    until: Moment,
    drift: Drift,
}

/// The keys to take back, and what is known of them.
#[derive(Clone, Debug)]
pub struct Withdrawal {
    /// Unique among the rounds of the machine or lease that asks.
    pub ticket: Ticket,
    /// The claim whose keys are taken back.
    pub claim: Arc<Claim>,
    /// How many nodes there are.
    pub quorum: Quorum,
    /// When the keys have expired on every node; no node is asked after that.
    pub keys_expire_by: Moment,
    /// Nodes that cannot hold the keys, because the grant was never sent to them: they are not asked.
    pub unsent: Vec<NodeId>,
    /// How long to wait for one node before the outcome is decided without it.
    pub node_timeout: Duration,
}

impl Withdraw {
    /// Starts to take a claim back from every node that may hold it.
    pub fn new(now: Moment, withdrawal: Withdrawal) -> Self {
        let mut nodes = vec![Progress::new(); withdrawal.quorum.nodes()];
        for node in withdrawal.unsent {
            nodes[node.index()].settle(Err(Fault::new(FaultKind::NotSent, NEVER_ASKED)));
        }
        Self {
            ticket: withdrawal.ticket,
            claim: withdrawal.claim,
            quorum: withdrawal.quorum,
            started: now,
            keys_expire_by: withdrawal.keys_expire_by,
            valid_until: now,
            keep: None,
            spared_from: None,
            calls: false,
            node_timeout: withdrawal.node_timeout,
            nodes,
        }
    }

    /// Sets the time before which the keys cannot have expired: if keys are gone earlier, and the
    /// reply to a command was lost, that command deleted them. Without it nothing can be concluded.
    #[must_use]
    pub const fn valid_until(mut self, until: Moment) -> Self {
        self.valid_until = until;
        self
    }

    /// Leaves the keys on their nodes until then, by the slowest clock that `drift` allows: a node
    /// is asked to keep them for the time that is left, and to delete them only afterwards.
    #[must_use]
    pub fn keeping(mut self, until: Moment, drift: Drift) -> Self {
        self.keep = (until > self.started).then_some(Keep { until, drift });
        self
    }

    /// Leaves keys that last longer than until then, as the lease has ended: another who has its token has extended
    /// them. They are not shortened either.
    #[must_use]
    pub const fn sparing(mut self, from: Moment) -> Self {
        self.spared_from = Some(from);
        self
    }

    /// Has every node call the first waiter for the keys, once they are free there (if `calls`).
    #[must_use]
    pub const fn calling(mut self, calls: bool) -> Self {
        self.calls = calls;
        self
    }

    /// What is taken back.
    pub const fn claim(&self) -> &Arc<Claim> {
        &self.claim
    }

    /// Asks every node without an answer again, for a driver that missed earlier replies.
    pub fn restart(&mut self) {
        for progress in &mut self.nodes {
            progress.restart();
        }
    }

    /// How much may be left of a key that is deleted now; `None` without a limit.
    pub fn max_remaining(&self, now: Moment) -> Option<Duration> {
        self.spared_from.map(|from| from.since(now))
    }

    pub(crate) const fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// What became of the keys, as soon as that is certain; `Unknown` once every node was asked and
    /// too few have answered.
    pub fn outcome(&self) -> Option<ReleaseOutcome> {
        let (mut ours, mut absent, mut theirs) = (0, 0, 0);
        for progress in self.nodes.iter().filter(|progress| !progress.unclear) {
            match &progress.answer {
                Some(Ok(Answer::Ours { .. })) => ours += 1,
                Some(Ok(Answer::Absent)) => absent += 1,
                Some(Ok(Answer::Theirs { .. })) => theirs += 1,
                // A key of another type is not ours: another program wrote it.
                Some(Err(fault)) if fault.kind() == FaultKind::WrongType => theirs += 1,
                Some(_) | None => {}
            }
        }
        if ours >= self.quorum.size() {
            Some(ReleaseOutcome::Released)
        } else if theirs >= self.quorum.size() {
            Some(ReleaseOutcome::Taken)
        } else if self.quorum.is_blocked_by(absent + theirs)
            && theirs + self.still_to_answer() < self.quorum.size()
        {
            Some(ReleaseOutcome::Expired)
        } else if self.has_asked_all() {
            Some(ReleaseOutcome::Unknown)
        } else {
            None
        }
    }

    /// What every node answered so far.
    pub fn votes(&self) -> impl Iterator<Item = NodeVote> {
        self.nodes.iter().map(|progress| NodeVote {
            vote: Vote::of(progress.answer.as_ref()),
            answer: progress.answer.clone(),
            took: progress.took,
        })
    }

    /// Whether every node was asked and has answered, or failed to.
    pub fn has_asked_all(&self) -> bool {
        self.still_to_answer() == 0
    }

    fn still_to_answer(&self) -> usize {
        self.nodes.iter().filter(|progress| !progress.has_had_its_chance()).count()
    }

    /// Whether no node needs another command.
    pub fn is_done(&self) -> bool {
        self.nodes.iter().all(|progress| progress.state == State::Settled)
    }

    /// The next command, without the machine's other outputs (for machines that contain this one).
    pub(crate) fn poll_send(&mut self, now: Moment) -> Option<(NodeId, Command)> {
        let index = self.nodes.iter().position(|progress| progress.state == State::Ready)?;
        let deadline = now + self.node_timeout;
        let (action, not_after) = self.action(now, deadline);
        let progress = &mut self.nodes[index];
        progress.send(deadline);
        let (ticket, claim) = (self.ticket, Arc::clone(&self.claim));
        let command = Command { ticket, claim, action, not_after };
        Some((NodeId::all(self.nodes.len()).nth(index)?, command))
    }

    /// What to ask a node now, and until when the command may be carried out: a time to keep the
    /// keys is right only for a while, and prolongs them.
    fn action(&mut self, now: Moment, deadline: Moment) -> (Action, Moment) {
        let Some(Keep { until, drift }) = self.keep.filter(|keep| now < keep.until) else {
            let max_remaining = self.max_remaining(now);
            return (Action::Revoke { calls: self.calls, max_remaining }, self.keys_expire_by);
        };
        let key_ttl = drift.lasting(until.since(now));
        self.keys_expire_by = self.keys_expire_by.max(drift.keys_expire_by(key_ttl, deadline));
        let may_shorten = Some(self.max_remaining(now).unwrap_or(Duration::MAX));
        (Action::Extend { key_ttl, may_shorten }, deadline)
    }

    /// When something is due next.
    pub(crate) fn wake_at(&self) -> Moment {
        let due = |progress: &Progress| match progress.state {
            State::Sent { deadline: at } | State::Resting { until: at } => Some(at),
            State::Ready | State::Settled => None,
        };
        self.nodes.iter().filter_map(due).min().unwrap_or(Moment::FAR_FUTURE)
    }

    pub(crate) fn reply(&mut self, now: Moment, node: NodeId, reply: Reply) {
        let Some(progress) = self.nodes.get_mut(node.index()) else {
            return;
        };
        if reply.ticket != self.ticket || matches!(progress.answer, Some(Ok(_))) {
            return;
        }
        progress.took = now.since(self.started);
        // An earlier command may have deleted the keys (or shortened them to expire): so they may
        // be gone, or another's, by now.
        let ends = self.keep.is_none_or(|keep| now >= keep.until);
        let again = ends && (reply.repeated || progress.is_asked_again());
        match reply.answer {
            Ok(Answer::Absent) if again && now < self.valid_until => {
                progress.settle(Ok(Answer::Ours { token: None, remaining: None }));
            }
            Ok(answer @ (Answer::Absent | Answer::Theirs { .. })) if again => {
                progress.unclear = true;
                progress.settle(Ok(answer));
            }
            Err(fault) if !fault.kind().is_permanent() => progress.rest(now, Some(fault)),
            answer => progress.settle(answer),
        }
    }

    pub(crate) fn expire(&mut self, now: Moment) {
        for progress in &mut self.nodes {
            match progress.state {
                State::Ready | State::Sent { .. } | State::Resting { .. }
                    if now >= self.keys_expire_by =>
                {
                    progress.state = State::Settled;
                }
                State::Sent { deadline } if now >= deadline => progress.rest(now, None),
                State::Resting { until } if now >= until => progress.state = State::Ready,
                _ => {}
            }
        }
    }
}

impl Machine for Withdraw {
    type Outcome = ();

    fn poll(&mut self, env: &mut dyn Environment) -> Output<()> {
        if let Some((node, command)) = self.poll_send(env.now()) {
            return Output::Send(node, command);
        }
        if self.is_done() {
            Output::Done(())
        } else {
            Output::WakeAt(self.wake_at().min(self.keys_expire_by))
        }
    }

    fn handle_reply(&mut self, env: &mut dyn Environment, node: NodeId, reply: Reply) {
        self.reply(env.now(), node, reply);
    }

    fn handle_timeout(&mut self, env: &mut dyn Environment) {
        self.expire(env.now());
    }

    /// Stops asking: the remaining keys expire.
    fn cancel(&mut self, _env: &mut dyn Environment) {
        for progress in &mut self.nodes {
            progress.state = State::Settled;
        }
    }
}

const NEVER_ASKED: &str = "not asked: the lock was never asked of it";
