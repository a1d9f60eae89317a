//! The figures of a manager at one moment. Owns their names.

use std::sync::Arc;

use super::histogram::HistogramStats;
use super::telemetry::Telemetry;
use super::value::Value;
use crate::node_state::NodeState;

/// What a manager has counted since it was made. Reading it asks no node.
///
/// Values of one snapshot may differ by what happens while it is taken.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Acquisitions by how they ended: `acquired`, `not_acquired`, `timed_out`, `unreachable`,
    /// `cancelled` (without those that were cancelled before the engine had begun them), `error`, and
    /// `degraded` for those that go on without a quorum (see `on_unreachable`), and are not counted as
    /// `unreachable`.
    pub acquisitions: Vec<(&'static str, u64)>,
    /// How long the acquisitions took that were won.
    pub acquire_seconds: HistogramStats,
    /// Rounds of acquisitions.
    pub rounds: u64,
    /// Rounds of those that were refused because another holds the lock.
    pub futile_rounds: u64,
    /// How often a caller began to wait.
    pub waits: u64,
    /// What made callers that waited try again: `push`, `watch` or `timer`.
    pub wakes: Vec<(&'static str, u64)>,
    /// How many leases are held now. One that nobody renews or watches counts until it is dropped.
    pub held: u64,
    /// How long leases were held that have ended.
    pub hold_seconds: HistogramStats,
    /// How often a lease was prolonged, by its renewal or its holder.
    pub extensions: u64,
    /// How often a round that was to prolong one failed.
    pub failed_extensions: u64,
    /// The part of the validity that was left when a renewal was proved, from 0 to 1.
    pub renewal_slack: HistogramStats,
    /// Leases lost, by reason: `expired`, `gone`, `held-too-long`.
    pub losses: Vec<(&'static str, u64)>,
    /// Leases given back, by outcome: `released`, `expired`, `taken`, `unknown`, and `abandoned`
    /// for those whose last handle was dropped without a release.
    pub releases: Vec<(&'static str, u64)>,
    /// The nodes, in the order given.
    pub nodes: Vec<NodeStats>,
}

/// What was counted of one node.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeStats {
    /// Where it is, without a password.
    pub address: Arc<str>,
    /// The name of its state now.
    pub state: &'static str,
    /// The time from a command to its answer.
    pub latency_seconds: HistogramStats,
    /// How often it did not answer in time.
    pub timeouts: u64,
    /// How far its clock is ahead of this machine's, in seconds; `None` while that is not known.
    pub offset_seconds: Option<f64>,
}

impl Telemetry {
    pub(crate) fn stats(&self, nodes: Vec<NodeStats>) -> Stats {
        let figures = self.figures();
        let [acquire_seconds, hold_seconds, renewal_slack] = figures.times();
        let ((rounds, futile_rounds), (waits, wakes)) = (figures.rounds(), figures.waits());
        let (extensions, failed_extensions) = figures.extensions();
        Stats {
            acquisitions: figures.acquisitions(),
            acquire_seconds,
            rounds,
            futile_rounds,
            waits,
            wakes,
            held: figures.held(),
            hold_seconds,
            extensions,
            failed_extensions,
            renewal_slack,
            losses: figures.losses(),
            releases: figures.releases(),
            nodes,
        }
    }

    /// The figures of one node.
    pub(crate) fn node_stats(
        &self,
        index: usize,
        (address, state, offset_seconds): (&Arc<str>, &NodeState, Option<f64>),
    ) -> NodeStats {
        let (latency_seconds, timeouts) = self.figures().node(index);
        let (address, state) = (Arc::clone(address), state.name());
        NodeStats { address, state, latency_seconds, timeouts, offset_seconds }
    }
}

impl Stats {
    /// The figures of a manager over these nodes that has done nothing yet.
    #[doc(hidden)]
    pub fn before_all(addresses: &[Arc<str>]) -> Self {
        let telemetry = Telemetry::of(addresses.len());
        let node = |(index, address): (usize, &Arc<str>)| {
            telemetry.node_stats(index, (address, &NodeState::Connecting, None))
        };
        telemetry.stats(addresses.iter().enumerate().map(node).collect())
    }

    /// The same by name, for a binding.
    #[doc(hidden)]
    pub fn fields(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("acquisitions", Value::Counts(self.acquisitions.clone())),
            ("acquire_seconds", self.acquire_seconds.value()),
            ("rounds", self.rounds.into()),
            ("futile_rounds", self.futile_rounds.into()),
            ("waits", self.waits.into()),
            ("wakes", Value::Counts(self.wakes.clone())),
            ("held", self.held.into()),
            ("hold_seconds", self.hold_seconds.value()),
            ("extensions", self.extensions.into()),
            ("failed_extensions", self.failed_extensions.into()),
            ("renewal_slack", self.renewal_slack.value()),
            ("losses", Value::Counts(self.losses.clone())),
            ("releases", Value::Counts(self.releases.clone())),
            ("nodes", Value::List(self.nodes.iter().map(NodeStats::value).collect())),
        ]
    }
}

impl NodeStats {
    fn value(&self) -> Value {
        Value::Map(vec![
            ("address", (&*self.address).into()),
            ("state", self.state.into()),
            ("latency_seconds", self.latency_seconds.value()),
            ("timeouts", self.timeouts.into()),
            ("offset_seconds", self.offset_seconds.map_or(Value::None, Value::Number)),
        ])
    }
}
