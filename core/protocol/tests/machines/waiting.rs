//! Tests the wait in the nodes' queues: what is asked of them, and when a round begins.

use std::time::Duration;

use crate::support::{Harness, fault, frees_in, ours, policy, quorum, resources, theirs};
use quorlock_protocol::{
    Acquire, Action, Answer, ErrorKind, Fault, FaultKind, FencingToken, Frees, Machine, Moment,
    News, NodeId, PolicyBuilder, Queued, Reply, Waiter, WakeCause,
};

pub(crate) fn waiting(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Harness<Acquire> {
    let (now, known) = (Moment::from_millis(0), FencingToken::default());
    let policy = policy(|policy| change(policy.ttl(Duration::from_secs(10))));
    let machine = Acquire::new(now, resources(), policy, quorum(3), known);
    Harness::start(machine.queued_as(Waiter { process: 7, number: 1 }))
}

/// All three nodes have refused the first round.
pub(crate) fn refused(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Harness<Acquire> {
    let mut harness = waiting(change);
    for node in 0..3 {
        harness.answer(node, "grant", theirs(frees_in(8_000)));
        if harness.machine.is_waiting() {
            break;
        }
    }
    harness
}

pub(crate) fn held(rank: u32, millis: u64) -> Result<Answer, Fault> {
    let queued = Queued { rank: Some(rank), is_free: false, is_told: true };
    Ok(Answer::Queued { queued, frees: Frees::In(Duration::from_millis(millis)) })
}

pub(crate) fn free(rank: u32) -> Result<Answer, Fault> {
    let queued = Queued { rank: Some(rank), is_free: true, is_told: true };
    Ok(Answer::Queued { queued, frees: Frees::In(Duration::ZERO) })
}

fn held_without_end() -> Result<Answer, Fault> {
    let queued = Queued { rank: Some(0), is_free: false, is_told: true };
    Ok(Answer::Queued { queued, frees: Frees::Never })
}

fn tell(harness: &mut Harness<Acquire>, node: u8, news: News) {
    harness.machine.handle_news(&mut harness.env, NodeId(node), news);
    harness.settle();
}

/// All nodes have answered the look.
pub(crate) fn looked(harness: &mut Harness<Acquire>, answer: &Result<Answer, Fault>) {
    for node in 0..3 {
        harness.answer(node, "enqueue", answer.clone());
    }
}

const PUSHED: News = News::Freed(WakeCause::Push);

#[test]
fn a_free_lock_takes_no_place() {
    let mut harness = waiting(|policy| policy);
    for node in 0..2 {
        harness.answer(node, "grant", ours(1_000));
    }
    assert_eq!((harness.count("enqueue"), harness.count("leave")), (0, 0));
    assert!(!harness.outcome().result.unwrap().was_queued);
}

#[test]
fn a_refused_caller_takes_a_place_and_tries_when_a_quorum_is_free() {
    let mut harness = refused(|policy| policy);
    assert_eq!(harness.targets("enqueue"), [0, 1, 2]);
    looked(&mut harness, &held(0, 8_000));
    harness.wait_until(2_900);
    assert_eq!(harness.count("grant"), 3, "nothing is tried while it is held");
    tell(&mut harness, 0, PUSHED);
    assert_eq!(harness.count("grant"), 3, "one node is no quorum");
    tell(&mut harness, 2, PUSHED);
    assert_eq!(harness.count("grant"), 6);
    for node in 0..2 {
        harness.answer(node, "grant", ours(1_000));
    }
    assert_eq!(harness.targets("leave"), [0, 1, 2]);
    assert!(harness.outcome().result.unwrap().was_queued);
}

#[test]
fn the_place_is_the_same_on_every_node_and_at_every_look() {
    let mut harness = refused(|policy| policy);
    looked(&mut harness, &held(3, 8_000));
    harness.wait_until(3_000);
    let places: Vec<_> = harness
        .sent
        .iter()
        .filter_map(|(_, command)| match command.action {
            Action::Enqueue { place } => Some(place),
            _ => None,
        })
        .collect();
    assert_eq!(places.len(), 6, "it is kept every three seconds");
    assert!(places.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn a_fair_caller_keeps_its_place_from_wait_to_wait() {
    let mut harness = waiting(|policy| policy.fair(true));
    looked(&mut harness, &held(1, 8_000));
    for start in [500, 1_000] {
        harness.wait_until(start);
        harness.env.wall += 500_000;
        for node in 0..2 {
            tell(&mut harness, node, PUSHED);
        }
        for node in 0..2 {
            harness.answer(node, "grant", theirs(frees_in(8_000)));
        }
        assert!(harness.machine.is_waiting());
        looked(&mut harness, &held(1, 8_000));
    }
    let mut places: Vec<_> = harness
        .sent
        .iter()
        .filter_map(|(_, command)| match command.action {
            Action::Enqueue { place } | Action::Grant { place: Some(place), .. } => Some(place),
            _ => None,
        })
        .collect();
    assert_eq!(places.len(), 15, "three looks and two rounds");
    places.dedup();
    assert_eq!(places.len(), 1, "those that came meanwhile stay behind it");
}

#[test]
fn news_that_overtakes_the_answer_to_a_look_counts() {
    let mut harness = refused(|policy| policy);
    tell(&mut harness, 0, PUSHED);
    harness.answer(0, "enqueue", held(0, 8_000));
    tell(&mut harness, 1, PUSHED);
    assert_eq!(harness.count("grant"), 6);
}

#[test]
fn a_look_that_finds_the_lock_free_leads_to_a_round_only_for_the_first() {
    let mut harness = refused(|policy| policy);
    looked(&mut harness, &free(1));
    assert_eq!(harness.count("grant"), 3, "another's turn");
    let mut harness = refused(|policy| policy);
    looked(&mut harness, &free(0));
    assert_eq!(harness.count("grant"), 6);
}

#[test]
fn the_first_looks_when_the_holders_keys_have_ended_and_the_others_later() {
    let looks_at = |rank| {
        let mut harness = refused(|policy| policy);
        looked(&mut harness, &held(rank, 1_000));
        harness.wait_until(990);
        assert_eq!(harness.count("enqueue"), 3);
        let mut at = 1_000;
        while harness.count("enqueue") == 3 {
            at += 1;
            harness.wait_until(at);
        }
        at
    };
    assert_eq!([0, 1, 3].map(looks_at), [1_002, 1_052, 1_152]);
}

#[test]
fn the_next_one_looks_when_the_turn_before_it_is_over() {
    let mut harness = refused(|policy| policy);
    looked(&mut harness, &held(1, 8_000));
    tell(&mut harness, 0, News::Next);
    harness.wait_until(51);
    assert_eq!(harness.count("enqueue"), 3);
    harness.wait_until(52);
    assert_eq!(harness.count("enqueue"), 6);
}

#[test]
fn a_node_that_was_lost_is_asked_for_the_place_again() {
    for news in [News::Gone, News::First] {
        let mut harness = refused(|policy| policy);
        looked(&mut harness, &held(1, 8_000));
        tell(&mut harness, 1, news);
        assert_eq!(harness.targets("enqueue"), [0, 1, 2, 1]);
    }
}

/// A caller that waits for a key without a ttl, as redis-py's locks have by default.
fn behind_an_endless_key(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Harness<Acquire> {
    let mut harness = waiting(change);
    for node in 0..2 {
        harness.answer(node, "grant", theirs(Frees::Never));
    }
    looked(&mut harness, &held_without_end());
    harness
}

#[test]
fn a_key_that_never_ends_is_waited_for_without_polling() {
    let mut harness = behind_an_endless_key(|policy| policy.timeout(Some(Duration::from_secs(60))));
    harness.wait_until(2_900);
    assert_eq!(harness.count("grant"), 3);
    for node in 0..2 {
        tell(&mut harness, node, News::Freed(WakeCause::Watch));
    }
    assert_eq!(harness.count("grant"), 6);
}

#[test]
fn a_wait_without_a_limit_for_a_key_that_never_ends_is_given_up() {
    let patience = Duration::from_millis(700);
    let mut harness = behind_an_endless_key(|policy| policy.unreachable_timeout(patience));
    harness.wait_until(699);
    assert_eq!((harness.count("grant"), harness.done.is_none()), (3, true));
    harness.wait_until(700);
    for node in 0..2 {
        harness.answer(node, "grant", theirs(Frees::Never));
    }
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::NotAcquired);
}

#[test]
fn a_renewal_moves_the_look_and_costs_no_command() {
    let mut harness = refused(|policy| policy);
    looked(&mut harness, &held(0, 1_000));
    harness.wait_until(500);
    for node in 0..3 {
        tell(&mut harness, node, News::Held(Duration::from_millis(1_500)));
    }
    harness.wait_until(2_000);
    assert_eq!(harness.count("enqueue"), 3);
    harness.wait_until(2_002);
    assert_eq!(harness.count("enqueue"), 6);
}

#[test]
fn where_too_few_nodes_can_tell_rounds_follow_after_the_delay() {
    let mut harness = refused(|policy| policy);
    harness.answer(0, "enqueue", held(0, 8_000));
    for node in 1..3 {
        harness.answer(node, "enqueue", fault(FaultKind::NotPermitted));
    }
    harness.wait_until(45);
    assert_eq!(harness.count("grant"), 3);
    harness.wait_until(160);
    assert_eq!(harness.count("grant"), 6);
}

#[test]
fn where_no_node_can_tell_any_more_a_round_comes_at_the_known_end_of_the_keys() {
    let slow = |policy: PolicyBuilder| policy.retry_delay(Duration::from_secs(5));
    let lost = fault(FaultKind::NotSent);
    let mut first_look = waiting(slow);
    for node in 0..2 {
        first_look.answer(node, "grant", theirs(frees_in(700)));
    }
    looked(&mut first_look, &lost);
    let mut later_look = refused(slow);
    looked(&mut later_look, &held(0, 3_700));
    later_look.wait_until(3_000);
    looked(&mut later_look, &lost);
    for (mut harness, end) in [(first_look, 700), (later_look, 3_700)] {
        harness.wait_until(end);
        assert_eq!(harness.count("grant"), 3);
        harness.wait_until(end + 2);
        assert_eq!(harness.count("grant"), 6);
    }
}

#[test]
fn a_round_comes_at_the_known_end_of_the_keys_where_too_few_nodes_tell_it() {
    let mut harness = waiting(|policy| policy);
    for node in 0..2 {
        harness.answer(node, "grant", theirs(frees_in(700)));
    }
    harness.answer(0, "enqueue", held(0, 700));
    harness.answer(1, "enqueue", held_without_end());
    harness.answer(2, "enqueue", fault(FaultKind::NotSent));
    harness.wait_until(701);
    assert_eq!(harness.count("grant"), 3);
    harness.wait_until(702);
    assert_eq!(harness.count("grant"), 6);
}

#[test]
fn nodes_that_leave_a_look_unanswered_are_not_relied_on() {
    let mut harness = refused(|policy| policy);
    looked(&mut harness, &held(1, 8_000));
    harness.wait_until(3_000);
    assert_eq!((harness.count("enqueue"), harness.count("grant")), (6, 3));
    harness.answer(0, "enqueue", held(1, 5_000));
    harness.wait_until(3_190);
    assert_eq!(
        harness.count("grant"),
        6,
        "two of three are silent: it tries as if there were no queue"
    );
}

#[test]
fn a_round_that_split_the_votes_is_followed_by_a_pause_whatever_is_told() {
    let mut harness = waiting(|policy| policy);
    harness.answer(0, "grant", ours(1_000));
    harness.answer(1, "grant", theirs(frees_in(8_000)));
    harness.answer(2, "grant", theirs(frees_in(8_000)));
    assert_eq!(harness.count("enqueue"), 3);
    let before = harness.env.now;
    for node in 0..3 {
        tell(&mut harness, node, PUSHED);
    }
    assert_eq!(harness.count("grant"), 3, "its own withdrawal may have called it");
    let pause = harness.wake_at.expect("it waits").since(before);
    assert!(pause > Duration::ZERO && pause <= Duration::from_millis(10), "{pause:?}");
    harness.wake();
    assert_eq!(harness.count("grant"), 6);
    assert!(harness.sent.iter().any(|(_, it)| it.action == Action::REVOKE));
}

#[test]
fn a_lost_round_calls_the_first_where_others_wait_beside() {
    let mut harness = refused(|policy| policy);
    looked(&mut harness, &held(1, 8_000));
    for node in 0..2 {
        tell(&mut harness, node, PUSHED);
    }
    let before = harness.sent.len();
    harness.answer(0, "grant", ours(1_000));
    harness.answer(1, "grant", theirs(frees_in(8_000)));
    harness.answer(2, "grant", theirs(frees_in(8_000)));
    let revokes: Vec<_> = harness.sent[before..]
        .iter()
        .filter(|(_, it)| matches!(it.action, Action::Revoke { .. }))
        .map(|(_, it)| it.action)
        .collect();
    assert!(!revokes.is_empty());
    assert!(
        revokes.iter().all(|it| *it == Action::Revoke { calls: true, max_remaining: None }),
        "{revokes:?}"
    );
}

#[test]
fn no_look_is_made_while_no_round_may_begin() {
    let mut harness = waiting(|policy| policy);
    harness.env.drawn = 200;
    harness.answer(0, "grant", ours(1_000));
    harness.answer(1, "grant", theirs(frees_in(8_000)));
    harness.answer(2, "grant", theirs(frees_in(8_000)));
    looked(&mut harness, &free(0));
    while harness.count("grant") == 3 {
        harness.wake();
    }
    assert_eq!(harness.count("enqueue"), 3, "all nodes have told already that the lock is free");
}

#[test]
fn a_late_answer_to_the_look_of_an_earlier_wait_says_nothing() {
    let mut harness = refused(|policy| policy);
    let ticket = harness.last(0, "enqueue").ticket;
    for node in 0..2 {
        tell(&mut harness, node, PUSHED);
    }
    for node in 0..2 {
        harness.answer(node, "grant", theirs(frees_in(8_000)));
    }
    assert_eq!((harness.count("enqueue"), harness.count("grant")), (6, 6), "it waits again");
    for node in 0..2 {
        harness.reply(node, Reply { ticket, answer: free(0), repeated: false });
    }
    assert_eq!(harness.count("grant"), 6, "the lock was free before another took it");
}

#[test]
fn news_that_comes_with_the_last_answer_to_a_look_is_followed_up() {
    for news in [News::Gone, News::First] {
        let mut harness = refused(|policy| policy);
        looked(&mut harness, &held(1, 8_000));
        harness.env.now = Moment::from_millis(1);
        tell(&mut harness, 0, news);
        assert_eq!(harness.count("enqueue"), 4);
        assert!(harness.last(0, "enqueue").not_after > harness.env.now, "it may still be sent");
        harness.wait_until(2_900);
        assert_eq!(harness.count("grant"), 3, "the nodes still tell");
    }
}
