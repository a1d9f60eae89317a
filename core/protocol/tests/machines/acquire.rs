//! Tests the promises of the acquire machine, one schedule in each test.

use std::time::Duration;

use crate::support::{Harness, absent, fault, frees_in, ours, policy, quorum, resources, theirs};
use quorlock_protocol::{
    Acquire, ErrorKind, FaultKind, FencingToken, Frees, Machine, Moment, NodeId, PolicyBuilder,
    Reply,
};

pub(crate) fn acquire(
    nodes: usize,
    change: impl FnOnce(PolicyBuilder) -> PolicyBuilder,
) -> Harness<Acquire> {
    let now = Moment::from_millis(0);

    let known = FencingToken::default();

    Harness::start(Acquire::new(now, resources(), policy(change), quorum(nodes), known))
}

pub(crate) fn plain(nodes: usize) -> Harness<Acquire> {
    acquire(nodes, |policy| policy)
}

#[test]
fn asks_every_node_before_it_hears_of_any() {
    let harness = plain(5);
    assert_eq!(harness.targets("grant"), [0, 1, 2, 3, 4]);
    let holders: Vec<_> = harness.sent.iter().map(|(_, command)| &command.claim.holder).collect();
    assert!(holders.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn wins_at_the_quorum_without_the_slow_and_the_broken() {
    let mut harness = plain(5);
    harness.answer(4, "grant", fault(FaultKind::Broken));
    harness.answer(0, "grant", ours(1000));
    harness.answer(2, "grant", ours(1000));
    assert!(harness.done.is_none());
    harness.answer(3, "grant", ours(1000));
    let won = harness.outcome().result.unwrap();
    assert_eq!(won.lease.fencing_token(), Some(FencingToken(1000)));
}

#[test]
fn the_validity_counts_from_the_start_and_leaves_the_drift_out() {
    let mut harness = plain(3);
    harness.env.now = Moment::from_millis(30);
    harness.answer(0, "grant", ours(1000));
    harness.answer(1, "grant", ours(1000));
    let won = harness.outcome().result.unwrap();
    assert_eq!(won.lease.until(), Moment::from_millis(1000 - 10 - 2));
}

#[test]
fn a_quorum_that_comes_after_the_validity_is_no_lease() {
    let mut harness =
        acquire(3, |policy| policy.node_timeout(Duration::from_millis(500)).try_once());
    harness.answer(0, "grant", ours(1000));
    harness.env.now = Moment::from_millis(988);
    harness.answer(1, "grant", ours(1000));
    assert_eq!(harness.count("revoke"), 3);
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::QuorumUnreachable);
}

#[test]
fn an_even_split_is_lost_and_withdrawn_everywhere() {
    let mut harness = acquire(4, PolicyBuilder::try_once);
    for (node, answer) in [(0, ours(1000)), (1, ours(1000)), (2, theirs(frees_in(9)))] {
        harness.answer(node, "grant", answer);
    }
    assert!(harness.done.is_none());
    harness.answer(3, "grant", theirs(frees_in(9)));
    assert_eq!(harness.targets("revoke"), [0, 1, 2, 3]);
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::NotAcquired);
}

#[test]
fn a_node_known_to_be_down_counts_at_once() {
    let mut harness = acquire(3, PolicyBuilder::try_once);
    harness.answer(0, "grant", fault(FaultKind::NotSent));
    harness.answer(1, "grant", fault(FaultKind::NotSent));
    assert_eq!(harness.targets("revoke"), [2]);
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::QuorumUnreachable);
}

#[test]
fn silence_is_waited_for_only_up_to_the_node_timeout() {
    let mut harness = acquire(3, PolicyBuilder::try_once);
    harness.answer(0, "grant", ours(1000));
    harness.wait_until(49);
    assert!(harness.done.is_none());
    harness.wait_until(50);
    assert_eq!(harness.targets("revoke"), [0, 1, 2]);
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::QuorumUnreachable);
}

#[test]
fn every_round_draws_a_fresh_holder_id() {
    let mut harness = plain(3);
    let first = harness.last(0, "grant").claim.holder.clone();
    harness.answer(0, "grant", theirs(frees_in(5000)));
    harness.answer(1, "grant", theirs(frees_in(5000)));
    harness.wait_until(100);
    assert_eq!(harness.count("grant"), 6);
    let second = harness.last(0, "grant").claim.holder.clone();
    assert_ne!(first, second);
    assert_eq!(harness.last(0, "revoke").claim.holder, first);
}

#[test]
fn a_late_vote_of_a_lost_round_does_not_count_in_the_next() {
    let mut harness = plain(3);
    let old = harness.last(2, "grant").ticket;
    harness.answer(0, "grant", theirs(frees_in(5000)));
    harness.answer(1, "grant", theirs(frees_in(5000)));
    harness.wait_until(100);
    harness.reply(2, Reply { ticket: old, answer: ours(9), repeated: false });
    harness.answer(0, "grant", ours(1000));
    assert!(harness.done.is_none());
}

