//! Tests the promises of an extension: it needs a quorum, must end before the old validity does,
//! and never makes a key.

use std::time::Duration;

use crate::support::{Harness, absent, claim, fault, frees_in, kept, policy, quorum, theirs};
use quorlock_protocol::{
    Action, ErrorKind, Extend, Extension, FaultKind, FencingToken, LastRound, Machine as _, Moment,
    NodeId, PolicyBuilder, Reply,
};

fn extend_until(
    nodes: usize,
    until: Moment,
    change: impl FnOnce(PolicyBuilder) -> PolicyBuilder,
) -> Harness<Extend> {
    let extension = Extension {
        claim: claim("h"),
        fencing_token: Some(FencingToken(77)),
        until,
        patience: Duration::from_millis(400),
        first_ticket: 5,
    };
    Harness::start(Extend::new(Moment::from_millis(0), extension, policy(change), quorum(nodes)))
}

fn extend(nodes: usize, until: u64) -> Harness<Extend> {
    extend_until(nodes, Moment::from_millis(until), |policy| policy)
}

#[test]
fn an_extension_counts_from_its_start_and_keeps_the_token() {
    let mut harness = extend(3, 500);
    harness.env.now = Moment::from_millis(20);
    harness.answer(0, "extend", kept());
    harness.answer(1, "extend", kept());
    let lease = harness.outcome().result.unwrap();
    assert_eq!(lease.until(), Moment::from_millis(988));
    assert_eq!(lease.fencing_token(), Some(FencingToken(77)));
}

#[test]
fn is_lost_when_another_may_hold_a_quorum() {
    let mut harness = extend(3, 500);
    harness.answer(0, "extend", absent());
    assert!(harness.done.is_none());
    harness.answer(1, "extend", theirs(frees_in(10)));
    let outcome = harness.outcome();
    assert_eq!(outcome.result.unwrap_err(), ErrorKind::LeaseLost);
}

#[test]
fn a_lost_extension_makes_no_key() {
    let mut harness = extend(3, 500);
    for node in 0..2 {
        harness.answer(node, "extend", absent());
    }
    assert_eq!(harness.count("restore"), 0);
}

#[test]
fn a_node_is_healed_only_after_a_quorum_proved_the_lease() {
    let mut harness = extend(3, 500);
    harness.answer(2, "extend", absent());
    assert_eq!(harness.count("restore"), 0);
    harness.answer(0, "extend", kept());
    harness.answer(1, "extend", kept());
    assert_eq!(harness.targets("restore"), [2]);
    assert_eq!(harness.targets("raise"), [2]);
    assert_eq!(
        harness.last(2, "restore").not_after,
        Moment::from_millis(50),
        "in the time of a node or never"
    );
}

#[test]
fn votes_that_came_together_count_together() {
    let mut harness = extend(3, 500);
    for (node, answer) in [(0, kept()), (1, kept()), (2, absent())] {
        let reply = Reply { ticket: harness.last(node, "extend").ticket, answer, repeated: false };
        harness.machine.handle_reply(&mut harness.env, NodeId(node), reply);
    }
    harness.settle();
    assert_eq!(harness.targets("restore"), [2], "healed at once");
    let LastRound::Counting(round) = harness.outcome().last else { panic!("it still counts") };
    assert_eq!(round.report().tally().missing, 0);
}

#[test]
fn faults_are_tried_again_and_do_not_lose_the_lease() {
    let mut harness = extend(3, 500);
    harness.answer(0, "extend", kept());
    harness.wait_until(50);
    assert!(harness.done.is_none());
    harness.wait_until(110);
    assert_eq!(harness.count("extend"), 6);
    harness.answer(0, "extend", kept());
    harness.answer(2, "extend", kept());
    assert!(harness.outcome().result.is_ok());
}

#[test]
fn silence_to_the_end_of_the_validity_is_a_loss() {
    let mut harness = extend(3, 300);
    harness.wait_until(300);
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::LeaseLost);
}

