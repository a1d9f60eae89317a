//! Tests that a cancelled acquisition leaves no key.

use std::time::Duration;

use quorlock_protocol::{
    Action, ErrorKind, FaultKind, Machine, NodeId, Output, PolicyBuilder, Reply,
};

use crate::acquire::{acquire, plain};
use crate::support::{absent, fault, frees_in, ours, theirs};

#[test]
fn cancelling_takes_the_keys_back() {
    let mut harness = plain(3);
    harness.answer(0, "grant", ours(1000));
    harness.cancel();
    assert_eq!(harness.targets("revoke"), [0, 1, 2]);
    let outcome = harness.outcome();
    assert_eq!(outcome.result.unwrap_err(), ErrorKind::Cancelled);
    assert_eq!(outcome.withdrawals.len(), 1, "nodes that have not confirmed are asked again");
}

#[test]
fn cancelling_a_win_that_nobody_was_told_of_takes_the_keys_back() {
    let patient = |policy: PolicyBuilder| policy.node_timeout(Duration::from_millis(500));
    let mut harness = acquire(3, patient);
    for node in 0..3 {
        harness.answer(node, "grant", theirs(frees_in(5000)));
    }
    // What is left of the first round is due again just when the second is won, and is sent first.
    harness.answer(2, "revoke", fault(FaultKind::Broken));
    harness.wake();
    harness.answer(2, "revoke", fault(FaultKind::Broken));
    harness.wake();
    let holder = harness.last(0, "grant").claim.holder.clone();
    harness.env.now = harness.wake_at.expect("the revoke goes out again");
    harness.machine.handle_timeout(&mut harness.env);
    for node in 0..2 {
        let ticket = harness.last(node, "grant").ticket;
        let reply = Reply { ticket, answer: ours(1000), repeated: false };
        harness.machine.handle_reply(&mut harness.env, NodeId(node), reply);
    }
    let next = harness.machine.poll(&mut harness.env);
    assert!(matches!(next, Output::Send(NodeId(2), command) if command.action == Action::REVOKE));
    harness.cancel();
    let of_it = harness.sent.iter().filter(|(_, it)| it.claim.holder == holder);
    let revoked: Vec<_> = of_it.filter(|(_, it)| it.action == Action::REVOKE).collect();
    assert_eq!(revoked.len(), 3, "{:?}", harness.sent);
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::Cancelled);
}

#[test]
fn cancelling_between_the_rounds_sends_nothing() {
    let mut harness = plain(3);
    for node in 0..3 {
        harness.answer(node, "grant", theirs(frees_in(5000)));
    }
    for node in 0..3 {
        harness.answer(node, "revoke", absent());
    }
    let before = harness.sent.len();
    harness.cancel();
    assert_eq!(harness.sent.len(), before);
    assert!(harness.outcome().withdrawals.is_empty());
}