#[test]
fn a_retry_comes_no_later_than_the_holder_runs_out() {
    let mut harness = plain(3);
    harness.answer(0, "grant", theirs(frees_in(30)));
    harness.answer(1, "grant", theirs(frees_in(40)));
    // Node 2 has not voted, and may be free. With node 0 it would be a quorum.
    harness.wait_until(31);
    assert_eq!(harness.count("grant"), 3);
    harness.wait_until(32);
    assert_eq!(harness.count("grant"), 6);
}

#[test]
fn the_timeout_bounds_the_call_and_leaves_a_last_try() {
    let mut harness = acquire(3, |policy| policy.timeout(Some(Duration::from_millis(150))));
    for _ in 0..2 {
        harness.answer(0, "grant", theirs(frees_in(5000)));
        harness.answer(1, "grant", theirs(frees_in(5000)));
        harness.wait_until(100);
    }
    assert_eq!(harness.count("grant"), 6);
    harness.wait_until(149);
    assert_eq!(harness.count("grant"), 9);
    assert!(harness.done.is_none());
    harness.wait_until(150);
    let outcome = harness.outcome();
    assert_eq!(outcome.result.unwrap_err(), ErrorKind::AcquireTimedOut);
    assert_eq!((outcome.attempts, outcome.elapsed.as_millis()), (3, 150));
}

#[test]
fn a_last_try_that_the_clock_overtakes_is_no_sign_of_trouble() {
    let mut harness = acquire(3, |policy| policy.timeout(Some(Duration::from_millis(150))));
    for node in 0..3 {
        harness.answer(node, "grant", theirs(frees_in(5000)));
    }
    harness.wait_until(149);
    harness.answer(0, "grant", theirs(frees_in(4850)));
    // The process stands still. Two commands are too late to be sent, and that is learnt together.
    harness.env.now = Moment::from_millis(160);
    for node in [1, 2] {
        let ticket = harness.last(node, "grant").ticket;
        let answer = fault(FaultKind::Late);
        harness.machine.handle_reply(
            &mut harness.env,
            NodeId(node),
            Reply { ticket, answer, repeated: false },
        );
    }
    harness.wake();
    assert_eq!(harness.outcome().result.err(), Some(ErrorKind::AcquireTimedOut));
}

#[test]
fn what_a_standstill_kept_from_being_sent_costs_no_try() {
    let mut harness = acquire(3, |policy| policy.retry_limit(Some(0)));
    for round in 1..=4 {
        assert_eq!(harness.count("grant"), 3 * round);
        harness.env.now = Moment::from_millis(300 * u64::try_from(round).unwrap());
        harness.answer(0, "grant", fault(FaultKind::Late));
        harness.answer(1, "grant", fault(FaultKind::Late));
    }
    // A process that has too much to do for any round gives up in the end.
    let outcome = harness.outcome();
    assert_eq!((outcome.result.unwrap_err(), outcome.attempts), (ErrorKind::QuorumUnreachable, 4));
    assert_eq!(outcome.lost_rounds[0].stood_still.as_millis(), 300);
}

#[test]
fn refusals_decide_also_beside_what_was_never_sent() {
    let mut harness = acquire(3, |policy| policy.retry_limit(Some(0)));
    harness.answer(0, "grant", theirs(frees_in(5000)));
    harness.answer(1, "grant", theirs(frees_in(5000)));
    harness.answer(2, "grant", fault(FaultKind::Late));
    let outcome = harness.outcome();
    assert_eq!((outcome.result.unwrap_err(), outcome.attempts), (ErrorKind::NotAcquired, 1));
}

#[test]
fn replies_from_a_standstill_are_read_before_timeouts() {
    let mut harness = acquire(3, |policy| policy.retry_limit(Some(0)));
    harness.env.now = Moment::from_millis(400);
    harness.wake();
    assert!(harness.done.is_none());
    harness.answer(0, "grant", ours(1000));
    harness.answer(1, "grant", ours(1000));
    assert!(harness.outcome().result.is_ok());

    let mut harness = acquire(3, |policy| policy.retry_limit(Some(0)));
    harness.env.now = Moment::from_millis(400);
    harness.wake();
    harness.wait_until(405);
    // What was asked while it stood still says little of the nodes: it is asked once more.
    assert_eq!(harness.count("grant"), 6);
    harness.wait_until(500);
    let outcome = harness.outcome();
    assert_eq!(outcome.result.unwrap_err(), ErrorKind::QuorumUnreachable);
    assert!(outcome.lost_rounds[0].stood_still.as_millis() >= 300);
    assert!(outcome.lost_rounds[1].stood_still.is_zero());
}

#[test]
fn a_lock_that_was_freed_is_tried_for_at_once_and_costs_no_try() {
    let refuse = |harness: &mut Harness<Acquire>| {
        harness.answer(0, "grant", theirs(frees_in(5000)));
        harness.answer(1, "grant", theirs(frees_in(5000)));
    };
    let delay = Duration::from_millis(10);
    let mut harness = acquire(3, |policy| {
        policy.retry_limit(Some(1)).retry_delay(delay).retry_jitter(Duration::ZERO)
    });
    refuse(&mut harness);
    assert_eq!(harness.count("grant"), 3, "it backs off");
    harness.machine.handle_freed();
    harness.settle();
    assert_eq!(harness.count("grant"), 6);
    // While a round is under way: that may have come too early.
    harness.machine.handle_freed();
    refuse(&mut harness);
    assert_eq!(harness.count("grant"), 9);
    refuse(&mut harness);
    assert!(harness.done.is_none(), "one of two tries is left");
    harness.wait_until(10);
    refuse(&mut harness);
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::NotAcquired);
}

