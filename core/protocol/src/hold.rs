//! The hold machine: renews a lease in time, and reports its loss by the clock. Owns when both happen;
//! how a lease is prolonged is the extend machine's.
//!
//! ```text
//!            a third of the validity is used
//!   Resting ─────────────────────────────────▶ Renewing ──lost───────┐
//!      ▲ │                                       │ │                  ▼
//!      │ └──────────── validity over ────────────┼─┴─────────────▶ Finished
//!      └────────────────── prolonged ────────────┘
//! ```
//!
//! A loss is reported when the clock passes the end of the last proved validity, even if no node
//! answers. It is reported earlier if enough nodes say that the keys are gone, so that another client
//! may have the lock.

mod end;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

pub use self::end::{HoldEnd, LossReason};
use crate::command::{Answer, Command, Reply};
use crate::error::ErrorKind;
use crate::extend::{Extend, Extension, LastRound};
use crate::heal::heal;
use crate::identity::NodeId;
use crate::lease::Lease;
use crate::machine::{Environment, Machine, Output};
use crate::policy::Policy;
use crate::quorum::Quorum;
use crate::round::{Round, RoundReport};
use crate::time::Moment;

/// Renews a lease and watches for its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    lease: Lease,
    policy: Arc<Policy>,
    quorum: Quorum,
    /// When renewal stops (`max_hold`).
    limit: Moment,
    next_ticket: u32,
    failed: bool,
    /// Boxed, as most leases have none at any given time.
    straggling: Option<Box<Straggling>>,
    state: State,
}

/// The round that decided the last renewal, which may still receive the answer of a node that has
/// lost the keys; and what is needed to heal such nodes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Straggling {
    round: Round,
    heals: VecDeque<(NodeId, Command)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum State {
    Resting {
        renew_at: Moment,
    },
    /// Boxed: most leases rest most of the time.
    Renewing(Box<Extend>),
    Finished(HoldEnd),
}

impl Hold {
    /// Holds `lease` from `now` on; renews it if the policy says so, until `max_hold` after `since`.
    pub fn new(
        now: Moment,
        lease: Lease,
        policy: impl Into<Arc<Policy>>,
        since: Moment,
        quorum: Quorum,
    ) -> Self {
        let policy = policy.into();
        let limit = if policy.auto_extend { since + policy.max_hold } else { now };
        let mut hold = Self {
            lease,
            policy,
            quorum,
            limit,
            next_ticket: 0,
            failed: false,
            straggling: None,
            state: State::Resting { renew_at: Moment::FAR_FUTURE },
        };
        hold.rest(now);
        hold
    }

    /// The lease as it is known now.
    pub const fn lease(&self) -> &Lease {
        &self.lease
    }

    /// When the machine is to be polled first.
    pub(crate) fn first_wake(&self) -> Moment {
        match &self.state {
            State::Resting { renew_at } => (*renew_at).min(self.lease.until()),
            State::Renewing(_) | State::Finished(_) => Moment::default(),
        }
    }

    /// Whether a renewal has failed and less than a third of the ttl is left: an early warning.
    pub fn is_at_risk(&self, now: Moment) -> bool {
        let failing = match &self.state {
            State::Renewing(extend) => extend.failures() > 0,
            State::Resting { .. } => self.failed,
            State::Finished(_) => true,
        };
        failing && self.lease.validity(now) < self.lease.ttl().as_duration() / 3
    }

    /// How many rounds of the renewal under way have failed so far.
    pub const fn failures(&self) -> u32 {
        match &self.state {
            State::Renewing(extend) => extend.failures(),
            State::Resting { .. } | State::Finished(_) => 0,
        }
    }

    /// What every node did in the last completed round of renewal, won or lost, with the votes that
    /// came late; `None` before the first one has ended, and while the next one has no vote yet.
    pub fn last_round(&self) -> Option<RoundReport> {
        match &self.state {
            State::Renewing(extend) => extend.failed_round().cloned(),
            State::Resting { .. } | State::Finished(_) => {
                self.straggling.as_deref().map(|it| it.round.report())
            }
        }
    }

    /// Drops the last round of renewal if no more votes can come, for a driver that has kept what
    /// [`Self::last_round`] returned.
    pub fn close_round(&mut self) {
        self.straggling = self.straggling.take().filter(|it| !it.round.is_complete());
    }

    /// Waits until a third of the validity is used, rounded to a grid so that many leases fall due
    /// together and share one command per node.
    fn rest(&mut self, now: Moment) {
        let validity = self.lease.validity(now);
        let grain = (self.lease.ttl().as_duration() / RENEWALS_SHARE).max(Duration::from_millis(1));
        let due = (now + validity / 3).since_epoch();
        let steps = due.as_nanos() / grain.as_nanos();
        let due = nanos(steps.saturating_mul(grain.as_nanos()));
        let renew_at = Moment::from_epoch(due).max(now);
        let renew_at = if renew_at >= self.limit { Moment::FAR_FUTURE } else { renew_at };
        self.state = State::Resting { renew_at };
    }

