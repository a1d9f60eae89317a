//! For how long a node is held back, and who ends that.

use std::time::Duration;

use quorlock_protocol::{Guards, Notes, QuarantineReason, Quorum, Ruling};

use crate::guard_stage::{Cluster, TERM, one_after_another, policy, reasons, ttl, used};

#[test]
fn a_second_restart_begins_the_quarantine_anew() {
    let (mut cluster, mut client) = used(3);
    cluster.restart(1);
    client.look_around(&mut cluster);
    cluster.pass(9_000);
    cluster.restart(1);
    client.look_around(&mut cluster);
    assert_eq!(client.left(&cluster, 1), u128::from(TERM));
    // The same for who knows it only from its quarantine, and if the canary of that came back.
    let mut newcomer = cluster.settled(|it| it);
    cluster.pass(9_000);
    cluster.nodes[1].run += 1;
    newcomer.look_around(&mut cluster);
    assert_eq!(newcomer.left(&cluster, 1), u128::from(TERM));
}

#[test]
fn whoever_has_waited_writes_the_canary_for_all() {
    let (mut cluster, mut one) = used(3);
    let mut two = cluster.settled(|it| it);
    cluster.restart(1);
    one.look_around(&mut cluster);
    cluster.pass(TERM);
    one.look_around(&mut cluster);
    // The other has not seen the quarantine at all: long enough was waited for its locks, too.
    assert!(!two.grant(&mut cluster, 1));
    assert_eq!(two.view(), "ooo");
    assert!(two.grant(&mut cluster, 1));
}

#[test]
fn a_canary_of_who_waited_for_less_is_not_relied_on() {
    let mut cluster = Cluster::fresh(3);
    let mut short = cluster.settled(ttl(1_000));
    let mut long = cluster.settled(|it| it);
    // It is too long ago that the short one looked at the others: they forget their notes.
    for node in 0..3 {
        cluster.nodes[node].notes = Notes::default();
    }
    cluster.restart(1);
    short.look_around(&mut cluster);
    cluster.pass(1_012);
    short.look_around(&mut cluster);
    assert_eq!(short.view(), "ooo");
    assert!(!long.grant(&mut cluster, 1));
    assert_eq!((long.view(), reasons(&long)), ("oqo".into(), vec!["forgot"]));
    // From then on the short one knows better.
    assert!(!short.grant(&mut cluster, 1));
    assert_eq!(short.left(&cluster, 1), u128::from(TERM));
}

#[test]
fn a_longer_ttl_that_is_noted_during_the_quarantine_prolongs_it() {
    let mut cluster = Cluster::fresh(3);
    let mut short = cluster.settled(ttl(1_000));
    // A lock of ten seconds stands on nodes 1 and 2 when node 1 forgets. The note on node 2 came after
    // the short one had looked there, and it is not going to look again for a while.
    let mut long = cluster.settled(|it| it);
    assert!(long.grant(&mut cluster, 1) && long.grant(&mut cluster, 2));
    cluster.restart(1);
    short.look(&mut cluster, 1);
    cluster.pass(1_012);
    short.look(&mut cluster, 1);
    short.follow_up(&mut cluster);
    assert_eq!(short.view(), "oqo");
    assert_eq!(short.left(&cluster, 1), u128::from(TERM - 1_012));
}

#[test]
fn a_node_that_is_down_does_not_keep_a_quarantine_from_ending() {
    let (mut cluster, mut client) = used(3);
    cluster.restart(1);
    client.look_around(&mut cluster);
    cluster.nodes[2].is_up = false;
    cluster.pass(TERM);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "oo-");
}

#[test]
fn a_node_that_hangs_holds_the_end_of_a_quarantine_up_for_a_moment() {
    let (mut cluster, mut client) = used(3);
    cluster.restart(1);
    client.look_around(&mut cluster);
    cluster.nodes[2].hangs = true;
    cluster.pass(TERM);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "o?o");
    cluster.pass(1_000);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "ooo");
}

