//! Tells people when a node stops taking part, and when it takes part again. Owns how long it waits
//! before it does; the words come from the protocol.

use std::sync::Arc;
use std::time::Duration;

use quorlock_protocol::{FaultKind, Moment};
use tokio::sync::watch;
use tokio::sync::watch::error::RecvError;
use tokio::time::timeout;

use crate::clock;
use crate::node::NodeState;
use crate::node_guards::NodeGuard;

/// Follows one node until it is closed.
pub(crate) async fn watch(mut states: watch::Receiver<NodeState>, node_guard: NodeGuard) {
    let mut quiet_until = Moment::default();
    // An error means that the node was closed.
    while let Ok(since) = outage(&mut states).await {
        let patience = PATIENCE.max(quiet_until.since(since));
        match timeout(patience, states.wait_for(takes_part)).await {
            Ok(Ok(_)) => continue,
            Ok(Err(_)) => return,
            Err(_elapsed) => {}
        }
        node_guard.tell_down(reason(&states.borrow()));
        if states.wait_for(takes_part).await.is_err() {
            return;
        }
        let now = clock::now();
        node_guard.tell_up(now.since(since));
        quiet_until = now + QUIET;
    }
}

/// Waits until the node does not take part; returns since when.
async fn outage(states: &mut watch::Receiver<NodeState>) -> Result<Moment, RecvError> {
    states.wait_for(is_out).await?;
    Ok(clock::now())
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
/// A node that comes and goes is reported once within this time.
const QUIET: Duration = Duration::from_secs(60);
