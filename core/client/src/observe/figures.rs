//! The counters and histograms of one manager. Owns the counting, by relaxed atomics; decides
//! nothing by them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quorlock_protocol::{ErrorKind, FaultKind, LossReason, NodeId, Vote, WakeCause};

use super::histogram::{Fractions, Histogram, HistogramStats};
use crate::error::NodeReport;

/// What is counted.
#[derive(Debug)]
pub(crate) struct Figures {
    acquisitions: [AtomicU64; OUTCOMES.len()],
    rounds: AtomicU64,
    futile_rounds: AtomicU64,
    waits: AtomicU64,
    wakes: [AtomicU64; WakeCause::ALL.len()],
    acquire_time: Histogram,
    /// Leases that were acquired, and of those the ones that have ended.
    begun: AtomicU64,
    ended: AtomicU64,
    hold_time: Histogram,
    extensions: AtomicU64,
    failed_extensions: AtomicU64,
    slack: Fractions,
    losses: [AtomicU64; LossReason::ALL.len()],
    releases: [AtomicU64; RELEASES.len()],
    nodes: Box<[NodeFigures]>,
}

#[derive(Debug, Default)]
struct NodeFigures {
    latency: Histogram,
    timeouts: AtomicU64,
}

/// A named count.
type Named = Vec<(&'static str, u64)>;

impl Figures {
    pub(crate) fn of(nodes: usize) -> Self {
        Self {
            acquisitions: Default::default(),
            rounds: AtomicU64::new(0),
            futile_rounds: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            wakes: Default::default(),
            acquire_time: Histogram::default(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            hold_time: Histogram::default(),
            extensions: AtomicU64::new(0),
            failed_extensions: AtomicU64::new(0),
            slack: Fractions::default(),
            losses: Default::default(),
            releases: Default::default(),
            nodes: (0..nodes).map(|_| NodeFigures::default()).collect(),
        }
    }

    /// A lock was acquired.
    pub(crate) fn note_acquired(&self, rounds: u32, waited: Duration) {
        add(&self.acquisitions[ACQUIRED], 1);
        add(&self.rounds, rounds.into());
        add(&self.begun, 1);
        self.acquire_time.record(waited);
    }

    /// An acquisition failed; `None` if its caller gave it up.
    pub(crate) fn note_not_acquired(&self, kind: Option<ErrorKind>, rounds: u32) {
        add(&self.acquisitions[outcome(kind)], 1);
        add(&self.rounds, rounds.into());
    }

    /// An acquisition without a quorum was told to go on all the same.
    pub(crate) fn note_degraded(&self, rounds: u32) {
        add(&self.acquisitions[DEGRADED], 1);
        add(&self.rounds, rounds.into());
    }

    /// An acquisition under way was given up after this number of rounds.
    pub(crate) fn note_rounds(&self, rounds: u32) {
        add(&self.rounds, rounds.into());
    }

    /// A lease that was acquired has ended.
    pub(crate) fn note_ended(&self, held_for: Duration) {
        add(&self.ended, 1);
        self.hold_time.record(held_for);
    }

    pub(crate) fn note_lost(&self, reason: LossReason) {
        let index = LossReason::ALL.iter().position(|it| *it == reason);
        add(&self.losses[index.unwrap_or_default()], 1);
    }

    pub(crate) fn note_released(&self, outcome: &'static str) {
        if let Some(index) = RELEASES.iter().position(|it| *it == outcome) {
            add(&self.releases[index], 1);
        }
    }

    /// A lease was prolonged; by its renewal while this part of its validity was left.
    pub(crate) fn note_extended(&self, slack: Option<f64>) {
        add(&self.extensions, 1);
        if let Some(slack) = slack {
            self.slack.record(slack);
        }
    }

    pub(crate) fn note_extension_failed(&self) {
        add(&self.failed_extensions, 1);
    }

    /// A caller begins to wait.
    pub(crate) fn note_wait(&self) {
        add(&self.waits, 1);
    }

    /// A caller that waited tries again.
    pub(crate) fn note_wake(&self, by: WakeCause) {
        add(&self.wakes[by as usize], 1);
    }

    /// A round was refused because another holds the lock.
    pub(crate) fn note_futile_round(&self) {
        add(&self.futile_rounds, 1);
    }

    /// A node answered after this time.
    #[inline]
    pub(crate) fn note_answer(&self, node: NodeId, nanos: u64) {
        if let Some(node) = self.nodes.get(node.index()) {
            node.latency.record_nanos(nanos);
        }
    }

    /// A node has been silent long enough to be taken for hung.
    pub(crate) fn note_silence(&self, node: NodeId) {
        if let Some(node) = self.nodes.get(node.index()) {
            add(&node.timeouts, 1);
        }
    }

    /// Counts the nodes that did not answer a round in time.
    pub(crate) fn note_timeouts(&self, round: &[NodeReport]) {
        for (report, node) in round.iter().zip(&self.nodes) {
            let fault = report.answer.as_ref().and_then(|answer| answer.as_ref().err());
            let timed_out = fault.is_some_and(|fault| fault.kind() == FaultKind::TimedOut);
            if report.vote == Vote::Failed && timed_out {
                add(&node.timeouts, 1);
            }
        }
    }

    pub(super) fn acquisitions(&self) -> Named {
        named(&OUTCOMES, &self.acquisitions)
    }

    pub(super) fn rounds(&self) -> (u64, u64) {
        (load(&self.rounds), load(&self.futile_rounds))
    }

    pub(super) fn waits(&self) -> (u64, Named) {
        let causes = WakeCause::ALL.map(WakeCause::name);
        (load(&self.waits), named(&causes, &self.wakes))
    }

    /// How many leases are held now.
    pub(super) fn held(&self) -> u64 {
        let ended = load(&self.ended);
        load(&self.begun).saturating_sub(ended)
    }

    pub(super) fn extensions(&self) -> (u64, u64) {
        (load(&self.extensions), load(&self.failed_extensions))
    }

    pub(super) fn losses(&self) -> Named {
        named(&LossReason::ALL.map(LossReason::name), &self.losses)
    }

    pub(super) fn releases(&self) -> Named {
        named(&RELEASES, &self.releases)
    }

    pub(super) fn times(&self) -> [HistogramStats; 3] {
        [self.acquire_time.snapshot(), self.hold_time.snapshot(), self.slack.snapshot()]
    }

    /// The latencies of one node's answers, and how often it gave none.
    pub(super) fn node(&self, index: usize) -> (HistogramStats, u64) {
        let node = self.nodes.get(index);
        node.map_or_else(Default::default, |it| (it.latency.snapshot(), load(&it.timeouts)))
    }
}

const fn outcome(kind: Option<ErrorKind>) -> usize {
    match kind {
        Some(ErrorKind::NotAcquired) => 1,
        Some(ErrorKind::AcquireTimedOut) => 2,
        Some(ErrorKind::QuorumUnreachable) => 3,
        None | Some(ErrorKind::Cancelled) => 4,
        Some(
            ErrorKind::Closed | ErrorKind::Config | ErrorKind::LeaseLost | ErrorKind::LockNotHeld,
        ) => 5,
    }
}

fn add(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed);
}

fn load(count: &AtomicU64) -> u64 {
    count.load(Ordering::Relaxed)
}

fn named(names: &[&'static str], counts: &[AtomicU64]) -> Named {
    names.iter().copied().zip(counts.iter().map(load)).collect()
}

/// How an acquisition can end.
const OUTCOMES: [&str; 7] =
    ["acquired", "not_acquired", "timed_out", "unreachable", "cancelled", "error", "degraded"];
const ACQUIRED: usize = 0;
const DEGRADED: usize = 6;
/// What can become of a lease that was not lost.
const RELEASES: [&str; 5] = ["released", "expired", "taken", "unknown", ABANDONED];
/// A lease whose last handle was dropped: it is not renewed, and expires.
pub(crate) const ABANDONED: &str = "abandoned";