#[test]
fn a_longer_ttl_of_its_own_prolongs_the_quarantine() {
    let (mut cluster, mut client) = used(3);
    cluster.restart(1);
    client.look_around(&mut cluster);
    cluster.pass(5_000);
    let policy = policy(ttl(60_000));
    assert!(client.guards.handle_policy(&policy));
    client.look_around(&mut cluster);
    assert_eq!(client.left(&cluster, 1), 60_000 + 602 - 5_000);
    assert!(!client.guards.handle_policy(&policy));
}

#[test]
fn max_ttl_is_waited_for_from_the_start() {
    let mut cluster = Cluster::fresh(3);
    let hour = Duration::from_secs(3600);
    let mut client = cluster.settled(|it| it.max_ttl(Some(hour)));
    cluster.restart(1);
    client.look_around(&mut cluster);
    assert_eq!(client.left(&cluster, 1), 3_600_000 + 36_002);
    // So is one that only others have set.
    let newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.left(&cluster, 1), 3_600_000 + 36_002);
}

#[test]
fn what_others_have_waited_counts_by_the_more_careful_clock() {
    let (mut cluster, mut client) = used(3);
    cluster.restart(1);
    client.look_around(&mut cluster);
    cluster.pass(6_000);
    let newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.left(&cluster, 1), u128::from(TERM - 6_000));
    // A wall clock an hour ahead: the node's clock tells. A node's clock that jumped: the wall tells.
    let mut ahead = cluster.client(|it| it);
    ahead.wall_ahead = 3_600_000;
    ahead.look_around(&mut cluster);
    assert_eq!(ahead.left(&cluster, 1), u128::from(TERM - 6_000));
    cluster.nodes[1].ahead = 3_600_000;
    let fooled = cluster.settled(|it| it);
    assert_eq!(fooled.left(&cluster, 1), u128::from(TERM - 6_000));
    // A wall clock that is behind says nothing: the whole term.
    let mut behind = cluster.client(|it| it);
    behind.wall_ahead = -3_600_000;
    behind.look_around(&mut cluster);
    assert_eq!(behind.left(&cluster, 1), u128::from(TERM));
}

#[test]
fn clients_that_come_one_after_another_see_the_quarantine_end() {
    for life in [0, 200, 2_000] {
        let (mut cluster, _) = used(3);
        cluster.restart(1);
        let began = cluster.now;
        one_after_another(&mut cluster, life);
        assert!(cluster.now >= began + TERM - 1, "lives of {life} ms");
    }
}

#[test]
fn who_knows_no_ttl_ends_no_quarantine() {
    let (mut cluster, _) = used(3);
    for node in &mut cluster.nodes {
        node.notes = Notes::default();
    }
    cluster.restart(1);
    let policy = policy(|it| it);
    let mut idle = cluster.client(|it| it);
    idle.guards = Guards::new(&policy, Quorum::of(3));
    idle.look_around(&mut cluster);
    cluster.pass(3_600_000);
    idle.look_around(&mut cluster);
    assert_eq!(idle.view(), "oqo");
    // Its first lock tells how long; that has passed long ago.
    idle.guards.handle_policy(&policy);
    idle.look_around(&mut cluster);
    assert_eq!(idle.view(), "ooo");
}

#[test]
fn a_canary_that_another_has_put_there_first_is_not_overwritten() {
    let (mut cluster, mut one) = used(3);
    cluster.restart(1);
    let mut two = one.clone();
    one.look(&mut cluster, 1);
    let canary = cluster.nodes[1].canary.clone();
    cluster.pass(3_000);
    two.look(&mut cluster, 1);
    assert_eq!(cluster.nodes[1].canary, canary);
    assert_eq!(two.left(&cluster, 1), u128::from(TERM - 3_000));
    let reason = QuarantineReason::Restarted;
    assert!(matches!(&two.rulings[1], Some(Ruling::Quarantined(it)) if it.reason == reason));
}
