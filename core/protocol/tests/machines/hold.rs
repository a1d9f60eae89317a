//! Tests the promises of holding a lease: renewal in time, and a loss that the clock reports.

use std::time::Duration;

use crate::support::{
    Harness, Working, absent, frees_in, kept, ours, policy, quorum, resources, theirs,
};
use quorlock_protocol::{
    Acquire, FencingToken, Hold, HoldEnd, Lease, LeaseLife, LossReason, Moment, PolicyBuilder,
    Reply, Vote,
};

/// A lease won at time zero on three nodes: ttl 1000 ms, valid until 988 ms.
fn lease() -> Lease {
    let policy = policy(|policy| policy);
    let now = Moment::from_millis(0);
    let acquire = Acquire::new(now, resources(), policy, quorum(3), FencingToken::default());
    let mut harness = Harness::start(acquire);
    harness.answer(0, "grant", ours(1000));
    harness.answer(1, "grant", ours(1000));
    harness.outcome().result.unwrap().lease
}

fn hold(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Harness<Hold> {
    let now = Moment::from_millis(0);
    let policy = policy(|base| change(base.auto_extend(true)));
    Harness::start(Hold::new(now, lease(), policy, now, quorum(3)))
}

fn renew(harness: &mut Harness<Hold>) {
    for node in 0..3 {
        harness.answer(node, "extend", kept());
    }
}

fn loss(harness: Harness<Hold>) -> LossReason {
    match harness.outcome() {
        HoldEnd::Lost(reason) => reason,
        HoldEnd::Stopped => panic!("it was not lost but stopped"),
    }
}

#[test]
fn renews_when_a_third_of_the_validity_is_used() {
    let mut harness = hold(|policy| policy);
    harness.wait_until(290);
    assert_eq!(harness.count("extend"), 0);
    harness.wait_until(330);
    assert_eq!(harness.count("extend"), 3);
    renew(&mut harness);
    assert!(harness.machine.lease().until() >= Moment::from_millis(988 + 290));
}

#[test]
fn goes_on_renewing_for_as_long_as_it_is_answered() {
    let mut harness = hold(|policy| policy);
    for _ in 0..20 {
        harness.wake();
        renew(&mut harness);
    }
    assert!(harness.done.is_none());
    let renewals = harness.count("extend") / 3;
    assert!((15..=20).contains(&renewals), "{renewals} renewals");
}

#[test]
fn leases_of_one_ttl_fall_due_together() {
    let due = |start| {
        let now = Moment::from_millis(start);
        let policy = policy(|policy| policy.auto_extend(true));
        Harness::start(Hold::new(now, lease(), policy, now, quorum(3))).wake_at
    };
    assert_eq!(due(0), due(5));
}

#[test]
fn one_failed_renewal_does_not_end_renewal() {
    let mut harness = hold(|policy| policy);
    while harness.count("extend") < 6 {
        harness.wake();
    }
    renew(&mut harness);
    harness.wait_until(1200);
    assert!(harness.done.is_none());
}

#[test]
fn warns_before_the_end() {
    let mut harness = hold(|policy| policy);
    harness.wait_until(600);
    assert!(!harness.machine.is_at_risk(harness.env.now));
    harness.wait_until(700);
    assert!(harness.machine.is_at_risk(harness.env.now));
}

#[test]
fn tells_the_loss_at_the_end_though_no_node_answers() {
    let mut harness = hold(|policy| policy);
    harness.wait_until(987);
    assert!(harness.done.is_none());
    harness.wait_until(988);
    assert_eq!(loss(harness), LossReason::Expired);
}

#[test]
fn tells_the_loss_early_when_the_nodes_prove_it() {
    let mut harness = hold(|policy| policy);
    harness.wait_until(330);
    harness.answer(0, "extend", theirs(frees_in(100)));
    harness.answer(1, "extend", absent());
    assert_eq!(loss(harness), LossReason::Gone);
}

#[test]
fn a_reply_that_arrives_after_the_end_is_too_late() {
    let mut harness = hold(|policy| policy);
    harness.wait_until(330);
    harness.answer(0, "extend", kept());
    // The process slept: the timer that should have fired at the end has not.
    harness.env.now = Moment::from_millis(5000);
    harness.answer(1, "extend", kept());
    assert_eq!(loss(harness), LossReason::Expired);
}

#[test]
fn stops_renewing_at_max_hold() {
    let mut harness = hold(|policy| policy.max_hold(Duration::from_millis(700)));
    while harness.done.is_none() {
        harness.wake();
        if harness.done.is_none() {
            renew(&mut harness);
        }
    }
    assert_eq!(harness.count("extend") / 3, 2);
    assert_eq!(loss(harness), LossReason::HeldTooLong);
}

#[test]
fn without_renewal_it_only_watches_the_clock() {
    let mut harness = hold(|policy| policy.auto_extend(false));
    harness.wait_until(987);
    assert!(harness.sent.is_empty() && harness.done.is_none());
    harness.wait_until(988);
    assert_eq!(loss(harness), LossReason::Expired);
}

#[test]
fn a_node_that_lost_the_key_and_answers_late_is_healed_too() {
    let mut harness = hold(|policy| policy);
    harness.wait_until(330);
    let ticket = harness.last(2, "extend").ticket;
    harness.answer(0, "extend", kept());
    harness.answer(1, "extend", kept());
    assert_eq!(harness.count("restore"), 0);
    harness.reply(2, Reply { ticket, answer: absent(), repeated: false });
    assert_eq!(harness.targets("restore"), [2]);
}

#[test]
fn stopping_sends_nothing_more() {
    let mut harness = hold(|policy| policy);
    harness.wait_until(330);
    harness.cancel();
    assert_eq!(harness.count("extend"), 3);
    assert_eq!(harness.outcome(), HoldEnd::Stopped);
}

#[test]
fn keys_of_an_unanswered_renewal_are_withdrawn_to_their_end() {
    let renewed = policy(|policy| policy.auto_extend(true));
    let now = Moment::from_millis(0);
    let life = LeaseLife::won(now, (lease(), false), renewed, quorum(3));
    let mut harness = Working::renewing(life, now);
    harness.wait_until(988);
    let loss = harness.machine.life.take_loss().expect("lost");
    let withdraw = loss.withdraw.expect("its keys are taken back");
    // The last renewal went out shortly before the end and may have been done.
    let mut harness = Harness::start(withdraw);
    harness.env.now = Moment::from_millis(988);
    harness.wait_until(1700);
    assert!(harness.done.is_none(), "the nodes may still have the keys");
    harness.wait_until(2100);
    assert!(harness.done.is_some());
}

#[test]
fn the_last_round_is_told_with_its_late_votes() {
    let votes = |harness: &Harness<Hold>| {
        let round = harness.machine.last_round()?;
        Some(round.votes.iter().map(|vote| vote.vote).collect::<Vec<_>>())
    };
    let mut harness = hold(|policy| policy);
    assert_eq!(votes(&harness), None, "no renewal yet");
    harness.wait_until(330);
    let ticket = harness.last(2, "extend").ticket;
    harness.answer(0, "extend", kept());
    assert_eq!(votes(&harness), None, "it is not over");
    harness.answer(1, "extend", kept());
    assert_eq!(votes(&harness), Some(vec![Vote::Granted, Vote::Granted, Vote::Missing]));
    harness.reply(2, Reply { ticket, answer: absent(), repeated: false });
    assert_eq!(votes(&harness), Some(vec![Vote::Granted, Vote::Granted, Vote::Refused]));
    while harness.count("extend") < 6 {
        harness.wake();
    }
    assert_eq!(votes(&harness), None, "the next one has begun");
    harness.answer(0, "extend", kept());
    harness.wake();
    assert_eq!(votes(&harness), Some(vec![Vote::Granted, Vote::Failed, Vote::Failed]));
}

#[test]
fn the_round_that_proves_the_loss_is_told() {
    let mut harness = hold(|policy| policy);
    harness.wait_until(330);
    harness.answer(0, "extend", theirs(frees_in(100)));
    harness.answer(1, "extend", absent());
    assert_eq!(harness.machine.last_round().expect("it is over").tally().refused, 2);
    assert_eq!(loss(harness), LossReason::Gone);
}
