//! Tests the promises of a lease's life: one operation at a time, no late input revives it, and its
//! keys stay or are taken back according to its end.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{
    Harness, Working, absent, claim, kept, ours, policy, quorum, resources, theirs,
};
use quorlock_protocol::{
    Acquire, Answer, ErrorKind, ExtensionEnd, FencingToken, Frees, Inspect, Lease, LeaseLife,
    LossReason, Machine as _, Moment, NodeId, PolicyBuilder, Release, ReleaseOutcome, Reply, Stage,
    Standing, WorkEnd, WorkId,
};

const fn at(millis: u64) -> Moment {
    Moment::from_millis(millis)
}

/// Won at time zero on three nodes: ttl 1000 ms, valid until 988 ms.
fn lease() -> Lease {
    let policy = policy(|policy| policy);
    let known = FencingToken::default();
    let mut harness = Harness::start(Acquire::new(at(0), resources(), policy, quorum(3), known));
    harness.answer(0, "grant", ours(1000));
    harness.answer(1, "grant", ours(1000));
    harness.outcome().result.unwrap().lease
}

fn life(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> LeaseLife {
    LeaseLife::won(at(0), (lease(), false), policy(change), quorum(3))
}

fn renewed(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Harness<Working> {
    Working::renewing(life(|base| change(base.auto_extend(true))), at(0))
}

fn extended(
    now: u64,
    change: impl FnOnce(PolicyBuilder) -> PolicyBuilder + Clone,
) -> Harness<Working> {
    Working::extending(life(change.clone()), at(now), policy(change))
}

fn delayed(base: PolicyBuilder) -> PolicyBuilder {
    base.lock_delay(Duration::from_millis(500))
}

/// `node` answers what went out last under the number `id`, which may have ended.
fn late(harness: &mut Harness<Working>, id: WorkId, node: u8) {
    let ticket = harness.last(node, "extend").ticket;
    let reply = Reply { ticket, answer: kept(), repeated: false };
    harness.machine.life.work(id).handle_reply(&mut harness.env, NodeId(node), reply);
    harness.machine.life.work(id).poll(&mut harness.env);
}

fn extension(harness: Harness<Working>) -> ExtensionEnd {
    match harness.outcome() {
        WorkEnd::Extended(end) => end,
        other => panic!("{other:?} is no extension"),
    }
}

/// What all three nodes say of the lease at `now`.
fn look(life: &LeaseLife, now: u64, answer: &Answer) -> (WorkId, Standing) {
    let (id, machine) = life.look(at(now), life.policy());
    let mut harness = Harness::<Inspect>::at(at(now), machine);
    for node in 0..3 {
        harness.answer(node, "inspect", Ok(*answer));
    }
    (id, harness.outcome().standing)
}

const fn held(millis: u64) -> Answer {
    let remaining = Some(Duration::from_millis(millis));
    Answer::Ours { token: Some(FencingToken(1000)), remaining }
}

/// How it was lost, and whether its keys are taken back.
fn loss(life: &mut LeaseLife) -> (LossReason, bool) {
    let loss = life.take_loss().expect("it is lost");
    assert_eq!(life.take_loss(), None, "told once");
    assert_eq!(life.stage(), Stage::Lost(loss.reason));
    (loss.reason, loss.withdraw.is_some())
}

#[test]
fn an_extension_stops_the_renewal_and_its_late_replies() {
    let mut harness = renewed(|it| it);
    harness.wait_until(330);
    let old = harness.machine.id;
    let longer = policy(|it| it.auto_extend(true).ttl(Duration::from_secs(2)));
    let now = harness.env.now;
    harness.machine.id = harness.machine.life.extend(now, Arc::new(longer)).expect("it is held");
    harness.settle();
    let before = harness.machine.life.clone();
    late(&mut harness, old, 0);
    late(&mut harness, old, 1);
    assert_eq!(harness.machine.life, before);
    harness.settle();
    assert!(harness.done.is_none(), "those replies are for the renewal");
    assert_eq!(harness.machine.lease().until(), at(988));
}

#[test]
fn a_newer_extension_puts_an_end_to_the_older() {
    let mut harness = extended(100, |it| it);
    let old = harness.machine.id;
    let policy = policy(|it| it.ttl(Duration::from_millis(500)));
    harness.machine.id =
        harness.machine.life.extend(at(100), Arc::new(policy)).expect("it is held");
    harness.settle();
    late(&mut harness, old, 0);
    late(&mut harness, old, 1);
    harness.settle();
    assert!(harness.done.is_none(), "those replies are for the older one");
    assert_eq!(harness.machine.lease().until(), at(988), "the newer one is not confirmed");
}

#[test]
fn a_release_during_an_extension_ends_the_lease_for_good() {
    let mut harness = extended(100, |it| it);
    harness.answer(0, "extend", kept());
    let (old, now) = (harness.machine.id, harness.env.now);
    let release = harness.machine.life.release(now);
    assert!(matches!(release, Release::Asked { was_over: false, .. }));
    assert_eq!(harness.machine.life.validity(now), Duration::ZERO);
    for node in 0..3 {
        harness.machine.life.work(old).handle_reply(
            &mut harness.env,
            NodeId(node),
            Reply {
                ticket: harness.sent[usize::from(node)].1.ticket,
                answer: kept(),
                repeated: false,
            },
        );
    }
    harness.settle();
    assert_eq!(harness.machine.life.validity(now), Duration::ZERO);
    assert_eq!(harness.machine.life.stage(), Stage::Released);
    assert_eq!(harness.machine.life.release(now), Release::NotHeld);
    let end = extension(harness);
    assert_eq!(end.result, Err(ErrorKind::Cancelled));
    assert_eq!(end.last.report().tally().granted, 1, "its driver hears how far it had come");
}

#[test]
fn a_late_reply_after_the_loss_does_not_bring_it_back() {
    let mut harness = renewed(|it| it);
    harness.wait_until(330);
    harness.answer(0, "extend", kept());
    let old = harness.machine.id;
    harness.env.now = at(988);
    harness.machine.handle_timeout(&mut harness.env);
    harness.settle();
    assert_eq!(harness.done, Some(WorkEnd::Lost(None)));
    let before = harness.machine.life.clone();
    late(&mut harness, old, 1);
    assert_eq!(harness.machine.life, before);
    assert_eq!(loss(&mut harness.machine.life), (LossReason::Expired, true));
    assert_eq!(harness.machine.life.resume(at(989), true), None);
    assert_eq!(harness.machine.life.extend(at(989), Arc::new(policy(|it| it))), None);
}

#[test]
fn a_check_does_not_bring_back_what_is_over_by_the_clock() {
    let mut life = life(|it| it);
    let (id, standing) = look(&life, 980, &held(400));
    life.checked(at(990), id, &standing);
    assert_eq!(loss(&mut life), (LossReason::Expired, false));
    assert_eq!(life.validity(at(990)), Duration::ZERO);
}

#[test]
fn a_check_keeps_or_loses_a_lease_by_proof_alone() {
    let mut life = life(|it| it);
    let (id, standing) = look(&life, 100, &held(300));
    life.checked(at(100), id, &standing);
    assert_eq!(life.lease().unwrap().until(), at(988), "it was proved for longer");
    let (id, standing) = look(&life, 200, &Answer::Absent);
    life.checked(at(200), id, &standing);
    assert_eq!(loss(&mut life), (LossReason::Gone, false));
}

#[test]
fn the_first_look_proves_a_lease_that_was_taken_over() {
    let policy = policy(|it| it);
    let mut life = LeaseLife::taken_over(at(0), claim("h"), policy, quorum(3));
    assert_eq!((life.validity(at(0)), life.is_over(at(0))), (Duration::ZERO, false));
    assert!(life.lacks_token(&policy));
    let (id, standing) = look(&life, 0, &held(400));
    life.learn(at(0), id, &standing);
    assert_eq!(life.lease().unwrap().until(), at(400 - 4 - 2));
    assert_eq!(life.fencing_token(), Some(FencingToken(1000)));
    // One that was asked for before another work began knows less than that.
    let mut life = LeaseLife::taken_over(at(0), claim("h"), policy, quorum(3));
    let (id, standing) = look(&life, 0, &held(900));
    life.extend(at(0), Arc::new(policy));
    life.learn(at(0), id, &standing);
    assert_eq!(life.lease(), None);
}

#[test]
fn an_extension_that_is_given_up_leaves_what_is_proved() {
    let mut harness = extended(100, |it| it.ttl(Duration::from_millis(500)));
    harness.cancel();
    assert_eq!(harness.machine.life.stage(), Stage::Held);
    assert_eq!(harness.machine.lease().until(), at(988), "no node has shortened a key");
    assert_eq!(extension(harness).result, Err(ErrorKind::Cancelled));
}

#[test]
fn who_is_told_to_renew_no_longer_during_an_extension_does_not() {
    let mut harness = extended(100, |it| it.auto_extend(true));
    harness.machine.life.let_run_out(at(100));
    assert!(harness.machine.life.is_extending());
    harness.answer(0, "extend", kept());
    harness.answer(1, "extend", kept());
    assert_eq!(harness.machine.life.resume(at(100), true), None);
    assert_eq!(extension(harness).result, Ok(()));
}

/// Every way to lose a lease: by the clock, by what the nodes tell its renewal, an extension or a check.
fn losses(change: impl Fn(PolicyBuilder) -> PolicyBuilder + Copy) -> Vec<LeaseLife> {
    let mut watched = life(change);
    watched.watch();
    let mut by_clock = Working::renewing(watched, at(0));
    by_clock.wait_until(988);
    let mut found = life(change);
    found.expire(at(988));
    let mut by_renewal = renewed(change);
    by_renewal.wait_until(330);
    let mut by_extension = extended(100, change);
    for harness in [&mut by_renewal, &mut by_extension] {
        harness.answer(0, "extend", theirs(Frees::Unknown));
        harness.answer(1, "extend", absent());
    }
    let mut by_check = life(change);
    let (id, standing) = look(&by_check, 100, &Answer::Absent);
    by_check.checked(at(100), id, &standing);
    let lives = [by_clock, by_renewal, by_extension].map(|harness| harness.machine.life);
    lives.into_iter().chain([found, by_check]).collect()
}

#[test]
fn keys_of_a_lost_lease_stay_unless_its_own_renewal_has_failed() {
    let told = |life: &mut LeaseLife| loss(life);
    let plain: Vec<_> = losses(|it| it).iter_mut().map(told).collect();
    // One that is not renewed may be another's by now, who has its token and has extended it.
    let (expired, gone) = ((LossReason::Expired, false), (LossReason::Gone, false));
    assert_eq!(plain, [expired, gone, gone, expired, gone]);
    let failing = |life| {
        let mut renewed = Working::renewing(life, at(0));
        renewed.wait_until(988);
        loss(&mut renewed.machine.life)
    };
    assert_eq!(failing(life(|it| it.auto_extend(true))), (LossReason::Expired, true));
    let policy = policy(|it| it.auto_extend(true));
    let mut taken = LeaseLife::taken_over(at(0), claim("h"), policy, quorum(3));
    let (id, standing) = look(&taken, 0, &held(1000));
    taken.learn(at(0), id, &standing);
    assert_eq!(failing(taken), (LossReason::Expired, false), "who won it may go by its keys");
    let later: Vec<_> = losses(delayed).iter_mut().map(told).collect();
    assert!(later.iter().all(|(_, is_taken_back)| !is_taken_back), "{later:?}");
}

#[test]
fn the_release_of_a_lost_lease_takes_back_only_its_keys() {
    for mut life in losses(|it| it).into_iter().chain(losses(delayed)) {
        let (reason, is_taken_back) = loss(&mut life);
        let Release::Lost(left) = life.release(at(1000)) else { panic!("it is lost") };
        assert_eq!(left.is_some(), !is_taken_back);
        assert_eq!(life.lost(), Some(reason), "the loss is remembered");
        assert_eq!(life.release(at(1000)), Release::NotHeld);
    }
}

#[test]
fn what_never_reached_its_user_is_withdrawn_once() {
    let mut unused = life(|it| it.min_hold(Duration::from_secs(5)));
    let mut harness = Harness::start(unused.withdraw(at(0)).expect("it was held"));
    assert_eq!(harness.targets("revoke"), [0, 1, 2], "no least hold");
    harness.settle();
    assert_eq!(unused.withdraw(at(0)), None);
    let mut used = life(|it| it.min_hold(Duration::from_secs(5)));
    let Release::Asked { withdraw, .. } = used.release(at(0)) else { panic!("it was held") };
    assert_eq!(Harness::start(withdraw).targets("revoke"), [0; 0], "it is left for that time");
}

#[test]
fn the_release_of_what_is_over_is_told_as_expired() {
    let mut life = life(|it| it);
    let Release::Asked { was_over, .. } = life.release(at(988)) else { panic!("nobody knew") };
    assert!(was_over);
    assert_eq!(ReleaseOutcome::Released.seen(was_over), ReleaseOutcome::Expired);
    assert_eq!(ReleaseOutcome::Unknown.seen(was_over), ReleaseOutcome::Expired);
    assert_eq!(ReleaseOutcome::Taken.seen(was_over), ReleaseOutcome::Taken);
    assert_eq!(ReleaseOutcome::Released.seen(false), ReleaseOutcome::Released);
}

/// How much may be left of a key that the release at `now` deletes.
fn release_deletes(mut life: LeaseLife, now: u64) -> Option<Duration> {
    match life.release(at(now)) {
        Release::Asked { withdraw, .. } | Release::Lost(Some(withdraw)) => {
            withdraw.max_remaining(at(now))
        }
        end => panic!("{end:?} asks no node"),
    }
}

#[test]
fn the_release_of_what_is_over_spares_what_another_may_have_extended() {
    assert_eq!(release_deletes(life(|it| it), 987), None, "it ends the lease for all");
    // It asked for 1000 ms at time zero, and waited 50 ms for each node.
    let asked_until = 1000 + 12 + 50;
    assert_eq!(release_deletes(life(|it| it), 988), Some(Duration::ZERO), "they run out");
    let mut shortened = extended(100, |it| it.ttl(Duration::from_millis(200)));
    shortened.answer(0, "extend", kept());
    shortened.answer(1, "extend", kept());
    let own = Some(Duration::from_millis(asked_until - 500));
    assert_eq!(release_deletes(shortened.machine.life, 500), own, "it asked for longer before");
    let mut given_up = extended(10, |it| it);
    given_up.cancel();
    let left = release_deletes(given_up.machine.life, 988);
    assert!(left > Some(Duration::ZERO), "a node may have extended it: {left:?}");
    let mut unproved = LeaseLife::taken_over(at(0), claim("h"), policy(|it| it), quorum(3));
    let (id, standing) = look(&unproved, 100, &Answer::Absent);
    unproved.checked(at(100), id, &standing);
    assert_eq!(unproved.stage(), Stage::Lost(LossReason::Gone));
    assert_eq!(release_deletes(unproved, 100), None, "nobody can rely on what is left");
    for mut lost in losses(|it| it) {
        let (reason, _) = loss(&mut lost);
        let now = if reason == LossReason::Gone { 400 } else { 988 };
        let left = release_deletes(lost, now);
        let is_early = reason == LossReason::Gone;
        assert_eq!(left.is_some_and(|it| it > Duration::from_millis(500)), is_early, "{left:?}");
    }
}

#[test]
fn a_loss_spares_what_lasts_longer_than_its_own_keys() {
    let mut renewed = renewed(|it| it);
    renewed.wait_until(988);
    let machine = renewed.machine.life.take_loss().and_then(|loss| loss.withdraw);
    let left = machine.expect("its renewals have failed").max_remaining(at(988));
    let own = renewed.machine.life.lease().map(|lease| lease.keys_expire_by().since(at(988)));
    assert_eq!(left, own);
    assert!(own > Some(Duration::from_millis(900)), "nodes may have renewed it: {own:?}");
}
