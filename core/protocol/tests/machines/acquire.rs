//! Tests the promises of the acquire machine, one schedule in each test.

use std::time::Duration;

use crate::support::{Play, absent, fault, frees_in, ours, policy, quorum, resources, theirs};
use quorlock_protocol::{
    Acquire, ErrorKind, FaultKind, FencingToken, Frees, Machine, Moment, NodeId, PolicyBuilder,
    Reply,
};

pub(crate) fn acquire(
    nodes: usize,
    change: impl FnOnce(PolicyBuilder) -> PolicyBuilder,
) -> Play<Acquire> {
    let now = Moment::from_millis(0);

    let known = FencingToken::default();

    Play::start(Acquire::new(now, resources(), policy(change), quorum(nodes), known))
}

pub(crate) fn plain(nodes: usize) -> Play<Acquire> {
    acquire(nodes, |policy| policy)
}

#[test]
fn asks_every_node_before_it_hears_of_any() {
    let play = plain(5);
    assert_eq!(play.targets("grant"), [0, 1, 2, 3, 4]);
    let holders: Vec<_> = play.sent.iter().map(|(_, command)| &command.claim.holder).collect();
    assert!(holders.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn wins_at_the_quorum_without_the_slow_and_the_broken() {
    let mut play = plain(5);
    play.answer(4, "grant", fault(FaultKind::Broken));
    play.answer(0, "grant", ours(1000));
    play.answer(2, "grant", ours(1000));
    assert!(play.done.is_none());
    play.answer(3, "grant", ours(1000));
    let won = play.outcome().result.unwrap();
    assert_eq!(won.lease.fencing_token(), Some(FencingToken(1000)));
}

#[test]
fn the_validity_counts_from_the_start_and_leaves_the_drift_out() {
    let mut play = plain(3);
    play.env.now = Moment::from_millis(30);
    play.answer(0, "grant", ours(1000));
    play.answer(1, "grant", ours(1000));
    let won = play.outcome().result.unwrap();
    assert_eq!(won.lease.until(), Moment::from_millis(1000 - 10 - 2));
}

#[test]
fn a_quorum_that_comes_after_the_validity_is_no_lease() {
    let mut play = acquire(3, |policy| policy.node_timeout(Duration::from_millis(500)).try_once());
    play.answer(0, "grant", ours(1000));
    play.env.now = Moment::from_millis(988);
    play.answer(1, "grant", ours(1000));
    assert_eq!(play.count("revoke"), 3);
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::QuorumUnreachable);
}

#[test]
fn an_even_split_is_lost_and_withdrawn_everywhere() {
    let mut play = acquire(4, PolicyBuilder::try_once);
    for (node, answer) in [(0, ours(1000)), (1, ours(1000)), (2, theirs(frees_in(9)))] {
        play.answer(node, "grant", answer);
    }
    assert!(play.done.is_none());
    play.answer(3, "grant", theirs(frees_in(9)));
    assert_eq!(play.targets("revoke"), [0, 1, 2, 3]);
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::NotAcquired);
}

#[test]
fn a_node_known_to_be_down_counts_at_once() {
    let mut play = acquire(3, PolicyBuilder::try_once);
    play.answer(0, "grant", fault(FaultKind::NotSent));
    play.answer(1, "grant", fault(FaultKind::NotSent));
    assert_eq!(play.targets("revoke"), [2]);
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::QuorumUnreachable);
}

#[test]
fn silence_is_waited_for_only_up_to_the_node_timeout() {
    let mut play = acquire(3, PolicyBuilder::try_once);
    play.answer(0, "grant", ours(1000));
    play.wait_until(49);
    assert!(play.done.is_none());
    play.wait_until(50);
    assert_eq!(play.targets("revoke"), [0, 1, 2]);
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::QuorumUnreachable);
}

#[test]
fn every_round_draws_a_fresh_holder_id() {
    let mut play = plain(3);
    let first = play.last(0, "grant").claim.holder.clone();
    play.answer(0, "grant", theirs(frees_in(5000)));
    play.answer(1, "grant", theirs(frees_in(5000)));
    play.wait_until(100);
    assert_eq!(play.count("grant"), 6);
    let second = play.last(0, "grant").claim.holder.clone();
    assert_ne!(first, second);
    assert_eq!(play.last(0, "revoke").claim.holder, first);
}

#[test]
fn a_late_vote_of_a_lost_round_does_not_count_in_the_next() {
    let mut play = plain(3);
    let old = play.last(2, "grant").ticket;
    play.answer(0, "grant", theirs(frees_in(5000)));
    play.answer(1, "grant", theirs(frees_in(5000)));
    play.wait_until(100);
    play.reply(2, Reply { ticket: old, answer: ours(9), repeated: false });
    play.answer(0, "grant", ours(1000));
    assert!(play.done.is_none());
}

