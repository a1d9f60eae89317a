//! Tests the promises of a release: the exact outcome as soon as a quorum has answered, and keys
//! taken back as far as possible.

use std::time::Duration;

use crate::support::{Harness, absent, claim, fault, frees_in, kept, quorum, theirs};
use quorlock_protocol::{
    Answer, Fault, FaultKind, Moment, ReleaseOutcome, Reply, Ticket, Withdraw, Withdrawal,
};

fn withdraw(nodes: usize) -> Harness<Withdraw> {
    let withdrawal = Withdrawal {
        ticket: Ticket(7),
        claim: claim("h"),
        quorum: quorum(nodes),
        keys_expire_by: Moment::from_millis(1000),
        unsent: Vec::new(),
        node_timeout: Duration::from_millis(50),
    };
    Harness::start(Withdraw::new(Moment::from_millis(0), withdrawal))
}

#[test]
fn is_released_once_a_quorum_has_deleted_the_keys() {
    let mut harness = withdraw(5);
    assert_eq!(harness.targets("revoke"), [0, 1, 2, 3, 4]);
    harness.answer(0, "revoke", kept());
    harness.answer(1, "revoke", kept());
    assert_eq!(harness.machine.outcome(), None);
    harness.answer(2, "revoke", kept());
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Released));
    assert!(harness.done.is_none(), "the others are still to confirm");
    harness.answer(3, "revoke", kept());
    harness.answer(4, "revoke", absent());
    assert!(harness.done.is_some());
}

#[test]
fn has_expired_when_the_keys_are_gone_on_too_many_nodes() {
    let mut harness = withdraw(5);
    for node in 0..3 {
        harness.answer(node, "revoke", absent());
    }
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Expired));
}

#[test]
fn is_taken_when_another_has_a_quorum() {
    let mut harness = withdraw(5);
    for node in 0..3 {
        harness.answer(node, "revoke", theirs(frees_in(10)));
    }
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Taken));
}

#[test]
fn is_taken_also_if_two_of_four_say_so_before_the_third() {
    let mut harness = withdraw(4);
    harness.answer(0, "revoke", theirs(frees_in(10)));
    harness.answer(1, "revoke", theirs(frees_in(10)));
    assert_eq!(harness.machine.outcome(), None, "the keys are lost; to whom is still to be heard");
    harness.answer(2, "revoke", theirs(frees_in(10)));
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Taken));
}

#[test]
fn has_expired_once_no_other_can_have_a_quorum() {
    let mut harness = withdraw(4);
    harness.answer(0, "revoke", theirs(frees_in(10)));
    harness.answer(1, "revoke", absent());
    assert_eq!(harness.machine.outcome(), None);
    harness.answer(2, "revoke", kept());
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Expired));
}

#[test]
fn is_taken_when_keys_of_another_type_stand_on_a_quorum() {
    let mut harness = withdraw(3);
    harness.answer(0, "revoke", fault(FaultKind::WrongType));
    assert_eq!(harness.machine.outcome(), None);
    harness.answer(1, "revoke", fault(FaultKind::WrongType));
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Taken));
}

#[test]
fn is_unknown_when_too_few_nodes_answer_and_goes_on_trying() {
    let mut harness = withdraw(3);
    harness.answer(0, "revoke", kept());
    harness.answer(1, "revoke", fault(FaultKind::NotSent));
    assert_eq!(harness.machine.outcome(), None);
    harness.wait_until(50);
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Unknown));
    harness.wait_until(300);
    assert!(harness.count("revoke") > 3, "nodes without an answer are asked again");
    harness.answer(1, "revoke", kept());
    harness.answer(2, "revoke", kept());
    assert!(harness.done.is_some());
}

#[test]
fn stops_when_the_nodes_have_forgotten_the_keys_by_themselves() {
    let mut harness = withdraw(3);
    harness.wait_until(999);
    assert!(harness.done.is_none());
    harness.wait_until(1000);
    assert!(harness.done.is_some());
}

fn repeated(harness: &mut Harness<Withdraw>, node: u8, answer: Result<Answer, Fault>) {
    let (ticket, repeated) = (Ticket(7), true);
    harness.reply(node, Reply { ticket, answer, repeated });
}

#[test]
fn a_key_gone_within_the_validity_was_deleted_by_the_revoke() {
    let mut harness = withdraw(1);
    harness.machine = harness.machine.valid_until(Moment::from_millis(988));
    repeated(&mut harness, 0, absent());
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Released));
}

#[test]
fn a_key_gone_after_a_repeated_revoke_may_have_run_out() {
    let mut harness = withdraw(3);
    harness.answer(0, "revoke", kept());
    harness.answer(1, "revoke", absent());
    repeated(&mut harness, 2, absent());
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Unknown));
    assert!(harness.done.is_some(), "nothing is left to take back");
}

#[test]
fn a_new_holder_after_the_first_revoke_is_no_sign_of_a_loss() {
    let mut harness = withdraw(3);
    harness.wait_until(100);
    assert_eq!(harness.count("revoke"), 6);
    harness.answer(0, "revoke", theirs(frees_in(10)));
    harness.answer(1, "revoke", absent());
    harness.answer(2, "revoke", kept());
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Unknown));
}

#[test]
fn a_late_reply_to_the_only_revoke_is_clear() {
    let mut harness = withdraw(3);
    harness.wait_until(50);
    harness.answer(0, "revoke", absent());
    harness.answer(1, "revoke", absent());
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Expired));
}

#[test]
fn a_fault_that_only_a_person_can_mend_is_not_tried_again() {
    let mut harness = withdraw(1);
    harness.answer(0, "revoke", fault(FaultKind::NotPermitted));
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Unknown));
    assert!(harness.done.is_some());
}
