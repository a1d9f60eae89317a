//! Faults of nodes that cannot be asked, with words for people. Owns the texts; decides nothing.

use std::time::Duration;

use quorlock_protocol::{Fault, FaultKind};

use crate::address::Address;

/// The fault of a command that a node gets after its manager was closed.
pub(super) fn closed() -> Fault {
    Fault::new(FaultKind::NotSent, "the lock manager was closed")
}

/// The fault of a server that is not connected to within `limit`.
pub(super) fn no_answer(address: &Address, limit: Duration) -> Fault {
    let millis = limit.as_millis();
    // A server without TLS may wait for the rest of what it takes for a command.
    let hint = if address.tls().is_some() { ": does it speak TLS on this port?" } else { "" };
    Fault::new(FaultKind::NotSent, format!("cannot connect: no answer within {millis} ms{hint}"))
}
