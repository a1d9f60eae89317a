//! Tests an acquisition's fencing tokens: which one is proposed, written back and returned.

use quorlock_protocol::{Action, ErrorKind, FencingToken, PolicyBuilder};

use crate::acquire::{acquire, plain};
use crate::support::{frees_in, kept, ours};

#[test]
fn a_token_is_known_to_a_quorum_before_the_lease_is_given() {
    let mut harness = plain(5);
    harness.answer(0, "grant", ours(1000));
    harness.answer(1, "grant", ours(1007));
    harness.answer(2, "grant", ours(1000));
    assert!(harness.done.is_none());
    assert_eq!(harness.targets("raise"), [0, 2]);
    let raised = harness.last(0, "raise").action;
    assert!(matches!(raised, Action::RaiseFence { token: FencingToken(1007), .. }));
    harness.answer(0, "raise", ours(1007));
    assert!(harness.done.is_none());
    harness.answer(2, "raise", ours(1007));
    let won = harness.outcome().result.unwrap();
    assert_eq!(won.lease.fencing_token(), Some(FencingToken(1007)));
}

#[test]
fn a_late_grant_joins_the_write_back() {
    let mut harness = plain(5);
    harness.answer(0, "grant", ours(1000));
    harness.answer(1, "grant", ours(1007));
    harness.answer(2, "grant", ours(1000));
    harness.answer(3, "grant", ours(1007));
    harness.answer(4, "grant", ours(1000));
    assert_eq!(harness.targets("raise"), [0, 2, 4]);
    harness.answer(4, "raise", ours(1007));
    assert!(harness.outcome().result.is_ok(), "nodes 1, 3 and 4 know the token");
}

#[test]
fn a_write_back_without_a_quorum_is_a_lost_round() {
    let mut harness = acquire(3, PolicyBuilder::try_once);
    harness.answer(0, "grant", ours(1000));
    harness.answer(1, "grant", ours(1007));
    harness.wait_until(50);
    assert_eq!(harness.targets("revoke"), [0, 1, 2]);
    assert_eq!(harness.outcome().result.unwrap_err(), ErrorKind::QuorumUnreachable);
}

#[test]
fn the_next_proposal_is_above_every_floor_seen() {
    let mut harness = plain(3);
    let floor = Some(FencingToken(5000));
    let refused = quorlock_protocol::Answer::Theirs { floor, frees: frees_in(1) };
    harness.answer(0, "grant", Ok(refused));
    harness.answer(1, "grant", Ok(refused));
    harness.wait_until(100);
    let Action::Grant { fence: Some(fence), .. } = harness.last(0, "grant").action else {
        panic!()
    };
    assert_eq!(fence.proposal, FencingToken(5001));
}

#[test]
fn proposals_go_by_node_clocks_once_they_are_known() {
    let far = 4_000 + quorlock_protocol::Fence::SLACK_MICROS;
    let cases = [
        (None, 5_000, 5_001),
        (Some(50_000), 5_000, 50_000),
        (Some(4_000), 5_000, 5_001),
        (Some(4_000), far - 1, far),
        // What no node would take comes of a clock that is far ahead.
        (Some(4_000), far, 4_000),
    ];
    for (nodes, floor, expected) in cases {
        let mut harness = plain(3);
        let (floor, frees) = (Some(FencingToken(floor)), frees_in(1));
        for node in [0, 1] {
            harness.answer(node, "grant", Ok(quorlock_protocol::Answer::Theirs { floor, frees }));
        }
        // An hour, or seconds, behind or ahead: it is not asked any more.
        harness.env.wall = if nodes.is_some() { 3_600_000_000 } else { 1_000 };
        harness.env.nodes = nodes;
        harness.wait_until(100);
        let Action::Grant { fence: Some(fence), .. } = harness.last(0, "grant").action else {
            panic!()
        };
        assert_eq!(fence.proposal, FencingToken(expected), "{nodes:?}, {floor:?}");
    }
}

#[test]
fn without_fencing_there_is_no_token_and_no_second_trip() {
    let mut harness = acquire(3, |policy| policy.fencing(false));
    harness.answer(0, "grant", kept());
    harness.answer(1, "grant", kept());
    let won = harness.outcome().result.unwrap();
    assert_eq!(won.lease.fencing_token(), None);
}
