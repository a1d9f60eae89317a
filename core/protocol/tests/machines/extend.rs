//! Tests the promises of an extension: it needs a quorum, must end before the old validity does,
//! and never makes a key.

use std::time::Duration;

use crate::support::{Play, absent, claim, fault, frees_in, kept, policy, quorum, theirs};
use quorlock_protocol::{
    ErrorKind, Extend, Extension, FaultKind, FencingToken, LastRound, Machine as _, Moment, NodeId,
    PolicyBuilder, Reply,
};

fn extend_until(
    nodes: usize,
    until: Moment,
    change: impl FnOnce(PolicyBuilder) -> PolicyBuilder,
) -> Play<Extend> {
    let extension = Extension {
        claim: claim("h"),
        fencing_token: Some(FencingToken(77)),
        until,
        patience: Duration::from_millis(400),
        first_ticket: 5,
    };
    Play::start(Extend::new(Moment::from_millis(0), extension, policy(change), quorum(nodes)))
}

fn extend(nodes: usize, until: u64) -> Play<Extend> {
    extend_until(nodes, Moment::from_millis(until), |policy| policy)
}

#[test]
fn an_extension_counts_from_its_start_and_keeps_the_token() {
    let mut play = extend(3, 500);
    play.env.now = Moment::from_millis(20);
    play.answer(0, "extend", kept());
    play.answer(1, "extend", kept());
    let lease = play.outcome().result.unwrap();
    assert_eq!(lease.until(), Moment::from_millis(988));
    assert_eq!(lease.fencing_token(), Some(FencingToken(77)));
}

#[test]
fn is_lost_when_another_may_hold_a_quorum() {
    let mut play = extend(3, 500);
    play.answer(0, "extend", absent());
    assert!(play.done.is_none());
    play.answer(1, "extend", theirs(frees_in(10)));
    let outcome = play.outcome();
    assert_eq!(outcome.result.unwrap_err(), ErrorKind::LeaseLost);
}

#[test]
fn a_lost_extension_makes_no_key() {
    let mut play = extend(3, 500);
    for node in 0..2 {
        play.answer(node, "extend", absent());
    }
    assert_eq!(play.count("restore"), 0);
}

#[test]
fn a_node_is_healed_only_after_a_quorum_proved_the_lease() {
    let mut play = extend(3, 500);
    play.answer(2, "extend", absent());
    assert_eq!(play.count("restore"), 0);
    play.answer(0, "extend", kept());
    play.answer(1, "extend", kept());
    assert_eq!(play.targets("restore"), [2]);
    assert_eq!(play.targets("raise"), [2]);
    assert_eq!(
        play.last(2, "restore").not_after,
        Moment::from_millis(50),
        "in the time of a node or never"
    );
}

#[test]
fn votes_that_came_together_count_together() {
    let mut play = extend(3, 500);
    for (node, answer) in [(0, kept()), (1, kept()), (2, absent())] {
        let reply = Reply { ticket: play.last(node, "extend").ticket, answer, repeated: false };
        play.machine.handle_reply(&mut play.env, NodeId(node), reply);
    }
    play.settle();
    assert_eq!(play.targets("restore"), [2], "healed at once");
    let LastRound::Counting(round) = play.outcome().last else { panic!("it still counts") };
    assert_eq!(round.report().tally().missing, 0);
}

#[test]
fn faults_are_tried_again_and_do_not_lose_the_lease() {
    let mut play = extend(3, 500);
    play.answer(0, "extend", kept());
    play.wait_until(50);
    assert!(play.done.is_none());
    play.wait_until(110);
    assert_eq!(play.count("extend"), 6);
    play.answer(0, "extend", kept());
    play.answer(2, "extend", kept());
    assert!(play.outcome().result.is_ok());
}

#[test]
fn silence_to_the_end_of_the_validity_is_a_loss() {
    let mut play = extend(3, 300);
    play.wait_until(300);
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::LeaseLost);
}

#[test]
fn silence_beyond_the_patience_is_unknown_and_no_loss() {
    let mut play = extend(3, 900);
    play.wait_until(500);
    let outcome = play.outcome();
    assert_eq!(outcome.result.unwrap_err(), ErrorKind::QuorumUnreachable);
    assert_eq!(outcome.until, Moment::from_millis(900));
}

#[test]
fn a_verdict_after_the_old_validity_is_a_loss() {
    let mut play = extend(3, 40);
    play.answer(0, "extend", kept());
    play.env.now = Moment::from_millis(40);
    play.answer(1, "extend", kept());
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::LeaseLost);
}

#[test]
fn never_starts_after_the_validity_has_ended() {
    let play = extend(3, 0);
    assert!(play.sent.is_empty());
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::LeaseLost);
}

#[test]
fn a_shorter_ttl_bounds_the_trust_from_the_moment_it_is_sent() {
    let play =
        extend_until(3, Moment::from_millis(900), |policy| policy.ttl(Duration::from_millis(200)));
    assert_eq!(play.machine.until(), Moment::from_millis(196));
}

#[test]
fn a_lease_taken_over_is_proved_by_the_nodes_alone() {
    let mut play = extend_until(3, Moment::FAR_FUTURE, |policy| policy);
    play.answer(0, "extend", kept());
    play.answer(1, "extend", kept());
    assert_eq!(play.outcome().result.unwrap().until(), Moment::from_millis(988));
}

#[test]
fn a_broken_node_among_a_bare_quorum_is_no_proof_of_loss() {
    // Nodes 3 and 4 never granted; node 2 is broken: two kept, two absent, one silent.
    let mut play = extend(5, 500);
    for (node, answer) in [(0, kept()), (1, kept()), (3, absent()), (4, absent())] {
        play.answer(node, "extend", answer);
    }
    play.answer(2, "extend", fault(FaultKind::Broken));
    assert!(play.done.is_none(), "unknown is not lost: it is tried again");
}

#[test]
fn keys_stay_as_long_as_any_round_may_have_asked_for() {
    let mut play =
        extend_until(3, Moment::from_millis(900), |policy| policy.ttl(Duration::from_millis(200)));
    play.machine = play.machine.outlasting(Moment::from_millis(1062));
    play.answer(0, "extend", kept());
    play.answer(1, "extend", kept());
    let lease = play.outcome().result.unwrap();
    // Node 2 may not have got the shorter ttl.
    assert_eq!(lease.keys_expire_by(), Moment::from_millis(1062));
}

#[test]
fn a_failed_extension_leaves_keys_that_last_longer() {
    let mut play = extend(3, 900);
    play.wait_until(500);
    assert!(play.machine.keys_expire_by() >= Moment::from_millis(1400));
    assert!(play.outcome().result.is_err());
}
