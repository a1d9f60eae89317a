//! Tells people when a node stops taking part, and when it takes part again. Owns how long it waits
//! before it does, and what the managers of an engine have told of one address; the words come from
//! the protocol.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use quorlock_protocol::{FaultKind, Moment};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::address::Address;
use crate::clock;
use crate::guards::GuardedNode;
use crate::node::NodeState;

/// The outages of an engine's nodes.
#[derive(Default)]
pub(crate) struct Outages(Mutex<Vec<(Arc<Address>, Weak<Outage>)>>);

impl Outages {
    /// Those of one address, the same for all managers that have it among their nodes.
    pub(crate) fn of(&self, address: &Arc<Address>) -> Arc<Outage> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(_, outage)| outage.strong_count() > 0);
        let same = known.iter().find(|(other, _)| other == address);
        if let Some(outage) = same.and_then(|(_, outage)| outage.upgrade()) {
            return outage;
        }
        let outage = Arc::<Outage>::default();
        known.push((Arc::clone(address), Arc::downgrade(&outage)));
        outage
    }
}

/// What the managers have seen and told of one address.
#[derive(Default)]
pub(crate) struct Outage(Mutex<Story>);

impl Outage {
    fn story(&self) -> MutexGuard<'_, Story> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An outage is told once it has lasted for [`PATIENCE`]. Within [`QUIET`] after its end, another is
/// told once it has lasted for [`LASTING`] and twice as long as any that were seen since. At the end
/// of [`QUIET`] it is told in any case. So one that lasts is told soon, and a node that comes and
/// goes is not reported again and again.
#[derive(Default)]
struct Story {
    /// The outage that has been told, while it lasts.
    told: Option<Told>,
    /// How many have been told.
    count: u64,
    /// How long the latest of these took.
    took: Duration,
    quiet_until: Moment,
    /// The longest outage, of the latest that was told and those after it.
    longest: Duration,
    /// When some manager last saw that the node takes part again.
    back_at: Moment,
}

struct Told {
    since: Moment,
    /// How many managers have told it and not seen its end.
    by: usize,
}

/// What a manager is to do about an outage for which it has waited long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Tell it; it has this number, and another manager may have told it.
    Tell { number: u64, is_repeat: bool },
    /// The node was back in between, which another manager has seen: it is out since then.
    BackAt(Moment),
}

impl Story {
    /// How long a manager waits before it tells of an outage that it has seen since then.
    fn patience(&self, since: Moment) -> Duration {
        let lasting = LASTING.max(self.longest * 2);
        PATIENCE.max(lasting.min(self.quiet_until.since(since)))
    }

    fn judge(&mut self, since: Moment) -> Verdict {
        if let Some(told) = &mut self.told {
            told.by += 1;
            return Verdict::Tell { number: self.count, is_repeat: true };
        }
        if self.back_at > since {
            return Verdict::BackAt(self.back_at);
        }
        self.count += 1;
        self.told = Some(Told { since, by: 1 });
        Verdict::Tell { number: self.count, is_repeat: false }
    }

    /// A manager sees the end of an outage that nobody was told of.
    fn end_untold(&mut self, since: Moment, now: Moment) {
        if self.back_at <= since {
            self.longest = self.longest.max(now.since(since));
        }
        self.back_at = now;
    }

    /// A manager that has told of an outage sees its end; returns how long it took, and whether
    /// another has told of the end.
    fn end_told(&mut self, now: Moment) -> (Duration, bool) {
        self.back_at = now;
        let Some(told) = self.told.take() else {
            return (self.took, true);
        };
        self.took = now.since(told.since);
        let is_first = now > self.quiet_until;
        self.longest = if is_first { self.took } else { self.longest.max(self.took) };
        self.quiet_until = now + QUIET;
        (self.took, false)
    }

    /// A manager that has told of the outage with this number is closed.
    fn leave(&mut self, number: u64) {
        let Some(told) = self.told.as_mut().filter(|_| number == self.count) else {
            return;
        };
        told.by -= 1;
        if told.by == 0 {
            self.told = None;
        }
    }
}

/// Follows one node of a manager until it is closed.
pub(crate) async fn watch(
    mut states: watch::Receiver<NodeState>,
    guarded_node: GuardedNode,
    outage: Arc<Outage>,
) {
    // An error means that the node was closed.
    while states.wait_for(is_out).await.is_ok() {
        let mut since = clock::now();
        let told = loop {
            let patience = outage.story().patience(since);
            let left = (since + patience).since(clock::now());
            match timeout(left, states.wait_for(takes_part)).await {
                Ok(Ok(_)) => break None,
                Ok(Err(_)) => return,
                Err(_elapsed) => {}
            }
            match outage.story().judge(since) {
                Verdict::Tell { number, is_repeat } => break Some((number, is_repeat)),
                Verdict::BackAt(moment) => since = moment,
            }
        };
        let Some((number, is_repeat)) = told else {
            outage.story().end_untold(since, clock::now());
            continue;
        };
        guarded_node.tell_down(reason(&states.borrow()), is_repeat);
        if states.wait_for(takes_part).await.is_err() {
            outage.story().leave(number);
            return;
        }
        let (took, is_repeat) = outage.story().end_told(clock::now());
        guarded_node.tell_up(took, is_repeat);
    }
}

/// Whether it grants locks, or is about to. States that people are told of by other notices count
/// as well.
fn takes_part(state: &NodeState) -> bool {
    match state {
        NodeState::Healthy | NodeState::Quarantined(_) => true,
        NodeState::Refusing(fault) => fault.kind() == FaultKind::NotIndependent,
        NodeState::Connecting | NodeState::Unresponsive | NodeState::Down(_) => false,
    }
}

fn is_out(state: &NodeState) -> bool {
    !takes_part(state) && *state != NodeState::Connecting
}

fn reason(state: &NodeState) -> Arc<str> {
    match state {
        NodeState::Unresponsive => "it is connected, but does not answer".into(),
        NodeState::Down(fault) | NodeState::Refusing(fault) => fault.detail().into(),
        _ => "it is not known yet whether it remembers its locks".into(),
    }
}

/// A node that is back sooner is not reported: its server was restarted, or a connection was lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// Soon after a reported outage, one that is shorter is not.
const LASTING: Duration = Duration::from_secs(10);
/// For how long after a reported outage.
const QUIET: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
