//! Tells people when a node stops taking part, and when it takes part again. Owns how long it waits
//! before it does, and what the managers of an engine have told of one address; the words come from
//! the protocol.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
pub(crate) struct Outages(Mutex<Vec<(Arc<Address>, Arc<Outage>)>>);

impl Outages {
    /// Those of one address, the same for all managers that have it among their nodes.
    pub(crate) fn of(&self, address: &Arc<Address>) -> Arc<Outage> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock::now();
        known.retain(|(_, outage)| Arc::strong_count(outage) > 1 || outage.story().matters(now));
        if let Some((_, outage)) = known.iter().find(|(other, _)| other == address) {
            return Arc::clone(outage);
        }
        let outage = Arc::<Outage>::default();
        known.push((Arc::clone(address), Arc::clone(&outage)));
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
    /// How long the latest that was told took.
    took: Duration,
    quiet_until: Moment,
    /// The longest outage, of the latest that was told and those after it.
    longest: Duration,
    /// When some manager last saw that the node takes part again.
    back_at: Moment,
    /// Since when the node has been out, told or not, and when a manager that saw that was closed.
    out_since: Option<Moment>,
    left_at: Moment,
    /// How many managers see that it is out.
    seen_by: usize,
}

struct Told {
    since: Moment,
}

/// What a manager is to do about an outage for which it has waited long enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Tell it; another manager may have told it.
    Tell { is_repeat: bool },
    /// The node was back in between, which another manager has seen: it is out since then.
    BackAt(Moment),
}

impl Story {
    /// How long a manager waits before it tells of an outage that it has seen since then.
    fn patience(&self, since: Moment) -> Duration {
        let lasting = LASTING.max(self.longest * 2);
        PATIENCE.max(lasting.min(self.quiet_until.since(since)))
    }

    /// A manager sees that the node is out; returns since when, as far as managers have seen. So an
    /// outage is told also if no manager lives for as long as the patience.
    fn begin(&mut self, now: Moment) -> Moment {
        if self.seen_by == 0 && !self.is_remembered(now) {
            (self.out_since, self.told) = (None, None);
        }
        self.seen_by += 1;
        *self.out_since.get_or_insert(now)
    }

    /// Whether a manager that comes takes the node for out since others saw it, which are closed.
    fn is_remembered(&self, now: Moment) -> bool {
        self.out_since.is_some() && now.since(self.left_at) < REMEMBERED
    }

    /// Whether a manager that comes is to know of it, also if all that saw it are closed.
    fn matters(&self, now: Moment) -> bool {
        self.is_remembered(now) || now < self.quiet_until
    }

    /// A manager sees that the node takes part; returns for how long it was out, if that was told
    /// by managers that are closed.
    fn end_of_others(&mut self, now: Moment) -> Option<Duration> {
        if self.seen_by > 0 || !self.is_remembered(now) {
            return None;
        }
        self.out_since = None;
        self.told.is_some().then(|| self.end(now).0)
    }

    fn judge(&mut self, since: Moment) -> Verdict {
        if self.told.is_some() {
            return Verdict::Tell { is_repeat: true };
        }
        if self.back_at > since {
            return Verdict::BackAt(self.back_at);
        }
        self.told = Some(Told { since });
        Verdict::Tell { is_repeat: false }
    }

    /// A manager sees the end of an outage that nobody was told of.
    fn end_untold(&mut self, since: Moment, now: Moment) {
        if self.back_at <= since {
            self.longest = self.longest.max(now.since(since));
        }
        self.back_at = now;
        self.out_since = None;
        self.seen_by -= 1;
    }

    /// A manager that has told of an outage sees its end; returns how long it took, and whether
    /// another has told of the end.
    fn end_told(&mut self, now: Moment) -> (Duration, bool) {
        self.seen_by -= 1;
        self.end(now)
    }

    fn end(&mut self, now: Moment) -> (Duration, bool) {
        self.back_at = now;
        self.out_since = None;
        let Some(told) = self.told.take() else {
            return (self.took, true);
        };
        self.took = now.since(told.since);
        let is_first = now > self.quiet_until;
        self.longest = if is_first { self.took } else { self.longest.max(self.took) };
        self.quiet_until = now + QUIET;
        (self.took, false)
    }

    /// A manager that sees that the node is out is closed.
    fn leave(&mut self, now: Moment) {
        self.seen_by -= 1;
        self.left_at = now;
    }
}

/// Follows one node of a manager until it is closed.
pub(crate) async fn watch(
    mut states: watch::Receiver<NodeState>,
    guarded_node: GuardedNode,
    outage: Arc<Outage>,
) {
    // An error means that the node was closed.
    let known = states.wait_for(|state| is_out(state) || takes_part(state)).await;
    let Ok(is_back) = known.map(|state| takes_part(&state)) else { return };
    let ended = is_back.then(|| outage.story().end_of_others(clock::now())).flatten();
    if let Some(took) = ended {
        guarded_node.tell_up(took, false);
    }
    while states.wait_for(is_out).await.is_ok() {
        // A node that is closed is shown as down: it is out for this manager alone.
        if states.has_changed().is_err() {
            return;
        }
        let mut since = outage.story().begin(clock::now());
        let told = loop {
            let patience = outage.story().patience(since);
            let left = (since + patience).since(clock::now());
            match timeout(left, states.wait_for(takes_part)).await {
                Ok(Ok(_)) => break None,
                Ok(Err(_)) => return outage.story().leave(clock::now()),
                Err(_elapsed) => {}
            }
            match outage.story().judge(since) {
                Verdict::Tell { is_repeat } => break Some(is_repeat),
                Verdict::BackAt(moment) => since = moment,
            }
        };
        let Some(is_repeat) = told else {
            outage.story().end_untold(since, clock::now());
            continue;
        };
        guarded_node.tell_down(reason(&states.borrow()), is_repeat);
        if states.wait_for(takes_part).await.is_err() {
            return outage.story().leave(clock::now());
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

/// For how long an outage that a closed manager saw is taken to go on.
const REMEMBERED: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
