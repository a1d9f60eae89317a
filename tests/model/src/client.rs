//! The state of one client of the world: its operation, its lease, and the shipping machines that
//! run. Owns the state; `actor` changes it.

use std::time::Duration;

use quorlock_protocol::{Acquire, Moment, Withdraw};

use crate::env::Env;
use crate::guarded::Guarding;
use crate::holding::Holding;
use crate::link::Op;
use crate::lost_time::LostTime;
use crate::scope::Scope;

/// A process that uses the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Client {
    pub(crate) id: u8,
    pub(crate) status: Status,
    pub(crate) phase: Phase,
    /// The last lease that was released while it was extended: replies that still come for it are
    /// handed to it.
    pub(crate) ended: Option<Box<Holding>>,
    /// The withdrawals that take keys back.
    pub(crate) background: Vec<Background>,
    /// How often it has drawn randomness.
    pub(crate) draws: u32,
    pub(crate) last_op: Op,
    /// How many acquisitions it may still begin.
    pub(crate) locks: u16,
    /// The highest fencing token it has seen.
    pub(crate) known: u64,
    /// How far its wall clock was set back, in microseconds.
    pub(crate) wall_back: u64,
    /// Claims whose keys may stay until they expire, as no client is left to take them back.
    pub(crate) excused: Vec<u32>,
    /// Before this moment nobody else may begin: the lock-delay or the least hold of its last
    /// lease, or the promised end of a lease that is lost.
    pub(crate) keeps_out: Moment,
    /// Its part of the guards; `None` if nothing is guarded.
    pub(crate) guarding: Option<Box<Guarding>>,
    pub(crate) lost_time: LostTime,
    /// The nodes, as bits, that it has looked at since its machine stood still; `None` once that is
    /// a quorum.
    pub(crate) unaware: Option<u64>,
}

/// Whether a client runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Status {
    Running,
    Paused,
    /// Its machine stands still, and so do its clocks.
    Frozen,
    Dead,
}

/// What its user waits for or has.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Phase {
    Idle,
    Acquiring(Box<Acquiring>),
    Holding(Box<Holding>),
    /// It was told that the lease is lost, and has not released it: the remaining keys stay.
    Lost(Box<Holding>),
}

/// A machine at work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Task<M> {
    pub(crate) op: Op,
    pub(crate) machine: M,
    pub(crate) wake: Moment,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Acquiring {
    pub(crate) task: Task<Acquire>,
    /// The draws before the first holder id of this acquisition.
    pub(crate) draws: u32,
    pub(crate) bound: Bound,
    /// Whether a node had another's keys when it was asked.
    pub(crate) met: bool,
}

/// When an operation must have ended; not checked for a client that was stopped meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bound {
    pub(crate) until: Moment,
    pub(crate) stopped: bool,
}

/// A withdrawal that runs without a caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Background {
    pub(crate) task: Task<Withdraw>,
    /// The draw of the claim whose keys are taken back.
    pub(crate) draw: u32,
    /// Present while the user waits for the outcome of a release.
    pub(crate) release: Option<Release>,
}

/// A release whose outcome is awaited, and what the world knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Release {
    /// The nodes that had the keys when it began, as bits.
    pub(crate) stood: u64,
    /// The nodes whose keys it has deleted, as bits.
    pub(crate) deleted: u64,
    /// Until when the keys stay, by the client's clock; never beyond now without a least hold.
    pub(crate) keeps: Moment,
    /// Whether the validity had ended.
    pub(crate) was_over: bool,
    pub(crate) bound: Bound,
}

impl Client {
    pub(crate) fn new(id: u8, locks: u16) -> Self {
        Self {
            id,
            status: Status::Running,
            phase: Phase::Idle,
            ended: None,
            background: Vec::new(),
            draws: 0,
            last_op: 0,
            locks,
            known: 0,
            wall_back: 0,
            excused: Vec::new(),
            keeps_out: Moment::default(),
            guarding: None,
            lost_time: LostTime::default(),
            unaware: None,
        }
    }

    /// Its lease clock at true time `now`.
    pub(crate) fn clock(&self, scope: &Scope, now: u64) -> Moment {
        self.lost_time.moment(scope.client_rate, now)
    }

    /// The clock that its guards and connections go by, at true time `now`.
    pub(crate) fn boot(&self, scope: &Scope, now: u64) -> Moment {
        self.lost_time.boot(scope.client_rate, now)
    }

