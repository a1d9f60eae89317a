//! Runs the guards for a client of a golden schedule: its looks, its lease clock, and the faults
//! for its errors.

use std::time::Duration;

use quorlock_protocol::{
    AcquireOutcome, Answer, ErrorKind, Failure, Fault, FaultKind, Moment, NodeId, Resources,
    RoundReport,
};

use super::guards::{ClientGuards, Cluster};
use super::session::Session;
use super::words::number;

impl Session {
    /// What the lease clock shows at a time of the schedule.
    pub(super) fn moment(&self, time: u64) -> Moment {
        Moment::from_millis(time - self.still) + self.lost
    }

    /// What the clock that the guards go by shows now.
    pub(super) fn boot(&self) -> Moment {
        self.env.now.before(self.lost)
    }

    /// The connection to the node broke: the new one begins with a look.
    pub(super) fn look(&mut self, cluster: &mut Cluster, node: &str, time: u64) {
        self.pass(self.moment(time));
        let node = number(node).ok().and_then(|node| usize::try_from(node).ok());
        let now = self.boot();
        if let (Some(client_guards), Some(node)) = (&mut self.client_guards, node) {
            client_guards.look(cluster, node, now);
            client_guards.follow_up(cluster, now);
        }
    }

    /// Sets the lease clock forward by what it has lost; every timer goes off that is due by then.
    pub(super) fn catch_up(&mut self, time: u64) {
        let lost = self.client_guards.as_mut().map_or(Duration::ZERO, ClientGuards::lost_time);
        if !lost.is_zero() {
            self.lost += lost;
            self.pass(self.moment(time));
        }
    }

    /// An answer to a grant, as the guards let it through.
    pub(super) fn inspect_grant(
        &mut self,
        cluster: &mut Cluster,
        node: NodeId,
        answer: Result<Answer, Fault>,
    ) -> Result<Answer, Fault> {
        let now = self.boot();
        let counts = match &mut self.client_guards {
            Some(client_guards) if answer.is_ok() => {
                client_guards.inspect_grant(cluster, node, now)
            }
            _ => true,
        };
        match answer {
            Ok(Answer::Ours { .. }) if !counts => {
                Err(Fault::new(FaultKind::Quarantined, "it may have forgotten locks"))
            }
            answer => answer,
        }
    }

    /// What the client would tell of it.
    pub(super) fn explain(&self, kind: ErrorKind, outcome: &AcquireOutcome) -> String {
        let names: Vec<_> = (0..self.settings.nodes()).map(|node| format!("node {node}")).collect();
        let addresses: Vec<_> = names.iter().map(String::as_str).collect();
        let failure = |resources: &Resources, report: &RoundReport| {
            let (attempts, elapsed) = (outcome.attempts, outcome.elapsed);
            let addresses = addresses.as_slice();
            Failure { kind, resources, report, addresses, attempts, elapsed }.explain()
        };
        match (Resources::new(["r"]), outcome.lost_rounds.last()) {
            (Ok(resources), Some(report)) => failure(&resources, report),
            _ => String::new(),
        }
    }
}
