//! Tests how a wait in the nodes' queues ends without a lock, and what is left behind.

use std::time::Duration;

use crate::support::{frees_in, theirs};
use crate::waiting::{held, looked, refused, waiting};
use quorlock_protocol::ErrorKind;

#[test]
fn the_timeout_is_kept_and_the_last_try_comes_before_it() {
    let mut play = refused(|policy| policy.timeout(Some(Duration::from_secs(2))));
    looked(&mut play, &held(2, 8_000));
    play.wait_until(1_979);
    assert_eq!(play.count("grant"), 3);
    play.wait_until(1_980);
    assert_eq!(play.count("grant"), 6);
    play.answer(0, "grant", theirs(frees_in(8_000)));
    play.answer(1, "grant", theirs(frees_in(8_000)));
    play.wait_until(2_000);
    assert_eq!(play.targets("leave"), [0, 1, 2]);
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::AcquireTimedOut);
}

/// The error of a fair caller whose only round the timeout cuts off; this many nodes have told that the lock is held.
fn first_round_cut_off(nodes: u8) -> ErrorKind {
    let mut play = waiting(|policy| policy.fair(true).timeout(Some(Duration::from_secs(2))));
    for node in 0..nodes {
        play.answer(node, "enqueue", held(0, 8_000));
    }
    for now in 1..=2_000 {
        play.wait_until(now);
    }
    assert!(play.count("grant") > 0);
    play.outcome().result.unwrap_err()
}

#[test]
fn a_caller_whose_first_round_is_cut_off_says_what_the_queues_told() {
    assert_eq!(first_round_cut_off(3), ErrorKind::AcquireTimedOut);
    assert_eq!(first_round_cut_off(2), ErrorKind::AcquireTimedOut);
    assert_eq!(first_round_cut_off(1), ErrorKind::QuorumUnreachable, "it may be free on a quorum");
}

#[test]
fn a_limited_number_of_tries_goes_on_at_its_delays() {
    let mut play = refused(|policy| policy.retry_limit(Some(2)));
    let mut now = 0;
    while play.done.is_none() && now < 1_000 {
        now += 1;
        play.wait_until(now);
        for (kind, answer) in [("enqueue", held(0, 8_000)), ("grant", theirs(frees_in(8_000)))] {
            for node in 0..3 {
                play.answer(node, kind, answer.clone());
            }
        }
    }
    assert_eq!(play.count("grant"), 9);
    assert!((100..=320).contains(&now), "{now}");
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::NotAcquired);
}

#[test]
fn a_caller_that_gives_up_leaves_every_node_that_it_asked() {
    let mut play = refused(|policy| policy);
    play.cancel();
    assert_eq!(play.targets("leave"), [0, 1, 2]);
    assert_eq!(play.outcome().result.unwrap_err(), ErrorKind::Cancelled);
}
