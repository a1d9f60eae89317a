//! Tests the promises of the least hold: after a release, nodes keep the keys until the told time,
//! and not longer.

use std::time::Duration;

use crate::support::{Harness, absent, claim, fault, frees_in, kept, policy, quorum, theirs};
use quorlock_protocol::{
    Action, Command, FaultKind, Moment, ReleaseOutcome, Reply, Ticket, Withdraw, Withdrawal,
};

/// A release at time zero on three nodes that keeps the keys until `keep`, of a lease whose keys last until 988 ms
/// at least and `keys_expire_by` at most.
fn machine_of(keys_expire_by: u64, keep: u64) -> Withdraw {
    let now = Moment::from_millis(0);
    let withdrawal = Withdrawal {
        ticket: Ticket(7),
        claim: claim("h"),
        quorum: quorum(3),
        keys_expire_by: Moment::from_millis(keys_expire_by),
        unsent: Vec::new(),
        node_timeout: Duration::from_millis(50),
    };
    let drift = policy(|policy| policy).drift();
    let machine = Withdraw::new(now, withdrawal).valid_until(Moment::from_millis(988));
    machine.keeping(Moment::from_millis(keep), drift)
}

fn release_of(keys_expire_by: u64, keep: u64) -> Harness<Withdraw> {
    Harness::start(machine_of(keys_expire_by, keep))
}

/// The keys are to last longer than the lease.
fn release() -> Harness<Withdraw> {
    release_of(1012, 3000)
}

/// Time passes until the first revoke.
fn until_a_revoke(harness: &mut Harness<Withdraw>) {
    while harness.count("revoke") == 0 {
        assert!(harness.done.is_none(), "it ended without one");
        harness.wake();
    }
}

fn asked(command: &Command) -> u64 {
    match command.action {
        Action::Extend { key_ttl, may_shorten: Some(_) } => key_ttl.as_millis(),
        ref other => panic!("{other:?} does not say for how long"),
    }
}

/// Long enough for a clock that is 1 % fast, and not much longer.
fn lasts(command: &Command, millis: u64) {
    let by_the_fastest = asked(command) * 99 / 100;
    assert!((millis..millis + 10).contains(&by_the_fastest), "{by_the_fastest} ms");
}

#[test]
fn asks_for_what_is_left_and_deletes_nothing() {
    let mut harness = release();
    assert_eq!(harness.targets("extend"), [0, 1, 2]);
    assert_eq!(harness.count("revoke"), 0);
    lasts(&harness.last(0, "extend"), 3000);
    harness.answer(0, "extend", kept());
    assert_eq!(harness.machine.outcome(), None);
    harness.answer(1, "extend", kept());
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Released));
    harness.answer(2, "extend", kept());
    assert!(harness.done.is_some(), "the keys end by themselves");
}

#[test]
fn a_node_that_was_not_reached_is_asked_for_less_and_less() {
    let mut harness = release();
    harness.answer(0, "extend", kept());
    harness.answer(1, "extend", kept());
    harness.answer(2, "extend", fault(FaultKind::NotSent));
    harness.wait_until(1000);
    let sent_at = harness.env.now;
    assert!(harness.count("extend") > 4, "it is asked again");
    let left = Duration::from_secs(3).saturating_sub(sent_at.since_epoch());
    assert!(asked(&harness.last(2, "extend")) < 3000);
    assert!(asked(&harness.last(2, "extend")) >= u64::try_from(left.as_millis()).unwrap());
    assert_eq!(harness.count("revoke"), 0);
}

#[test]
fn a_node_reached_after_the_least_hold_deletes_the_keys() {
    let mut harness = release_of(10_000, 3000);
    harness.answer(0, "extend", kept());
    harness.answer(1, "extend", kept());
    until_a_revoke(&mut harness);
    assert!(harness.env.now >= Moment::from_millis(3000));
    assert_eq!(harness.targets("revoke"), [2]);
    harness.answer(2, "revoke", kept());
    assert!(harness.done.is_some());
}

#[test]
fn ends_when_the_last_node_has_forgotten() {
    let mut harness = release();
    harness.wait_until(3000);
    assert!(harness.done.is_none());
    // The last command may have come to the node 50 ms late, and its clock be 1 % slow, twice.
    harness.wait_until(3000 + 50 + 70);
    assert!(harness.done.is_some());
}

#[test]
fn what_comes_too_late_is_not_done() {
    let harness = release();
    assert_eq!(harness.last(0, "extend").not_after, Moment::from_millis(50));
}

#[test]
fn keys_gone_or_taken_within_the_least_hold_are_a_loss() {
    let mut harness = release();
    harness.wait_until(2000);
    // None of the commands before this answer can have ended the keys.
    harness.answer(0, "extend", absent());
    harness.answer(1, "extend", theirs(frees_in(10)));
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Expired));
}

#[test]
fn keys_gone_after_the_least_hold_ended_as_asked() {
    let mut harness = release_of(10_000, 3000);
    harness.answer(0, "extend", kept());
    until_a_revoke(&mut harness);
    for node in 1..3 {
        harness.reply(node, Reply { ticket: Ticket(7), answer: absent(), repeated: false });
    }
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Unknown));
}

#[test]
fn keys_gone_within_the_validity_were_ended_by_the_release() {
    let mut harness = release_of(1012, 300);
    harness.answer(0, "extend", kept());
    until_a_revoke(&mut harness);
    assert!(harness.env.now < Moment::from_millis(988));
    for node in 1..3 {
        harness.answer(node, "revoke", absent());
    }
    assert_eq!(harness.machine.outcome(), Some(ReleaseOutcome::Released));
}

#[test]
fn a_release_after_that_time_deletes() {
    let harness = release_of(1012, 0);
    assert_eq!(harness.targets("revoke"), [0, 1, 2]);
    assert_eq!(harness.count("extend"), 0);
}

#[test]
fn of_a_lease_that_is_over_only_its_own_keys_are_shortened() {
    let machine = machine_of(1012, 3000).sparing(Moment::from_millis(1012));
    let harness = Harness::start(machine);
    assert_eq!(harness.targets("extend"), [0, 1, 2]);
    for (_, command) in &harness.sent {
        let own = Some(Duration::from_millis(1012));
        assert!(
            matches!(command.action, Action::Extend { may_shorten, .. } if may_shorten == own),
            "{command:?}"
        );
    }
}

#[test]
fn of_a_lease_that_is_over_only_its_own_keys_are_deleted_after_that_time() {
    let machine = machine_of(30_000, 1000).sparing(Moment::from_millis(30_000)).calling(true);
    let mut harness = Harness::start(machine);
    for round in 1..=3 {
        while harness.count("revoke") < 3 * round {
            assert!(harness.done.is_none(), "it ended early");
            harness.wake();
        }
        // Nobody answers, so it is asked again.
        let own = Moment::from_millis(30_000).since(harness.env.now);
        let Action::Revoke { calls: true, max_remaining } = harness.last(0, "revoke").action else {
            panic!("it calls those that wait")
        };
        assert_eq!(max_remaining, Some(own), "each time by what is left then");
    }
    assert!(harness.env.now > Moment::from_millis(1100));
}
