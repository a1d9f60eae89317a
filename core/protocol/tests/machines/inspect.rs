//! Tests what an inspection of a claim proves, and what it does not.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    Harness, absent, claim, fault, frees_in, ours, policy, quorum, resources, theirs,
};
use quorlock_protocol::{
    Action, Answer, Claim, FaultKind, FencingToken, HolderId, Inspect, Moment, Resources, Standing,
};

fn inspect(nodes: usize) -> Harness<Inspect> {
    let now = Moment::from_millis(0);
    Harness::start(Inspect::new(now, &claim("h"), policy(|policy| policy), quorum(nodes)))
}

fn left(millis: u64, token: u64) -> Result<Answer, quorlock_protocol::Fault> {
    Ok(Answer::Ours { token: Some(FencingToken(token)), remaining: left_of(millis) })
}

#[test]
fn a_lease_is_proved_for_as_long_as_its_weakest_node_keeps_it() {
    let mut harness = inspect(5);
    harness.answer(0, "inspect", left(900, 41));
    harness.answer(1, "inspect", left(500, 41));
    harness.answer(2, "inspect", left(700, 41));
    let inspection = harness.outcome();
    assert_eq!(inspection.until(), Some(Moment::from_millis(500 - 5 - 2)));
    let Standing::Held(lease) = inspection.standing else { panic!("held") };
    assert_eq!(lease.until(), Moment::from_millis(500 - 5 - 2));
    assert_eq!((lease.resources(), lease.holder()), (&resources(), &claim("h").holder));
    assert_eq!(lease.fencing_token(), None, "nobody has asked for it");
}

fn take_over(nodes: usize) -> Harness<Inspect> {
    let now = Moment::from_millis(0);
    let machine = Inspect::new(now, &claim("h"), policy(|policy| policy), quorum(nodes));
    Harness::start(machine.with_token())
}

fn token(harness: Harness<Inspect>) -> Option<u64> {
    let Standing::Held(lease) = harness.outcome().standing else { panic!("held") };
    lease.fencing_token().map(|FencingToken(token)| token)
}

#[test]
fn who_only_asks_raises_nothing() {
    let mut harness = inspect(3);
    harness.answer(0, "inspect", left(900, 40));
    harness.answer(1, "inspect", left(900, 41));
    assert_eq!((harness.count("raise"), token(harness)), (0, None));
}

#[test]
fn a_token_that_a_quorum_knows_costs_no_further_trip() {
    let mut harness = take_over(3);
    harness.answer(0, "inspect", left(900, 41));
    harness.answer(1, "inspect", left(900, 41));
    assert_eq!((harness.count("raise"), token(harness)), (0, Some(41)));
}

#[test]
fn the_highest_of_several_fences_is_written_back_for_all() {
    let resources = Resources::new(["r", "s"]).expect("two names");
    let holder = HolderId::adopt("h").expect("a valid id");
    let claim = Arc::new(Claim { resources, holder });
    let machine = Inspect::new(Moment::from_millis(0), &claim, policy(|it| it), quorum(3));
    let mut harness = Harness::start(machine.with_token());
    // It may be that of one of them alone.
    harness.answer(0, "inspect", left(900, 41));
    harness.answer(1, "inspect", left(900, 41));
    assert_eq!(harness.targets("raise"), [0, 1]);
    harness.answer(2, "inspect", left(900, 41));
    assert_eq!(harness.targets("raise"), [0, 1, 2]);
    harness.answer(2, "raise", ours(41));
    assert!(harness.done.is_none(), "one of three knows it");
    harness.answer(0, "raise", ours(41));
    assert_eq!(token(harness), Some(41));
}

#[test]
fn the_highest_token_is_written_back_before_it_is_handed_out() {
    let mut harness = take_over(5);
    harness.answer(0, "inspect", left(900, 40));
    harness.answer(1, "inspect", left(500, 41));
    harness.answer(2, "inspect", left(700, 39));
    assert_eq!(harness.targets("raise"), [0, 2]);
    let Action::RaiseFence { token: asked, .. } = harness.last(0, "raise").action else { panic!() };
    assert_eq!(asked, FencingToken(41));
    harness.answer(0, "raise", ours(41));
    assert!(harness.done.is_none(), "two of five know it");
    harness.answer(2, "raise", ours(41));
    assert_eq!(token(harness), Some(41));
}