#[test]
fn the_nodes_are_asked_until_shortly_before_the_end_of_the_validity() {
    for end in (300..980).step_by(20) {
        let until = Moment::from_millis(end);
        let extension = Extension {
            claim: claim("h"),
            fencing_token: None,
            until,
            patience: Duration::from_secs(60),
            first_ticket: 5,
        };
        let machine =
            Extend::new(Moment::from_millis(0), extension, policy(|policy| policy), quorum(3));
        let mut harness = Harness::start(machine);
        harness.wait_until(end);
        let last = harness.last(0, "extend").not_after;
        assert!(last >= Moment::from_millis(end - 20), "{end}: the last try ended at {last:?}");
        assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::LeaseLost);
    }
}

#[test]
fn silence_beyond_the_patience_is_unknown_and_no_loss() {
    let mut harness = extend(3, 900);
    harness.wait_until(500);
    let outcome = harness.outcome();
    assert_eq!(outcome.result.unwrap_err(), ErrorKind::QuorumUnreachable);
    assert_eq!(outcome.until, Moment::from_millis(900));
}

#[test]
fn a_verdict_after_the_old_validity_is_a_loss() {
    let mut harness = extend(3, 40);
    harness.answer(0, "extend", kept());
    harness.env.now = Moment::from_millis(40);
    harness.answer(1, "extend", kept());
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::LeaseLost);
}

#[test]
fn never_starts_after_the_validity_has_ended() {
    let harness = extend(3, 0);
    assert!(harness.sent.is_empty());
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::LeaseLost);
}

#[test]
fn a_shorter_ttl_counts_once_a_quorum_has_confirmed_it() {
    let mut harness =
        extend_until(3, Moment::from_millis(900), |policy| policy.ttl(Duration::from_millis(200)));
    harness.answer(0, "extend", kept());
    assert_eq!(harness.machine.until(), Moment::from_millis(900), "no key ends earlier");
    harness.answer(1, "extend", kept());
    assert_eq!(harness.outcome().result.unwrap().until(), Moment::from_millis(196));
}

#[test]
fn a_verdict_after_a_shorter_ttl_is_no_loss_while_the_old_validity_lasts() {
    let mut harness =
        extend_until(3, Moment::from_millis(900), |policy| policy.ttl(Duration::from_millis(40)));
    harness.answer(0, "extend", kept());
    harness.env.now = Moment::from_millis(50);
    harness.answer(1, "extend", kept());
    assert!(harness.done.is_none(), "it is tried again");
    assert_eq!(harness.machine.until(), Moment::from_millis(900));
}

#[test]
fn no_key_of_a_lease_that_is_held_is_shortened() {
    let harness = extend(3, 900);
    let action = harness.last(0, "extend").action;
    assert!(matches!(action, Action::Extend { may_shorten: None, .. }), "{action:?}");
}

#[test]
fn a_lease_taken_over_is_proved_by_the_nodes_alone() {
    let mut harness = extend_until(3, Moment::FAR_FUTURE, |policy| policy);
    harness.answer(0, "extend", kept());
    harness.answer(1, "extend", kept());
    assert_eq!(harness.outcome().result.unwrap().until(), Moment::from_millis(988));
}

#[test]
fn a_broken_node_among_a_bare_quorum_is_no_proof_of_loss() {
    // Nodes 3 and 4 never granted; node 2 is broken: two kept, two absent, one silent.
    let mut harness = extend(5, 500);
    for (node, answer) in [(0, kept()), (1, kept()), (3, absent()), (4, absent())] {
        harness.answer(node, "extend", answer);
    }
    harness.answer(2, "extend", fault(FaultKind::Broken));
    assert!(harness.done.is_none(), "unknown is not lost: it is tried again");
}

#[test]
fn keys_stay_as_long_as_any_round_may_have_asked_for() {
    let mut harness =
        extend_until(3, Moment::from_millis(900), |policy| policy.ttl(Duration::from_millis(200)));
    harness.machine = harness.machine.outlasting(Moment::from_millis(1062));
    harness.answer(0, "extend", kept());
    harness.answer(1, "extend", kept());
    let lease = harness.outcome().result.unwrap();
    // No node keeps its key for less than it was asked for before.
    assert_eq!(lease.keys_expire_by(), Moment::from_millis(1062));
}

#[test]
fn a_failed_extension_leaves_keys_that_last_longer() {
    let mut harness = extend(3, 900);
    harness.wait_until(500);
    assert!(harness.machine.keys_expire_by() >= Moment::from_millis(1400));
    assert!(harness.outcome().result.is_err());
}
