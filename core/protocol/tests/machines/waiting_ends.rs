//! Tests how a wait in the nodes' queues ends: at the end of the holder's keys, or without a lock, and what is left
//! behind.

use std::time::Duration;

use crate::support::{fault, frees_in, theirs};
use crate::waiting::{free, held, looked, refused, waiting};
use quorlock_protocol::{ErrorKind, FaultKind};

#[test]
fn the_timeout_is_kept_and_the_last_try_comes_before_it() {
    let mut harness = refused(|policy| policy.timeout(Some(Duration::from_secs(2))));
    looked(&mut harness, &held(2, 8_000));
    harness.wait_until(1_979);
    assert_eq!(harness.count("grant"), 3);
    harness.wait_until(1_980);
    assert_eq!(harness.count("grant"), 6);
    harness.answer(0, "grant", theirs(frees_in(8_000)));
    harness.answer(1, "grant", theirs(frees_in(8_000)));
    harness.wait_until(2_000);
    assert_eq!(harness.targets("leave"), [0, 1, 2]);
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::AcquireTimedOut);
}

/// The error of a fair caller whose only round the timeout cuts off; this many nodes have told that the lock is held.
fn first_round_cut_off(nodes: u8) -> ErrorKind {
    let mut harness = waiting(|policy| policy.fair(true).timeout(Some(Duration::from_secs(2))));
    for node in 0..nodes {
        harness.answer(node, "enqueue", held(0, 8_000));
    }
    for now in 1..=2_000 {
        harness.wait_until(now);
    }
    assert!(harness.count("grant") > 0);
    harness.outcome().result.unwrap_err()
}

#[test]
fn a_caller_whose_first_round_is_cut_off_says_what_the_queues_told() {
    assert_eq!(first_round_cut_off(3), ErrorKind::AcquireTimedOut);
    assert_eq!(first_round_cut_off(2), ErrorKind::AcquireTimedOut);
    assert_eq!(first_round_cut_off(1), ErrorKind::QuorumUnreachable, "it may be free on a quorum");
}

#[test]
fn a_limited_number_of_tries_goes_on_at_its_delays() {
    let mut harness = refused(|policy| policy.retry_limit(Some(2)));
    let mut now = 0;
    while harness.done.is_none() && now < 1_000 {
        now += 1;
        harness.wait_until(now);
        for (kind, answer) in [("enqueue", held(0, 8_000)), ("grant", theirs(frees_in(8_000)))] {
            for node in 0..3 {
                harness.answer(node, kind, answer.clone());
            }
        }
    }
    assert_eq!(harness.count("grant"), 9);
    assert!((100..=320).contains(&now), "{now}");
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::NotAcquired);
}

#[test]
fn a_caller_that_gives_up_leaves_every_node_that_it_asked() {
    let mut harness = refused(|policy| policy);
    harness.cancel();
    assert_eq!(harness.targets("leave"), [0, 1, 2]);
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::Cancelled);
}

#[test]
fn a_node_that_had_not_voted_may_be_free() {
    let mut harness = waiting(|policy| policy.retry_delay(Duration::from_secs(5)));
    harness.answer(0, "grant", theirs(frees_in(300)));
    harness.answer(1, "grant", theirs(frees_in(700)));
    looked(&mut harness, &fault(FaultKind::NotSent));
    harness.wait_until(301);
    assert_eq!(harness.count("grant"), 3);
    harness.wait_until(302);
    assert_eq!(harness.count("grant"), 6, "it would be a quorum with node 2");
}

#[test]
fn the_first_tries_when_the_keys_have_ended_although_a_node_does_not_tell() {
    let mut harness = refused(|policy| policy);
    for (node, left) in [(0, 4_000), (1, 500), (2, 700)] {
        harness.answer(node, "enqueue", held(0, left));
    }
    harness.wait_until(702);
    assert_eq!((harness.count("enqueue"), harness.count("grant")), (6, 3));
    harness.answer(0, "enqueue", held(0, 3_298));
    harness.answer(1, "enqueue", free(0));
    harness.wait_until(706);
    assert_eq!(harness.count("grant"), 3);
    harness.wait_until(707);
    assert_eq!(harness.count("grant"), 6, "node 2 has ended as well, for all that is known");
}

#[test]
fn a_node_that_does_not_tell_is_not_waited_for_where_a_holder_has_extended() {
    let mut harness = refused(|policy| policy);
    looked(&mut harness, &held(0, 700));
    harness.wait_until(702);
    for node in 0..2 {
        harness.answer(node, "enqueue", held(0, 8_000));
    }
    harness.wait_until(3_000);
    assert_eq!(harness.count("grant"), 3, "no round can be won");
}