#[test]
fn a_timeout_below_the_retry_delay_still_tries_once() {
    let mut harness = acquire(3, |policy| policy.timeout(Some(Duration::from_millis(5))));
    harness.answer(0, "grant", ours(1000));
    harness.answer(1, "grant", ours(1000));
    assert!(harness.outcome().result.is_ok());
}

#[test]
fn a_retry_limit_of_zero_is_one_round() {
    let mut harness = acquire(3, |policy| policy.retry_limit(Some(0)));
    harness.answer(0, "grant", theirs(frees_in(1)));
    harness.answer(1, "grant", theirs(frees_in(1)));
    let outcome = harness.outcome();
    assert_eq!((outcome.result.unwrap_err(), outcome.attempts), (ErrorKind::NotAcquired, 1));
}

#[test]
fn faults_that_only_a_person_can_mend_end_the_wait() {
    let mut harness = plain(3);
    harness.answer(0, "grant", fault(FaultKind::WrongType));
    harness.answer(1, "grant", fault(FaultKind::Unauthenticated));
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::QuorumUnreachable);
}

#[test]
fn waiting_without_a_limit_ends_without_a_quorum() {
    let mut harness = acquire(3, |policy| policy.unreachable_timeout(Duration::from_millis(400)));
    while harness.done.is_none() {
        harness.answer(0, "grant", fault(FaultKind::NotSent));
        harness.answer(1, "grant", fault(FaultKind::NotSent));
        let next = harness.wake_at.unwrap().since_epoch().as_millis();
        harness.wait_until(u64::try_from(next).unwrap());
        assert!(next < 2000, "gives up in time");
    }
    let outcome = harness.outcome();
    assert_eq!(outcome.result.unwrap_err(), ErrorKind::QuorumUnreachable);
    assert!(outcome.attempts > 2);
}

#[test]
fn a_held_lock_is_reported_before_the_slowest_node_answers() {
    // One of three is down, and of the two others one is always slower.
    let mut harness = acquire(3, PolicyBuilder::try_once);
    harness.answer(0, "grant", fault(FaultKind::NotSent));
    harness.answer(1, "grant", theirs(frees_in(5000)));
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::NotAcquired);

    let mut harness = acquire(4, PolicyBuilder::try_once);
    harness.answer(0, "grant", theirs(frees_in(5000)));
    harness.answer(1, "grant", theirs(frees_in(5000)));
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::NotAcquired);

    let mut harness = acquire(5, PolicyBuilder::try_once);
    harness.answer(0, "grant", fault(FaultKind::NotSent));
    harness.answer(1, "grant", theirs(frees_in(5000)));
    assert!(harness.done.is_none());
    harness.answer(2, "grant", fault(FaultKind::NotSent));
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::NotAcquired);
}

#[test]
fn a_held_lock_is_waited_for_although_a_node_is_down() {
    let mut harness = acquire(3, |policy| policy.unreachable_timeout(Duration::from_millis(400)));
    for _ in 0..20 {
        harness.answer(0, "grant", fault(FaultKind::NotSent));
        harness.answer(1, "grant", theirs(frees_in(60_000)));
        assert!(harness.done.is_none(), "took the holder for broken nodes");
        let next = harness.wake_at.unwrap().since_epoch().as_millis();
        harness.wait_until(u64::try_from(next).unwrap());
    }
}

#[test]
fn silence_that_a_refusal_does_not_outweigh_is_trouble() {
    let mut harness = acquire(3, PolicyBuilder::try_once);
    harness.answer(0, "grant", theirs(frees_in(5000)));
    harness.wait_until(50);
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::QuorumUnreachable);
}

#[test]
fn a_key_without_a_ttl_is_not_waited_for_in_silence() {
    let mut harness = acquire(3, |policy| policy.unreachable_timeout(Duration::ZERO));
    harness.answer(0, "grant", theirs(Frees::Never));
    harness.answer(1, "grant", theirs(Frees::Never));
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::NotAcquired);
}

#[test]
fn what_is_left_to_withdraw_comes_with_the_lease() {
    let mut harness = plain(3);
    harness.answer(0, "grant", theirs(frees_in(10)));
    harness.answer(1, "grant", theirs(frees_in(10)));
    harness.answer(0, "revoke", absent());
    harness.answer(1, "revoke", absent());
    harness.wait_until(12);
    harness.answer(0, "grant", ours(1000));
    harness.answer(1, "grant", ours(1000));
    let outcome = harness.outcome();
    assert!(outcome.result.is_ok());
    assert_eq!(outcome.withdrawals.len(), 1, "node 2 has not confirmed the first revoke");
    assert_eq!(outcome.lost_rounds.len(), 1);
}
