//! Tests how long a node is in quarantine, and which nodes' notes can end that.

use std::time::Duration;

use quorlock_protocol::{QuarantineReason, Ruling};

use crate::guard_world::{Cluster, TERM, one_after_another, settled_in, term, ttl, used};

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
fn what_one_has_waited_counts_for_all() {
    let (mut cluster, mut one) = used(3);
    let mut two = cluster.settled(|it| it);
    cluster.restart(1);
    one.look_around(&mut cluster);
    cluster.pass(TERM);
    one.look_around(&mut cluster);
    assert_eq!(one.view(), "ooo");
    // The other has not seen the quarantine at all: long enough was waited for its locks, too.
    assert!(!two.grant(&mut cluster, 1));
    assert_eq!(two.view(), "ooo");
    assert!(two.grant(&mut cluster, 1));
}

#[test]
fn locks_up_to_ten_seconds_are_waited_for_with_and_without_others() {
    for longest in [1_000, 2_000, 10_000] {
        let mut cluster = Cluster::fresh(3);
        let mut short = cluster.settled(ttl(longest));
        cluster.restart(1);
        short.look_around(&mut cluster);
        assert_eq!(short.left(&cluster, 1), u128::from(term(10_000)));
    }
}

#[test]
fn a_lower_max_ttl_of_all_is_waited_for() {
    let second = Some(Duration::from_secs(1));
    let change = |it: quorlock_protocol::PolicyBuilder| ttl(1_000)(it).max_ttl(second);
    let mut cluster = Cluster::fresh(3);
    let mut short = cluster.settled(change);
    cluster.restart(1);
    short.look_around(&mut cluster);
    assert_eq!(short.left(&cluster, 1), 1_012);
    // Once somebody comes who has set none, all wait for its locks, too.
    drop(cluster.settled(|it| it));
    cluster.restart(1);
    short.look_around(&mut cluster);
    assert_eq!(short.left(&cluster, 1), u128::from(TERM));
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
fn max_ttl_is_waited_for_where_few_remember() {
    let mut cluster = Cluster::fresh(3);
    let hour = Some(Duration::from_secs(3600));
    let mut client = cluster.settled(|it| it.max_ttl(hour));
    cluster.restart(1);
    client.look_around(&mut cluster);
    // The two others remember every long lock that there may be.
    assert_eq!(client.left(&cluster, 1), u128::from(TERM));
    cluster.restart(2);
    client.look_around(&mut cluster);
    cluster.pass(1_000);
    client.look_around(&mut cluster);
    for node in [1, 2] {
        assert_eq!(client.left(&cluster, node), u128::from(term(3_600_000) - 1_000));
    }
}

#[test]
fn a_node_not_looked_at_since_does_not_vouch_for_another() {
    let change = |it: quorlock_protocol::PolicyBuilder| it.max_ttl(Some(Duration::from_secs(60)));
    let mut cluster = Cluster::fresh(3);
    let mut client = cluster.settled(change);
    client.cut_off[0] = true;
    cluster.pass(5_000);
    client.look_around(&mut cluster);
    cluster.restart_each([0, 1]);
    let mut other = cluster.settled(change);
    cluster.pass(TERM);
    other.look_around(&mut cluster);
    drop(other);
    // It comes back to the one before it has heard that the second has forgotten, too.
    client.cut_off[0] = false;
    client.look(&mut cluster, 0);
    assert!(!client.is_open(0), "{}", client.view());
}

#[test]
fn with_few_that_remember_locks_are_no_longer_than_their_memory() {
    let (mut cluster, mut client) = settled_in(3);
    cluster.restart_each([1, 2]);
    client.look_around(&mut cluster);
    cluster.pass(TERM);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "ooo");
    for node in [1, 2] {
        assert!(client.grant(&mut cluster, node));
        assert!(matches!(&client.rulings[node], Some(Ruling::Open(pass))
            if pass.longest >= Duration::from_secs(10) && pass.longest < Duration::from_secs(11)));
    }
    assert!(client.lock(&mut cluster, 60_000).is_none());
    cluster.pass(term(60_000));
    client.look_around(&mut cluster);
    assert!(client.lock(&mut cluster, 60_000).is_some());
}

#[test]
fn what_others_have_waited_counts_by_the_more_careful_clock() {
    let (mut cluster, mut client) = settled_in(3);
    cluster.restart(1);
    client.look_around(&mut cluster);
    cluster.pass(6_000);
    let left = |cluster: &mut Cluster, wall: i64, node: i64| {
        let mut cluster = cluster.clone();
        cluster.nodes[1].ahead = node;
        let mut newcomer = cluster.client(|it| it.clock_guard(false));
        newcomer.wall_ahead = wall;
        newcomer.look_around(&mut cluster);
        newcomer.left(&cluster, 1)
    };
    assert_eq!(left(&mut cluster, 0, 0), u128::from(TERM - 6_000));
    // A wall clock an hour ahead: the node's clock tells. A node's clock that jumped: the wall tells.
    assert_eq!(left(&mut cluster, 3_600_000, 0), u128::from(TERM - 6_000));
    assert_eq!(left(&mut cluster, 0, 3_600_000), u128::from(TERM - 6_000));
    // A wall clock that is behind says nothing: the whole term.
    assert_eq!(left(&mut cluster, -3_600_000, 0), u128::from(TERM));
}

#[test]
fn clients_that_come_one_after_another_see_the_quarantine_end() {
    for life in [0, 200, 2_000] {
        let (mut cluster, _) = settled_in(3);
        cluster.restart(1);
        let began = cluster.now;
        one_after_another(&mut cluster, life);
        assert!(cluster.now >= began + TERM - 1, "lives of {life} ms");
    }
}

#[test]
fn a_canary_that_another_has_put_there_first_is_not_overwritten() {
    let (mut cluster, mut one) = used(3);
    cluster.restart(1);
    let mut two = one.clone();
    one.look(&mut cluster, 1);
    let canary = cluster.nodes[1].store.canary.clone();
    cluster.pass(3_000);
    two.look(&mut cluster, 1);
    assert_eq!(cluster.nodes[1].store.canary, canary);
    assert_eq!(two.left(&cluster, 1), u128::from(TERM - 3_000));
    let reason = QuarantineReason::Restarted;
    assert!(matches!(&two.rulings[1], Some(Ruling::Quarantined(it)) if it.reason == reason));
}