#[test]
fn a_retry_comes_no_later_than_the_holder_runs_out() {
    let mut play = plain(3);
    play.answer(0, "grant", theirs(frees_in(30)));
    play.answer(1, "grant", theirs(frees_in(40)));
    // Node 2 has not voted, and may be free. With node 0 it would be a quorum.
    play.wait_until(31);
    assert_eq!(play.count("grant"), 3);
    play.wait_until(32);
    assert_eq!(play.count("grant"), 6);
}

#[test]
fn the_timeout_bounds_the_call_and_leaves_a_last_try() {
    let mut play = acquire(3, |policy| policy.timeout(Some(Duration::from_millis(150))));
    for _ in 0..2 {
        play.answer(0, "grant", theirs(frees_in(5000)));
        play.answer(1, "grant", theirs(frees_in(5000)));
        play.wait_until(100);
    }
    assert_eq!(play.count("grant"), 6);
    play.wait_until(149);
    assert_eq!(play.count("grant"), 9);
    assert!(play.done.is_none());
    play.wait_until(150);
    let outcome = play.outcome();
    assert_eq!(outcome.result.unwrap_err(), ErrorKind::AcquireTimedOut);
    assert_eq!((outcome.attempts, outcome.elapsed.as_millis()), (3, 150));
}

#[test]
fn a_last_try_that_the_clock_overtakes_is_no_sign_of_trouble() {
    let mut play = acquire(3, |policy| policy.timeout(Some(Duration::from_millis(150))));
    for node in 0..3 {
        play.answer(node, "grant", theirs(frees_in(5000)));
    }
    play.wait_until(149);
    play.answer(0, "grant", theirs(frees_in(4850)));
    // The process stands still. Two commands are too late to be sent, and that is learnt together.
    play.env.now = Moment::from_millis(160);
    for node in [1, 2] {
        let ticket = play.last(node, "grant").ticket;
        let answer = fault(FaultKind::Late);
        play.machine.handle_reply(
            &mut play.env,
            NodeId(node),
            Reply { ticket, answer, repeated: false },
        );
    }
    play.wake();
    assert_eq!(play.outcome().result.err(), Some(ErrorKind::AcquireTimedOut));
}

#[test]
fn what_a_standstill_kept_from_being_sent_costs_no_try() {
    let mut play = acquire(3, |policy| policy.retry_limit(Some(0)));
    for round in 1..=4 {
        assert_eq!(play.count("grant"), 3 * round);
        play.env.now = Moment::from_millis(300 * u64::try_from(round).unwrap());
        play.answer(0, "grant", fault(FaultKind::Late));
        play.answer(1, "grant", fault(FaultKind::Late));
    }
    // A process that has too much to do for any round gives up in the end.
    let outcome = play.outcome();
    assert_eq!((outcome.result.unwrap_err(), outcome.attempts), (ErrorKind::QuorumUnreachable, 4));
    assert_eq!(outcome.lost_rounds[0].stood_still.as_millis(), 300);
}

#[test]
fn refusals_decide_also_beside_what_was_never_sent() {
    let mut play = acquire(3, |policy| policy.retry_limit(Some(0)));
    play.answer(0, "grant", theirs(frees_in(5000)));
    play.answer(1, "grant", theirs(frees_in(5000)));
    play.answer(2, "grant", fault(FaultKind::Late));
    let outcome = play.outcome();
    assert_eq!((outcome.result.unwrap_err(), outcome.attempts), (ErrorKind::NotAcquired, 1));
}

#[test]
fn replies_from_a_standstill_are_read_before_timeouts() {
    let mut play = acquire(3, |policy| policy.retry_limit(Some(0)));
    play.env.now = Moment::from_millis(400);
    play.wake();
    assert!(play.done.is_none());
    play.answer(0, "grant", ours(1000));
    play.answer(1, "grant", ours(1000));
    assert!(play.outcome().result.is_ok());

    let mut play = acquire(3, |policy| policy.retry_limit(Some(0)));
    play.env.now = Moment::from_millis(400);
    play.wake();
    play.wait_until(405);
    // What was asked while it stood still says little of the nodes: it is asked once more.
    assert_eq!(play.count("grant"), 6);
    play.wait_until(500);
    let outcome = play.outcome();
    assert_eq!(outcome.result.unwrap_err(), ErrorKind::QuorumUnreachable);
    assert!(outcome.lost_rounds[0].stood_still.as_millis() >= 300);
    assert!(outcome.lost_rounds[1].stood_still.is_zero());
}

#[test]
fn a_lock_that_was_freed_is_tried_for_at_once_and_costs_no_try() {
    let refuse = |play: &mut Play<Acquire>| {
        play.answer(0, "grant", theirs(frees_in(5000)));
        play.answer(1, "grant", theirs(frees_in(5000)));
    };
    let delay = Duration::from_millis(10);
    let mut play = acquire(3, |policy| {
        policy.retry_limit(Some(1)).retry_delay(delay).retry_jitter(Duration::ZERO)
    });
    refuse(&mut play);
    assert_eq!(play.count("grant"), 3, "it backs off");
    play.machine.handle_freed();
    play.settle();
    assert_eq!(play.count("grant"), 6);
    // While a round is under way: that may have come too early.
    play.machine.handle_freed();
    refuse(&mut play);
    assert_eq!(play.count("grant"), 9);
    refuse(&mut play);
    assert!(play.done.is_none(), "one of two tries is left");
    play.wait_until(10);
    refuse(&mut play);
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::NotAcquired);
}

