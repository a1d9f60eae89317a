//! How a cluster that nobody has used is set up, and which choices of guards there are.

use quorlock_protocol::{PolicyBuilder, RestartGuard};

use crate::guard_stage::{Cluster, TERM, used};

#[test]
fn a_fresh_cluster_is_used_at_once() {
    let (mut cluster, mut client) = used(3);
    assert_eq!(client.view(), "ooo");
    assert!((0..3).all(|node| client.grant(&mut cluster, node)));
    assert!(client.told.is_empty());
}

#[test]
fn two_clients_set_a_fresh_cluster_up_together() {
    let mut cluster = Cluster::fresh(3);
    let (mut one, mut two) = (cluster.client(|it| it), cluster.client(|it| it));
    for node in 0..3 {
        one.look(&mut cluster, node);
        two.look(&mut cluster, node);
    }
    // Either of them may be the first to come by again.
    one.follow_up(&mut cluster);
    two.follow_up(&mut cluster);
    assert_eq!((one.view(), two.view()), ("ooo".into(), "ooo".into()));
    assert!((0..3).all(|node| one.grant(&mut cluster, node) && two.grant(&mut cluster, node)));
}

#[test]
fn who_comes_while_a_cluster_is_set_up_does_not_hold_it_up() {
    let mut cluster = Cluster::fresh(3);
    let (mut founder, mut other) = (cluster.client(|it| it), cluster.client(|it| it));
    for node in 0..3 {
        founder.look(&mut cluster, node);
    }
    // The last look found the cluster new and has written one canary; the others are still to come.
    other.look_around(&mut cluster);
    assert_eq!(other.view(), "??o");
    founder.follow_up(&mut cluster);
    assert_eq!(founder.view(), "ooo");
    cluster.pass(100);
    other.look_around(&mut cluster);
    assert_eq!(other.view(), "ooo");
}

#[test]
fn a_founder_that_dies_half_way_leaves_nodes_that_are_waited_for() {
    let mut cluster = Cluster::fresh(3);
    let mut founder = cluster.client(|it| it);
    for node in 0..3 {
        founder.look(&mut cluster, node);
    }
    let mut other = cluster.settled(|it| it);
    cluster.pass(1_001);
    other.look_around(&mut cluster);
    assert_eq!(other.view(), "qqo");
    cluster.pass(TERM);
    other.look_around(&mut cluster);
    assert_eq!(other.view(), "ooo");
}

#[test]
fn a_founder_that_is_late_does_not_overrule_who_waits() {
    let mut cluster = Cluster::fresh(3);
    let mut founder = cluster.client(|it| it);
    for node in 0..3 {
        founder.look(&mut cluster, node);
    }
    let mut other = cluster.settled(|it| it);
    cluster.pass(1_001);
    founder.look_around(&mut cluster);
    assert_eq!(founder.view(), "qqo");
    other.look_around(&mut cluster);
    assert_eq!(other.view(), "qqo");
}

#[test]
fn a_founder_does_not_set_up_a_node_that_was_started_anew() {
    let mut cluster = Cluster::fresh(3);
    let (mut slow, mut quick) = (cluster.client(|it| it), cluster.client(|it| it));
    quick.look(&mut cluster, 2);
    quick.look(&mut cluster, 1);
    for node in 0..3 {
        slow.look(&mut cluster, node);
    }
    // Both have found the cluster new. The quick one gets a lock on node 0, and the node forgets it.
    quick.look(&mut cluster, 0);
    quick.follow_up(&mut cluster);
    assert!(quick.grant(&mut cluster, 0));
    cluster.restart(0);
    slow.follow_up(&mut cluster);
    assert!(!slow.grant(&mut cluster, 0));
}

#[test]
fn a_cluster_is_not_new_before_every_node_was_tried() {
    let mut cluster = Cluster::fresh(3);
    let mut client = cluster.client(|it| it);
    client.look(&mut cluster, 0);
    client.look(&mut cluster, 1);
    client.follow_up(&mut cluster);
    assert_eq!(client.view(), "??-");
    cluster.nodes[2].is_up = false;
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "oo-");
}

#[test]
fn a_minority_that_answers_is_no_new_cluster() {
    let mut cluster = Cluster::fresh(3);
    (cluster.nodes[1].is_up, cluster.nodes[2].is_up) = (false, false);
    let mut client = cluster.settled(|it| it);
    cluster.pass(60_000);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "?--");
}

#[test]
fn who_saw_only_quarantines_does_not_take_the_cluster_for_new() {
    let (mut cluster, mut client) = used(3);
    for node in 0..3 {
        cluster.restart(node);
    }
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "qqq");
    let mut newcomer = cluster.settled(|it| it);
    for node in 0..3 {
        cluster.restart(node);
    }
    newcomer.look_around(&mut cluster);
    assert_eq!(newcomer.view(), "qqq");
}

#[test]
fn strict_waits_also_for_a_cluster_without_a_history() {
    let mut cluster = Cluster::fresh(3);
    let mut client = cluster.settled(|it| it.restart_guard(RestartGuard::Strict));
    assert_eq!(client.view(), "???");
    cluster.pass(TERM - 1);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "qqq");
    cluster.pass(1);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "ooo");
}

#[test]
fn off_relies_on_every_node() {
    let mut cluster = Cluster::fresh(3);
    let change = |it: PolicyBuilder| it.restart_guard(RestartGuard::Off).clock_guard(false);
    let mut client = cluster.settled(change);
    assert!(!client.guards.are_on());
    cluster.restart(1);
    client.look_around(&mut cluster);
    assert!(client.grant(&mut cluster, 1));
}

#[test]
fn a_lone_node_is_guarded_only_by_strict() {
    let mut cluster = Cluster::fresh(1);
    let client = cluster.client(|it| it);
    assert!(!client.guards.are_on());
    let mut strict = cluster.settled(|it| it.restart_guard(RestartGuard::Strict));
    assert!(strict.guards.are_on());
    cluster.pass(TERM);
    strict.look_around(&mut cluster);
    assert_eq!(strict.view(), "o");
    cluster.restart(0);
    strict.look_around(&mut cluster);
    assert_eq!(strict.view(), "q");
}