    /// The environment of its machines at true time `now`.
    pub(crate) fn env<'a>(&'a mut self, scope: &Scope, now: u64) -> Env<'a> {
        Env {
            now: self.clock(scope, now),
            wall: scope.wall(self.id, now).saturating_sub(self.wall_back),
            nodes_wall: scope.nodes_wall(self.id, now),
            client: self.id,
            seed: scope.seed,
            draws: &mut self.draws,
        }
    }

    /// The lease that it trusts at `clock`, if any.
    pub(crate) fn valid_lease(&self, clock: Moment) -> Option<&Holding> {
        let Phase::Holding(holding) = &self.phase else {
            return None;
        };
        let trusts = self.status != Status::Dead && holding.is_trusted(clock);
        trusts.then_some(holding)
    }

    /// Whether its lease is over at `clock`, and that is not noted.
    pub(crate) fn is_just_over(&self, clock: Moment) -> bool {
        matches!(&self.phase, Phase::Holding(holding) if !holding.over && holding.until() <= clock)
    }

    /// Whether at `clock` it trusts a lease that had ended.
    pub(crate) fn trusts_what_was_over(&self, clock: Moment) -> bool {
        let lost = match &self.phase {
            Phase::Lost(holding) => Some(holding),
            Phase::Holding(holding) => Some(holding).filter(|it| it.over),
            Phase::Idle | Phase::Acquiring(_) => None,
        };
        let mut over = lost.into_iter().chain(&self.ended);
        self.status != Status::Dead && over.any(|holding| holding.is_trusted(clock))
    }

    /// Whether it will take the keys of its claim `draw` back, or says at `clock` that it holds
    /// them or leaves them to expire.
    pub(crate) fn owns(&self, draw: u32, clock: Moment) -> bool {
        if self.excused.contains(&draw) {
            return true;
        }
        let foreground = match &self.phase {
            Phase::Idle => false,
            Phase::Acquiring(acquiring) => draw > acquiring.draws,
            Phase::Holding(holding) => holding.draw == draw,
            Phase::Lost(holding) => {
                holding.draw == draw && clock <= holding.lease().keys_expire_by() + GRAIN
            }
        };
        foreground || self.background.iter().any(|it| it.draw == draw)
    }

    /// Whether its user waits for the outcome of a release.
    pub(crate) fn is_releasing(&self) -> bool {
        self.background.iter().any(|it| it.release.is_some())
    }

    /// When the next of its timers is due.
    pub(crate) fn wake(&self) -> Moment {
        let foreground = match &self.phase {
            Phase::Idle | Phase::Lost(_) => Moment::FAR_FUTURE,
            Phase::Acquiring(acquiring) => acquiring.task.wake,
            Phase::Holding(holding) => holding.wake(),
        };
        self.background.iter().map(|it| it.task.wake).fold(foreground, Moment::min)
    }

    /// A short record of what can be seen of it from outside.
    pub(crate) fn outline(&self) -> (u8, Moment, Op, u32, usize) {
        let phase = match &self.phase {
            Phase::Idle => 0,
            Phase::Acquiring(_) => 1,
            Phase::Holding(_) => 2,
            Phase::Lost(_) => 3,
        };
        (phase, self.wake(), self.last_op, self.draws, self.background.len())
    }

    /// The operation that should have ended by `clock` and has not.
    pub(crate) fn overdue(&self, clock: Moment) -> Option<&'static str> {
        let late = |bound: &Bound| !bound.stopped && clock > bound.until + GRAIN;
        let release = self.background.iter().filter_map(|it| it.release.as_ref());
        if release.into_iter().any(|release| late(&release.bound)) {
            return Some("the release");
        }
        match &self.phase {
            Phase::Acquiring(acquiring) if late(&acquiring.bound) => Some("the acquisition"),
            Phase::Holding(holding) if holding.bound.as_ref().is_some_and(late) => {
                Some("the extension")
            }
            Phase::Holding(holding) if holding.life.is_kept() => {
                (clock > holding.longest_hold()).then_some("the hold")
            }
            _ => None,
        }
    }

    /// Whether it exists, and does nothing.
    pub(crate) const fn is_stopped(&self) -> bool {
        matches!(self.status, Status::Paused | Status::Frozen)
    }

    /// Stops it, so that no operation under way has to end in time.
    pub(crate) fn stop(&mut self) {
        self.status = Status::Paused;
        self.lost_time.has_stopped = self.guarding.is_some();
        self.excuse();
    }

    /// No operation under way has to end in time: its clock differs from that of the nodes.
    pub(crate) fn excuse(&mut self) {
        for release in self.background.iter_mut().filter_map(|it| it.release.as_mut()) {
            release.bound.stopped = true;
        }
        match &mut self.phase {
            Phase::Acquiring(acquiring) => acquiring.bound.stopped = true,
            Phase::Holding(holding) => {
                holding.bound.iter_mut().for_each(|bound| bound.stopped = true);
            }
            Phase::Idle | Phase::Lost(_) => {}
        }
    }

    /// The remaining keys of a lease that is lost must keep others out until `promised`.
    pub(crate) fn keep_others_out(&mut self, promised: Moment) {
        // A client whose machine stood still trusts a lease that ended long ago.
        if self.unaware.is_none() && !self.lost_time.is_behind() {
            self.keeps_out = promised;
        }
    }

    /// Its lease is not released: the remaining keys expire.
    pub(crate) fn let_run_out(&mut self, holding: &Holding) {
        self.excused.push(holding.draw);
    }

    /// Ends it: only the messages that it has sent are left.
    pub(crate) fn die(&mut self) {
        if let Phase::Holding(holding) = std::mem::replace(&mut self.phase, Phase::Idle)
            && !holding.life.policy().lock_delay().is_zero()
        {
            self.keeps_out = holding.kept_until();
        }
        self.status = Status::Dead;
        self.background.clear();
        self.ended = None;
        self.locks = 0;
        self.guarding = None;
    }
}

/// True time comes in whole milliseconds, so each of a few timers may fire that much late.
const GRAIN: Duration = Duration::from_millis(10);
