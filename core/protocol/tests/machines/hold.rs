//! Tests the promises of holding a lease: renewal in time, and a loss that the clock reports.

use std::time::Duration;

use crate::support::{
    Play, Working, absent, frees_in, kept, ours, policy, quorum, resources, theirs,
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
    let mut play = Play::start(acquire);
    play.answer(0, "grant", ours(1000));
    play.answer(1, "grant", ours(1000));
    play.outcome().result.unwrap().lease
}

fn hold(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Play<Hold> {
    let now = Moment::from_millis(0);
    let policy = policy(|base| change(base.auto_extend(true)));
    Play::start(Hold::new(now, lease(), policy, now, quorum(3)))
}

fn renew(play: &mut Play<Hold>) {
    for node in 0..3 {
        play.answer(node, "extend", kept());
    }
}

fn loss(play: Play<Hold>) -> LossReason {
    match play.outcome() {
        HoldEnd::Lost(reason) => reason,
        HoldEnd::Stopped => panic!("it was not lost but stopped"),
    }
}

#[test]
fn renews_when_a_third_of_the_validity_is_used() {
    let mut play = hold(|policy| policy);
    play.wait_until(290);
    assert_eq!(play.count("extend"), 0);
    play.wait_until(330);
    assert_eq!(play.count("extend"), 3);
    renew(&mut play);
    assert!(play.machine.lease().until() >= Moment::from_millis(988 + 290));
}

#[test]
fn goes_on_renewing_for_as_long_as_it_is_answered() {
    let mut play = hold(|policy| policy);
    for _ in 0..20 {
        play.wake();
        renew(&mut play);
    }
    assert!(play.done.is_none());
    let renewals = play.count("extend") / 3;
    assert!((15..=20).contains(&renewals), "{renewals} renewals");
}

#[test]
fn leases_of_one_ttl_fall_due_together() {
    let due = |start| {
        let now = Moment::from_millis(start);
        let policy = policy(|policy| policy.auto_extend(true));
        Play::start(Hold::new(now, lease(), policy, now, quorum(3))).wake_at
    };
    assert_eq!(due(0), due(5));
}

#[test]
fn one_failed_renewal_does_not_end_renewal() {
    let mut play = hold(|policy| policy);
    while play.count("extend") < 6 {
        play.wake();
    }
    renew(&mut play);
    play.wait_until(1200);
    assert!(play.done.is_none());
}

#[test]
fn warns_before_the_end() {
    let mut play = hold(|policy| policy);
    play.wait_until(600);
    assert!(!play.machine.is_at_risk(play.env.now));
    play.wait_until(700);
    assert!(play.machine.is_at_risk(play.env.now));
}

#[test]
fn tells_the_loss_at_the_end_though_no_node_answers() {
    let mut play = hold(|policy| policy);
    play.wait_until(987);
    assert!(play.done.is_none());
    play.wait_until(988);
    assert_eq!(loss(play), LossReason::Expired);
}

#[test]
fn tells_the_loss_early_when_the_nodes_prove_it() {
    let mut play = hold(|policy| policy);
    play.wait_until(330);
    play.answer(0, "extend", theirs(frees_in(100)));
    play.answer(1, "extend", absent());
    assert_eq!(loss(play), LossReason::Gone);
}

#[test]
fn a_reply_that_arrives_after_the_end_is_too_late() {
    let mut play = hold(|policy| policy);
    play.wait_until(330);
    play.answer(0, "extend", kept());
    // The process slept: the timer that should have fired at the end has not.
    play.env.now = Moment::from_millis(5000);
    play.answer(1, "extend", kept());
    assert_eq!(loss(play), LossReason::Expired);
}

#[test]
fn stops_renewing_at_max_hold() {
    let mut play = hold(|policy| policy.max_hold(Duration::from_millis(700)));
    while play.done.is_none() {
        play.wake();
        if play.done.is_none() {
            renew(&mut play);
        }
    }
    assert_eq!(play.count("extend") / 3, 2);
    assert_eq!(loss(play), LossReason::HeldTooLong);
}

#[test]
fn without_renewal_it_only_watches_the_clock() {
    let mut play = hold(|policy| policy.auto_extend(false));
    play.wait_until(987);
    assert!(play.sent.is_empty() && play.done.is_none());
    play.wait_until(988);
    assert_eq!(loss(play), LossReason::Expired);
}

#[test]
fn a_node_that_lost_the_key_and_answers_late_is_healed_too() {
    let mut play = hold(|policy| policy);
    play.wait_until(330);
    let ticket = play.last(2, "extend").ticket;
    play.answer(0, "extend", kept());
    play.answer(1, "extend", kept());
    assert_eq!(play.count("restore"), 0);
    play.reply(2, Reply { ticket, answer: absent(), repeated: false });
    assert_eq!(play.targets("restore"), [2]);
}

#[test]
fn stopping_sends_nothing_more() {
    let mut play = hold(|policy| policy);
    play.wait_until(330);
    play.cancel();
    assert_eq!(play.count("extend"), 3);
    assert_eq!(play.outcome(), HoldEnd::Stopped);
}

#[test]
fn keys_of_an_unanswered_renewal_are_withdrawn_to_their_end() {
    let renewed = policy(|policy| policy.auto_extend(true));
    let now = Moment::from_millis(0);
    let life = LeaseLife::won(now, (lease(), false), renewed, quorum(3));
    let mut play = Working::renewing(life, now);
    play.wait_until(988);
    let loss = play.machine.life.take_loss().expect("lost");
    let withdraw = loss.withdraw.expect("its keys are taken back");
    // The last renewal went out shortly before the end and may have been done.
    let mut play = Play::start(withdraw);
    play.env.now = Moment::from_millis(988);
    play.wait_until(1700);
    assert!(play.done.is_none(), "the nodes may still have the keys");
    play.wait_until(2100);
    assert!(play.done.is_some());
}

#[test]
fn the_last_round_is_told_with_its_late_votes() {
    let votes = |play: &Play<Hold>| {
        let round = play.machine.last_round()?;
        Some(round.votes.iter().map(|vote| vote.vote).collect::<Vec<_>>())
    };
    let mut play = hold(|policy| policy);
    assert_eq!(votes(&play), None, "no renewal yet");
    play.wait_until(330);
    let ticket = play.last(2, "extend").ticket;
    play.answer(0, "extend", kept());
    assert_eq!(votes(&play), None, "it is not over");
    play.answer(1, "extend", kept());
    assert_eq!(votes(&play), Some(vec![Vote::Granted, Vote::Granted, Vote::Missing]));
    play.reply(2, Reply { ticket, answer: absent(), repeated: false });
    assert_eq!(votes(&play), Some(vec![Vote::Granted, Vote::Granted, Vote::Refused]));
    while play.count("extend") < 6 {
        play.wake();
    }
    assert_eq!(votes(&play), None, "the next one has begun");
    play.answer(0, "extend", kept());
    play.wake();
    assert_eq!(votes(&play), Some(vec![Vote::Granted, Vote::Failed, Vote::Failed]));
}

#[test]
fn the_round_that_proves_the_loss_is_told() {
    let mut play = hold(|policy| policy);
    play.wait_until(330);
    play.answer(0, "extend", theirs(frees_in(100)));
    play.answer(1, "extend", absent());
    assert_eq!(play.machine.last_round().expect("it is over").tally().refused, 2);
    assert_eq!(loss(play), LossReason::Gone);
}