#[test]
fn a_timeout_below_the_retry_delay_still_tries_once() {
    let mut play = acquire(3, |policy| policy.timeout(Some(Duration::from_millis(5))));
    play.answer(0, "grant", ours(1000));
    play.answer(1, "grant", ours(1000));
    assert!(play.outcome().result.is_ok());
}

#[test]
fn a_retry_limit_of_zero_is_one_round() {
    let mut play = acquire(3, |policy| policy.retry_limit(Some(0)));
    play.answer(0, "grant", theirs(frees_in(1)));
    play.answer(1, "grant", theirs(frees_in(1)));
    let outcome = play.outcome();
    assert_eq!((outcome.result.unwrap_err(), outcome.attempts), (ErrorKind::NotAcquired, 1));
}

#[test]
fn faults_that_only_a_person_can_mend_end_the_wait() {
    let mut play = plain(3);
    play.answer(0, "grant", fault(FaultKind::WrongType));
    play.answer(1, "grant", fault(FaultKind::Unauthenticated));
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::QuorumUnreachable);
}

#[test]
fn waiting_without_a_limit_ends_without_a_quorum() {
    let mut play = acquire(3, |policy| policy.unreachable_timeout(Duration::from_millis(400)));
    while play.done.is_none() {
        play.answer(0, "grant", fault(FaultKind::NotSent));
        play.answer(1, "grant", fault(FaultKind::NotSent));
        let next = play.wake_at.unwrap().since_epoch().as_millis();
        play.wait_until(u64::try_from(next).unwrap());
        assert!(next < 2000, "gives up in time");
    }
    let outcome = play.outcome();
    assert_eq!(outcome.result.unwrap_err(), ErrorKind::QuorumUnreachable);
    assert!(outcome.attempts > 2);
}

#[test]
fn a_held_lock_is_reported_before_the_slowest_node_answers() {
    // One of three is down, and of the two others one is always slower.
    let mut play = acquire(3, PolicyBuilder::try_once);
    play.answer(0, "grant", fault(FaultKind::NotSent));
    play.answer(1, "grant", theirs(frees_in(5000)));
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::NotAcquired);

    let mut play = acquire(4, PolicyBuilder::try_once);
    play.answer(0, "grant", theirs(frees_in(5000)));
    play.answer(1, "grant", theirs(frees_in(5000)));
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::NotAcquired);

    let mut play = acquire(5, PolicyBuilder::try_once);
    play.answer(0, "grant", fault(FaultKind::NotSent));
    play.answer(1, "grant", theirs(frees_in(5000)));
    assert!(play.done.is_none());
    play.answer(2, "grant", fault(FaultKind::NotSent));
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::NotAcquired);
}

#[test]
fn a_held_lock_is_waited_for_although_a_node_is_down() {
    let mut play = acquire(3, |policy| policy.unreachable_timeout(Duration::from_millis(400)));
    for _ in 0..20 {
        play.answer(0, "grant", fault(FaultKind::NotSent));
        play.answer(1, "grant", theirs(frees_in(60_000)));
        assert!(play.done.is_none(), "took the holder for broken nodes");
        let next = play.wake_at.unwrap().since_epoch().as_millis();
        play.wait_until(u64::try_from(next).unwrap());
    }
}

#[test]
fn silence_that_a_refusal_does_not_outweigh_is_trouble() {
    let mut play = acquire(3, PolicyBuilder::try_once);
    play.answer(0, "grant", theirs(frees_in(5000)));
    play.wait_until(50);
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::QuorumUnreachable);
}

#[test]
fn a_key_without_a_ttl_is_not_waited_for_in_silence() {
    let mut play = acquire(3, |policy| policy.unreachable_timeout(Duration::ZERO));
    play.answer(0, "grant", theirs(Frees::Never));
    play.answer(1, "grant", theirs(Frees::Never));
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::NotAcquired);
}

#[test]
fn what_is_left_to_withdraw_comes_with_the_lease() {
    let mut play = plain(3);
    play.answer(0, "grant", theirs(frees_in(10)));
    play.answer(1, "grant", theirs(frees_in(10)));
    play.answer(0, "revoke", absent());
    play.answer(1, "revoke", absent());
    play.wait_until(12);
    play.answer(0, "grant", ours(1000));
    play.answer(1, "grant", ours(1000));
    let outcome = play.outcome();
    assert!(outcome.result.is_ok());
    assert_eq!(outcome.withdrawals.len(), 1, "node 2 has not confirmed the first revoke");
    assert_eq!(outcome.lost_rounds.len(), 1);
}
