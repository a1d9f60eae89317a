//! Tells a person what happens to nodes and clocks. Owns who is told, and which address a node has; the words
//! come from the protocol.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use quorlock_protocol::{Dependence, Fault, FaultKind, NodeId, Notice, QuarantineReason};

use super::events::{EventKind, EventName};
use super::telemetry::Telemetry;
use crate::node_state::NodeState;

/// Something that a person should know: a node that is held back, a clock that was set, a server
/// that may throw locks out. Nothing has failed because of it yet.
///
/// Its [`Display`](fmt::Display) is a sentence for a log.
///
/// ```
/// use quorlock::Redlock;
///
/// # fn main() -> Result<(), quorlock::LockError> {
/// let locks = Redlock::builder()
///     .nodes(["redis://a", "redis://b", "redis://c"])
///     .on_notice(|notice| eprintln!("{}: {notice}", notice.name()))
///     .build()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeReport {
    notice: Notice,
    address: Option<Arc<str>>,
    message: String,
    is_repeat: bool,
}

impl NoticeReport {
    /// What it is, for programs.
    pub const fn notice(&self) -> &Notice {
        &self.notice
    }

    /// A stable name for it, for example `quarantined`.
    pub const fn name(&self) -> &'static str {
        self.notice.name()
    }

    /// The address of the node that it is about, without a password; `None` if it is about this client
    /// or about several nodes.
    pub fn address(&self) -> Option<&str> {
        self.address.as_deref()
    }

    /// Whether another manager of the engine has told the same outage of a node (`node-down`,
    /// `node-up`): nothing new for a log that all of them write to.
    pub const fn is_repeat(&self) -> bool {
        self.is_repeat
    }
}

impl fmt::Display for NoticeReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

/// Who is told.
pub(crate) type Listener = Arc<dyn Fn(&NoticeReport) + Send + Sync>;

/// The nodes' addresses, and the user's function that gets their notices.
pub(crate) struct Observer {
    addresses: Arc<[Arc<str>]>,
    listener: Option<Listener>,
    telemetry: Arc<Telemetry>,
}

impl Observer {
    pub(crate) fn new(addresses: Arc<[Arc<str>]>, listener: Option<Listener>) -> Self {
        let telemetry = Arc::new(Telemetry::of(addresses.len()));
        Self { addresses, listener, telemetry }
    }

    pub(crate) const fn telemetry(&self) -> &Arc<Telemetry> {
        &self.telemetry
    }

    /// The state of a node has changed.
    pub(crate) fn tell_change(&self, node: NodeId, from: &NodeState, to: &NodeState) {
        if *to == NodeState::Unresponsive {
            self.telemetry.figures().note_silence(node);
        }
        if from.name() == to.name() {
            return;
        }
        self.telemetry.emit(EventName::Node, || EventKind::Node {
            address: self.address(node),
            from: from.name(),
            to: to.name(),
            detail: to.detail().map(str::to_owned),
        });
    }

    fn address(&self, node: NodeId) -> Arc<str> {
        self.addresses.get(node.index()).cloned().unwrap_or_default()
    }

    /// Tells the events that are behind a notice.
    fn tell_events(&self, notice: &Notice) {
        let step = |node: Option<NodeId>, by, direction| EventKind::ClockStep {
            address: node.map(|node| self.address(node)),
            by,
            direction,
        };
        let telemetry = &self.telemetry;
        match notice {
            Notice::Quarantined(node, reason, lasts) => {
                if *reason == QuarantineReason::ClockStepped {
                    telemetry.emit(EventName::ClockStep, || step(Some(*node), None, "forward"));
                }
                telemetry.emit(EventName::Quarantined, || EventKind::Quarantined {
                    address: self.address(*node),
                    reason: reason.name(),
                    lasts: *lasts,
                });
            }
            Notice::ClockSetBack(node, by) => {
                telemetry.emit(EventName::ClockStep, || step(Some(*node), Some(*by), "back"));
            }
            Notice::Paused(by) => {
                telemetry.emit(EventName::ClockStep, || step(None, Some(*by), "paused"));
            }
            Notice::LongWait(..)
            | Notice::LongLock(_)
            | Notice::MayEvict(..)
            | Notice::NotIndependent(_)
            | Notice::NodeDown(..)
            | Notice::NodeUp(..)
            | Notice::NoPush(..)
            | Notice::Degraded(_) => {}
        }
    }

    /// Tells what has come up.
    pub(crate) fn tell(&self, notices: Vec<Notice>) {
        for notice in &notices {
            self.tell_events(notice);
        }
        for notice in notices {
            self.report(notice, false);
        }
    }

    /// Tells of an outage of a node, or its end.
    pub(crate) fn tell_of_outage(&self, notice: Notice, is_repeat: bool) {
        self.report(notice, is_repeat);
    }

    fn report(&self, notice: Notice, is_repeat: bool) {
        let Some(listener) = &self.listener else {
            return;
        };
        let message = notice.explain(&self.plain());
        let address = notice.node().and_then(|node| self.addresses.get(node.index()).cloned());
        let report = NoticeReport { notice, address, message, is_repeat };
        // It runs on a task of a node: a listener that panics (which is printed on standard error) stops nothing.
        let _ = catch_unwind(AssertUnwindSafe(|| listener(&report)));
    }

    pub(crate) fn explain(&self, dependence: &Dependence) -> String {
        dependence.explain(&self.plain())
    }

    /// Why a node without a vote of its own answers nothing.
    pub(crate) fn fault_of(&self, dependence: &Dependence) -> Fault {
        let kind = match dependence {
            Dependence::Replica(..) | Dependence::ReplicaOf(..) => FaultKind::Replica,
            Dependence::SameServer(..) | Dependence::OneCluster(..) => FaultKind::NotIndependent,
        };
        Fault::new(kind, self.explain(dependence))
    }

    fn plain(&self) -> Vec<&str> {
        self.addresses.iter().map(AsRef::as_ref).collect()
    }
}