#[test]
fn who_answers_late_joins_the_write_back() {
    let mut harness = take_over(5);
    harness.answer(0, "inspect", left(900, 41));
    harness.answer(1, "inspect", left(500, 40));
    harness.answer(2, "inspect", left(700, 39));
    harness.answer(3, "inspect", left(700, 38));
    assert_eq!(harness.targets("raise"), [1, 2, 3]);
    harness.answer(4, "inspect", left(700, 42));
    harness.answer(3, "raise", ours(41));
    assert_eq!(token(harness), Some(41));
}

#[test]
fn a_token_that_no_quorum_takes_is_not_handed_out() {
    for answer in [absent(), fault(FaultKind::Broken)] {
        let mut harness = take_over(3);
        harness.answer(0, "inspect", left(900, 41));
        harness.answer(1, "inspect", left(900, 40));
        harness.answer(1, "raise", answer);
        harness.wait_until(100);
        assert_eq!(token(harness), None, "and the lease is told as it stands");
    }
}

#[test]
fn keys_without_an_end_stand_for_the_ttl_at_least() {
    let mut harness = inspect(3);
    for node in 0..2 {
        harness.answer(node, "inspect", Ok(Answer::Ours { token: None, remaining: None }));
    }
    assert_eq!(harness.outcome().until(), Some(Moment::from_millis(988)));
}

#[test]
fn forgotten_fences_are_made_up_for_by_the_clocks_of_the_nodes() {
    for (clock, expected) in [(Some(5_000), Some(5_000)), (Some(30), Some(41)), (None, None)] {
        let now = Moment::from_millis(0);
        let machine = Inspect::new(now, &claim("h"), policy(|policy| policy), quorum(3));
        let mut harness = Harness::start(machine.with_token());
        harness.env.nodes = clock;
        harness.answer(0, "inspect", left(900, 41));
        harness.answer(1, "inspect", Ok(Answer::Ours { token: None, remaining: left_of(900) }));
        if clock.is_some() {
            for node in harness.targets("raise") {
                harness.answer(node, "raise", ours(expected.unwrap()));
            }
        }
        assert_eq!(token(harness), expected);
    }
}

const fn left_of(millis: u64) -> Option<Duration> {
    Some(Duration::from_millis(millis))
}

#[test]
fn too_many_lost_keys_prove_the_loss() {
    let mut harness = inspect(3);
    harness.answer(0, "inspect", absent());
    harness.answer(1, "inspect", theirs(frees_in(5)));
    harness.answer(2, "inspect", absent());
    let inspection = harness.outcome();
    assert_eq!((&inspection.standing, inspection.until()), (&Standing::NotHeld, None));
    assert!(!inspection.held_by_another);
    assert!(inspection.is_free);
}

#[test]
fn a_fault_does_not_end_the_round_before_the_others_could_tell() {
    let mut harness = inspect(3);
    harness.answer(0, "inspect", fault(FaultKind::NotSent));
    harness.answer(1, "inspect", absent());
    harness.answer(2, "inspect", absent());
    let inspection = harness.outcome();
    assert_eq!(inspection.standing, Standing::NotHeld);
    assert!(inspection.is_free);
}

#[test]
fn a_node_that_forgot_does_not_end_the_round_early() {
    let mut harness = inspect(3);
    harness.answer(0, "inspect", absent());
    harness.answer(1, "inspect", theirs(frees_in(5)));
    harness.answer(2, "inspect", theirs(frees_in(5)));
    let inspection = harness.outcome();
    assert!(inspection.held_by_another);
    assert!(!inspection.is_free);
}

#[test]
fn neither_free_nor_held_is_told_where_a_fault_hides_it() {
    let mut harness = inspect(3);
    harness.answer(0, "inspect", absent());
    harness.answer(1, "inspect", theirs(frees_in(5)));
    harness.answer(2, "inspect", fault(FaultKind::Broken));
    let inspection = harness.outcome();
    assert!(!inspection.held_by_another);
    assert!(!inspection.is_free);
}

#[test]
fn silence_proves_nothing() {
    let mut harness = inspect(3);
    harness.answer(0, "inspect", left(900, 40));
    harness.answer(1, "inspect", fault(FaultKind::NotSent));
    harness.wait_until(50);
    assert_eq!(harness.outcome().standing, Standing::Unknown);
}

#[test]
fn tells_that_another_holds_a_quorum() {
    let mut harness = inspect(3);
    harness.answer(0, "inspect", theirs(frees_in(5)));
    harness.answer(1, "inspect", theirs(frees_in(5)));
    assert!(harness.outcome().held_by_another);
}