    fn begin_renewal(&mut self, now: Moment) {
        let extension = Extension {
            claim: Arc::clone(self.lease.claim()),
            fencing_token: self.lease.fencing_token(),
            until: self.lease.until(),
            patience: Duration::MAX,
            first_ticket: self.next_ticket,
        };
        self.straggling = None;
        let extend = Extend::new(now, extension, Arc::clone(&self.policy), self.quorum)
            .outlasting(self.lease.keys_expire_by());
        self.state = State::Renewing(Box::new(extend));
    }

    /// Polls the renewal under way and takes over its result.
    fn poll_renewal(&mut self, env: &mut dyn Environment) -> Option<Output<HoldEnd>> {
        let State::Renewing(extend) = &mut self.state else {
            return None;
        };
        let outcome = extend.take_outcome(env);
        let output = outcome.map_or_else(|| extend.poll(env), Output::Done);
        self.lease.outlast(extend.keys_expire_by());
        self.next_ticket = extend.next_ticket();
        match output {
            Output::Send(node, command) => Some(Output::Send(node, command)),
            Output::WakeAt(at) => Some(Output::WakeAt(at.min(self.lease.until()))),
            Output::Done(outcome) => {
                self.failed = outcome.result.is_err();
                self.straggling = match outcome.last {
                    LastRound::Counting(round) => {
                        Some(Box::new(Straggling { round, heals: VecDeque::new() }))
                    }
                    LastRound::Over(_) => None,
                };
                match outcome.result {
                    Ok(lease) => {
                        self.lease = lease;
                        self.rest(env.now());
                    }
                    Err(ErrorKind::LeaseLost) if env.now() < self.lease.until() => {
                        self.lose(env.now(), LossReason::Gone);
                    }
                    Err(_) => self.lose(env.now(), LossReason::Expired),
                }
                None
            }
        }
    }

    fn lose(&mut self, now: Moment, reason: LossReason) {
        self.lease.limit(now);
        self.state = State::Finished(HoldEnd::Lost(reason));
    }

    /// The clock alone decides, so it is read first, whatever woke the machine.
    fn watch_the_clock(&mut self, now: Moment) {
        if now < self.lease.until() || matches!(self.state, State::Finished(_)) {
            return;
        }
        let renewed_to_the_limit = self.policy.auto_extend && now >= self.limit;
        let reason =
            if renewed_to_the_limit { LossReason::HeldTooLong } else { LossReason::Expired };
        self.lose(now, reason);
    }
}

impl Machine for Hold {
    type Outcome = HoldEnd;

    fn poll(&mut self, env: &mut dyn Environment) -> Output<HoldEnd> {
        let heal = self.straggling.as_mut().and_then(|it| it.heals.pop_front());
        if let Some((node, command)) = heal {
            return Output::Send(node, command);
        }
        if let Some(output) = self.poll_renewal(env) {
            return output;
        }
        match &self.state {
            State::Resting { renew_at } => Output::WakeAt((*renew_at).min(self.lease.until())),
            State::Finished(end) => Output::Done(*end),
            State::Renewing(_) => Output::WakeAt(env.now()),
        }
    }

    fn handle_reply(&mut self, env: &mut dyn Environment, node: NodeId, reply: Reply) {
        let now = env.now();
        self.watch_the_clock(now);
        if let State::Renewing(extend) = &mut self.state {
            return extend.handle_reply(env, node, reply);
        }
        let Some(straggling) = self.straggling.as_deref_mut() else {
            return;
        };
        let absent = matches!(reply.answer, Ok(Answer::Absent));
        let counts = straggling.round.handle_reply(now, node, reply);
        if counts && absent && matches!(self.state, State::Resting { .. }) {
            let by = self.lease.until.min(now + self.policy.node_timeout());
            let keys_expire_by = self.policy.drift.keys_expire_by(self.lease.key_ttl, by);
            self.lease.outlast(keys_expire_by);
            straggling.heals.extend(heal(node, &self.lease, by));
        }
    }

    fn handle_timeout(&mut self, env: &mut dyn Environment) {
        let now = env.now();
        self.watch_the_clock(now);
        match &mut self.state {
            State::Resting { renew_at } if now >= *renew_at => self.begin_renewal(now),
            State::Renewing(extend) => extend.handle_timeout(env),
            State::Resting { .. } | State::Finished(_) => {}
        }
    }

    /// Stops renewal; the caller releases the lease or lets it expire.
    fn cancel(&mut self, _env: &mut dyn Environment) {
        self.state = State::Finished(HoldEnd::Stopped);
    }
}

fn nanos(count: u128) -> Duration {
    let per_second = 1_000_000_000;
    let seconds = u64::try_from(count / per_second).unwrap_or(u64::MAX);
    Duration::new(seconds, u32::try_from(count % per_second).unwrap_or(0))
}

/// The number of steps of the renewal grid in one ttl.
const RENEWALS_SHARE: u32 = 32;
