//! Tests the promises of the lock-delay: nodes keep the keys beyond the ttl, the holder trusts only
//! the ttl, and no machine takes back the keys of a lost lease.

use std::time::Duration;

use crate::support::{
    Harness, Working, absent, claim, kept, ours, policy, quorum, resources, theirs,
};
use quorlock_protocol::{
    Acquire, Action, Answer, Command, Extend, Extension, FencingToken, Frees, Inspect, Lease,
    LeaseLife, LossReason, Moment, Policy, PolicyBuilder, Reply, Standing, Withdraw,
};

/// Ttl 1000 ms, lock-delay 500 ms.
fn delayed(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Policy {
    policy(|base| change(base.lock_delay(Duration::from_millis(500))))
}

fn acquire() -> Harness<Acquire> {
    let policy = delayed(|policy| policy);
    let now = Moment::from_millis(0);
    Harness::start(Acquire::new(now, resources(), policy, quorum(3), FencingToken::default()))
}

fn lease() -> Lease {
    let mut harness = acquire();
    harness.answer(0, "grant", ours(1000));
    harness.answer(1, "grant", ours(1000));
    harness.outcome().result.unwrap().lease
}

fn hold(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Harness<Working> {
    let now = Moment::from_millis(0);
    let policy = delayed(|base| change(base.auto_extend(true)));
    Working::renewing(LeaseLife::won(now, (lease(), false), policy, quorum(3)), now)
}

/// What the command asks the node to keep the keys for, in milliseconds.
fn asked(command: &Command) -> u64 {
    match command.action {
        Action::Grant { key_ttl, .. }
        | Action::Restore { key_ttl }
        | Action::Extend { key_ttl, .. } => key_ttl.as_millis(),
        ref other => panic!("{other:?} keeps nothing"),
    }
}

fn loss(mut harness: Harness<Working>) -> (LossReason, Option<Withdraw>) {
    let loss = harness.machine.life.take_loss().expect("it is lost");
    (loss.reason, loss.withdraw)
}

#[test]
fn the_nodes_are_asked_for_longer_than_the_holder_trusts() {
    let harness = acquire();
    assert_eq!(asked(&harness.last(0, "grant")), 1500);
    let lease = lease();
    assert_eq!(lease.until(), Moment::from_millis(988));
    assert_eq!(lease.ttl().as_millis(), 1000);
    // Sent within 50 ms, kept for 1500 ms by a clock that is 1 % and 2 ms slow.
    assert_eq!(lease.keys_expire_by(), Moment::from_millis(50 + 1500 + 17));
    let drift = policy(|policy| policy).drift();
    assert_eq!(lease.kept_until(drift), Moment::from_millis(1500 - 17));
}

#[test]
fn a_renewal_asks_for_as_long_and_prolongs_the_trust_by_the_ttl() {
    let mut harness = hold(|policy| policy);
    harness.wait_until(330);
    let sent_at = harness.env.now;
    assert_eq!(asked(&harness.last(0, "extend")), 1500);
    harness.answer(0, "extend", kept());
    harness.answer(1, "extend", kept());
    let trusted = harness.machine.lease().until();
    assert!(trusted <= sent_at + Duration::from_millis(988));
    assert!(trusted > Moment::from_millis(1250), "it was renewed");
    assert!(harness.machine.lease().keys_expire_by() > trusted + Duration::from_millis(500));
}

#[test]
fn a_node_that_lost_the_keys_is_healed_for_as_long() {
    let mut harness = hold(|policy| policy);
    harness.wait_until(330);
    harness.answer(0, "extend", absent());
    let ticket = harness.last(2, "extend").ticket;
    harness.answer(1, "extend", kept());
    harness.answer(2, "extend", kept());
    assert_eq!(harness.targets("restore"), [0]);
    assert_eq!(asked(&harness.last(0, "restore")), 1500);
    // The same for one that answers late: nothing of the second round is known to it.
    harness.wait_until(700);
    let late = harness.last(2, "extend").ticket;
    assert_ne!(late, ticket);
    harness.answer(0, "extend", kept());
    harness.answer(1, "extend", kept());
    harness.reply(2, Reply { ticket: late, answer: absent(), repeated: false });
    assert_eq!(asked(&harness.last(2, "restore")), 1500);
}

#[test]
fn the_keys_of_a_lease_that_ran_out_are_left_to_their_delay() {
    let mut harness = hold(|policy| policy);
    harness.wait_until(987);
    assert!(harness.done.is_none());
    harness.wait_until(988);
    assert_eq!(loss(harness), (LossReason::Expired, None));
}

#[test]
fn keys_of_other_losses_are_left_to_their_delay() {
    let mut harness = hold(|policy| policy.max_hold(Duration::from_millis(100)));
    harness.wait_until(988);
    assert_eq!(loss(harness), (LossReason::HeldTooLong, None));
    let mut harness = hold(|policy| policy);
    harness.wait_until(330);
    harness.answer(0, "extend", theirs(Frees::Unknown));
    harness.answer(1, "extend", absent());
    assert_eq!(loss(harness), (LossReason::Gone, None));
}

#[test]
fn an_acquisition_that_is_given_up_frees_at_once() {
    let mut harness = acquire();
    harness.answer(0, "grant", ours(1000));
    harness.cancel();
    assert_eq!(harness.targets("revoke"), [0, 1, 2]);
    let mut left = Harness::start(harness.outcome().withdrawals.pop().unwrap());
    // Nobody answers, and each may have the keys for as long as it was asked to keep them.
    left.wait_until(1500);
    assert!(left.done.is_none());
    left.wait_until(50 + 1500 + 17);
    assert!(left.done.is_some());
}

#[test]
fn a_shorter_ttl_is_asked_for_with_the_delay() {
    let extension = Extension {
        claim: claim("h"),
        fencing_token: None,
        until: Moment::from_millis(988),
        patience: Duration::from_millis(400),
        first_ticket: 0,
    };
    let policy = delayed(|policy| policy.ttl(Duration::from_millis(200)));
    let harness = Harness::start(Extend::new(Moment::from_millis(0), extension, policy, quorum(3)));
    assert_eq!(asked(&harness.last(0, "extend")), 700);
}

#[test]
fn what_is_left_of_the_delay_proves_no_validity() {
    let inspect = |remaining| {
        let now = Moment::from_millis(0);
        let policy = delayed(|policy| policy);
        let mut harness = Harness::start(Inspect::new(now, &claim("h"), policy, quorum(3)));
        for node in 0..2 {
            let remaining = Some(Duration::from_millis(remaining));
            let token = Some(FencingToken(41));
            harness.answer(node, "inspect", Ok(Answer::Ours { token, remaining }));
        }
        harness.wait_until(50);
        let Standing::Held(lease) = harness.outcome().standing else { panic!("held") };
        lease.until()
    };
    assert_eq!(inspect(900), Moment::from_millis(400 - 4 - 2));
    assert_eq!(inspect(500), Moment::from_millis(0));
    assert_eq!(inspect(300), Moment::from_millis(0));
}
