//! Tests that a cancelled acquisition leaves no key.

use std::time::Duration;

use quorlock_protocol::{
    Action, ErrorKind, FaultKind, Machine, NodeId, Output, PolicyBuilder, Reply,
};

use crate::acquire::{acquire, plain};
use crate::support::{absent, fault, frees_in, ours, theirs};

#[test]
fn cancelling_takes_the_keys_back() {
    let mut play = plain(3);
    play.answer(0, "grant", ours(1000));
    play.cancel();
    assert_eq!(play.targets("revoke"), [0, 1, 2]);
    let outcome = play.outcome();
    assert_eq!(outcome.result.unwrap_err(), ErrorKind::Cancelled);
    assert_eq!(outcome.withdrawals.len(), 1, "nodes that have not confirmed are asked again");
}

#[test]
fn cancelling_a_win_that_nobody_was_told_of_takes_the_keys_back() {
    let patient = |policy: PolicyBuilder| policy.node_timeout(Duration::from_millis(500));
    let mut play = acquire(3, patient);
    for node in 0..3 {
        play.answer(node, "grant", theirs(frees_in(5000)));
    }
    // What is left of the first round is due again just when the second is won, and is sent first.
    play.answer(2, "revoke", fault(FaultKind::Broken));
    play.wake();
    play.answer(2, "revoke", fault(FaultKind::Broken));
    play.wake();
    let holder = play.last(0, "grant").claim.holder.clone();
    play.env.now = play.wake_at.expect("the revoke goes out again");
    play.machine.handle_timeout(&mut play.env);
    for node in 0..2 {
        let ticket = play.last(node, "grant").ticket;
        let reply = Reply { ticket, answer: ours(1000), repeated: false };
        play.machine.handle_reply(&mut play.env, NodeId(node), reply);
    }
    let next = play.machine.poll(&mut play.env);
    assert!(matches!(next, Output::Send(NodeId(2), command) if command.action == Action::REVOKE));
    play.cancel();
    let of_it = play.sent.iter().filter(|(_, it)| it.claim.holder == holder);
    let revoked: Vec<_> = of_it.filter(|(_, it)| it.action == Action::REVOKE).collect();
    assert_eq!(revoked.len(), 3, "{:?}", play.sent);
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::Cancelled);
}

#[test]
fn cancelling_between_the_rounds_sends_nothing() {
    let mut play = plain(3);
    for node in 0..3 {
        play.answer(node, "grant", theirs(frees_in(5000)));
    }
    for node in 0..3 {
        play.answer(node, "revoke", absent());
    }
    let before = play.sent.len();
    play.cancel();
    assert_eq!(play.sent.len(), before);
    assert!(play.outcome().withdrawals.is_empty());
}
