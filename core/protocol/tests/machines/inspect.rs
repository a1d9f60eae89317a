//! What looking at a claim proves, and what it does not.

use std::time::Duration;

use crate::support::{Play, absent, claim, fault, frees_in, policy, quorum, resources, theirs};
use quorlock_protocol::{Answer, FaultKind, FencingToken, Inspect, Moment, Standing};

fn inspect(nodes: usize) -> Play<Inspect> {
    let now = Moment::from_millis(0);
    Play::start(Inspect::new(now, &claim("h"), policy(|policy| policy), quorum(nodes)))
}

fn left(millis: u64, token: u64) -> Result<Answer, quorlock_protocol::Fault> {
    let remaining = Some(Duration::from_millis(millis));
    Ok(Answer::Ours { token: Some(FencingToken(token)), remaining })
}

#[test]
fn a_quorum_proves_the_lease_for_as_long_as_its_weakest_member_keeps_it() {
    let mut play = inspect(5);
    play.answer(0, "inspect", left(900, 41));
    play.answer(1, "inspect", left(500, 41));
    play.answer(2, "inspect", left(700, 41));
    let inspection = play.outcome();
    assert_eq!(inspection.until(), Some(Moment::from_millis(500 - 5 - 2)));
    let Standing::Held(lease) = inspection.standing else { panic!("held") };
    assert_eq!(lease.until(), Moment::from_millis(500 - 5 - 2));
    assert_eq!((lease.resources(), lease.holder()), (&resources(), &claim("h").holder));
    assert_eq!(lease.fencing_token(), Some(FencingToken(41)));
}

#[test]
fn a_late_grant_with_a_lower_token_is_looked_past() {
    let mut play = inspect(5);
    play.answer(0, "inspect", left(900, 40));
    play.answer(1, "inspect", left(500, 41));
    play.answer(2, "inspect", left(700, 41));
    assert!(play.done.is_none(), "another may know the token too");
    play.answer(3, "inspect", left(700, 41));
    let Standing::Held(lease) = play.outcome().standing else { panic!("held") };
    assert_eq!(lease.fencing_token(), Some(FencingToken(41)));
}

#[test]
fn a_fence_that_a_lost_round_of_another_has_raised_is_not_this_claims_token() {
    let mut play = inspect(3);
    // Node 2 granted another's round 90 before it was taken back, and was healed for this claim.
    play.answer(2, "inspect", left(900, 90));
    play.answer(0, "inspect", left(900, 41));
    play.wait_until(50);
    let Standing::Held(lease) = play.outcome().standing else { panic!("held") };
    assert_eq!(lease.fencing_token(), Some(FencingToken(41)));
}

#[test]
fn too_many_lost_keys_prove_the_loss() {
    let mut play = inspect(3);
    play.answer(0, "inspect", absent());
    play.answer(1, "inspect", theirs(frees_in(5)));
    play.answer(2, "inspect", absent());
    let inspection = play.outcome();
    assert_eq!((&inspection.standing, inspection.until()), (&Standing::NotHeld, None));
    assert!(!inspection.held_by_another);
    assert!(inspection.is_free);
}

#[test]
fn a_fault_does_not_end_the_round_before_the_others_could_tell() {
    let mut play = inspect(3);
    play.answer(0, "inspect", fault(FaultKind::NotSent));
    play.answer(1, "inspect", absent());
    play.answer(2, "inspect", absent());
    let inspection = play.outcome();
    assert_eq!(inspection.standing, Standing::NotHeld);
    assert!(inspection.is_free);
}

#[test]
fn a_node_that_forgot_the_key_does_not_end_the_round_before_the_others_could_tell() {
    let mut play = inspect(3);
    play.answer(0, "inspect", absent());
    play.answer(1, "inspect", theirs(frees_in(5)));
    play.answer(2, "inspect", theirs(frees_in(5)));
    let inspection = play.outcome();
    assert!(inspection.held_by_another);
    assert!(!inspection.is_free);
}

#[test]
fn neither_free_nor_held_is_told_where_a_fault_hides_it() {
    let mut play = inspect(3);
    play.answer(0, "inspect", absent());
    play.answer(1, "inspect", theirs(frees_in(5)));
    play.answer(2, "inspect", fault(FaultKind::Broken));
    let inspection = play.outcome();
    assert!(!inspection.held_by_another);
    assert!(!inspection.is_free);
}

#[test]
fn silence_proves_nothing() {
    let mut play = inspect(3);
    play.answer(0, "inspect", left(900, 40));
    play.answer(1, "inspect", fault(FaultKind::NotSent));
    play.wait_until(50);
    assert_eq!(play.outcome().standing, Standing::Unknown);
}

#[test]
fn tells_that_another_holds_a_quorum() {
    let mut play = inspect(3);
    play.answer(0, "inspect", theirs(frees_in(5)));
    play.answer(1, "inspect", theirs(frees_in(5)));
    assert!(play.outcome().held_by_another);
}
