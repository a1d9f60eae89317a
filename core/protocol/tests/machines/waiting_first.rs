//! Tests acquisitions that take a place in the nodes' queues before their first round.

use crate::support::{Harness, ours, policy, quorum, resources};
use crate::waiting::{free, looked, waiting};
use quorlock_protocol::{Acquire, Action, FencingToken, Moment, Waiter};

#[test]
fn fair_takes_a_place_first_and_shows_it_with_the_grant() {
    let mut harness = waiting(|policy| policy.fair(true));
    assert_eq!((harness.count("grant"), harness.targets("enqueue")), (0, vec![0, 1, 2]));
    looked(&mut harness, &free(0));
    let Action::Grant { place: Some(place), .. } = harness.last(1, "grant").action else {
        panic!()
    };
    assert_eq!(harness.last(1, "enqueue").action, Action::Enqueue { place });
    for node in 0..2 {
        harness.answer(node, "grant", ours(1_000));
    }
    assert!(harness.outcome().result.unwrap().was_queued);
}

#[test]
fn a_fair_try_takes_no_place() {
    let harness = waiting(|policy| policy.fair(true).try_once());
    assert_eq!((harness.count("grant"), harness.count("enqueue")), (3, 0));
    assert!(matches!(harness.last(0, "grant").action, Action::Grant { place: Some(_), .. }));
}

#[test]
fn queueing_first_without_company_wins_like_a_first_round() {
    let (now, known) = (Moment::from_millis(0), FencingToken::default());
    let machine = Acquire::new(now, resources(), policy(|it| it), quorum(3), known);
    let waiter = Waiter { process: 7, number: 1 };
    let mut harness = Harness::start(machine.queued_as(waiter).queue_first());
    looked(&mut harness, &free(0));
    for node in 0..2 {
        harness.answer(node, "grant", ours(1_000));
    }
    assert_eq!(harness.count("leave"), 3);
    assert!(!harness.outcome().result.unwrap().was_queued, "its release has nobody to call");
}
