//! Faults of nodes that cannot be asked, with words for people. Owns the texts; decides nothing.

use std::time::Duration;

use quorlock_protocol::{Fault, FaultKind};

use crate::address::Address;

/// The fault of a command that a node gets after its manager was closed.
pub(super) fn closed() -> Fault {
    Fault::new(FaultKind::NotSent, "the lock manager was closed")
}

/// The fault of a grant on a node that is left out.
pub(super) fn left_out() -> Fault {
    let words = "left out of new locks, because the database that its client uses is not known";
    Fault::new(FaultKind::NotSent, words)
}

/// The fault of a server to which there is no usable connection within `limit`.
pub(super) fn no_answer(address: &Address, limit: Duration) -> Fault {
    let hint = hint(address);
    Fault::new(FaultKind::NotSent, format!("cannot connect: {}{hint}", nothing_within(limit)))
}

/// The fault of a server that cannot be connected to within `limit`.
pub(super) fn not_connected(limit: Duration) -> Fault {
    Fault::new(FaultKind::NotSent, format!("cannot connect: {}", nothing_within(limit)))
}

/// The fault of a server that is connected to, but does not answer within `limit`.
pub(super) fn silent(address: &Address, limit: Duration) -> Fault {
    let (nothing, hint) = (nothing_within(limit), hint(address));
    Fault::new(FaultKind::TimedOut, format!("it is connected, but {nothing}{hint}"))
}

fn nothing_within(limit: Duration) -> String {
    format!("no answer within {} ms", limit.as_millis())
}

/// A server without TLS may wait for the rest of what it takes for a command.
fn hint(address: &Address) -> &'static str {
    if address.has_tls() { ": does it speak TLS on this port?" } else { "" }
}
