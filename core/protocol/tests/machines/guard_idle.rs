//! Tests nodes that forgot while nobody used the cluster: when their grants count at once.

use std::time::Duration;

use crate::guard_world::{Cluster, Watcher, settled_in};

#[test]
fn a_node_that_forgot_is_used_at_once_in_an_idle_cluster() {
    let (mut cluster, client) = settled_in(3);
    drop(client);
    cluster.pass(36_001);
    cluster.restart(1);
    let newcomer = cluster.settled_afar(|it| it);
    assert_eq!(newcomer.view(), "ooo");
    // A client that starts later need not find that out again.
    cluster.pass(1_000);
    assert_eq!(cluster.settled_afar(|it| it).view(), "ooo");
}

#[test]
fn a_cluster_that_was_used_a_moment_ago_is_not_idle() {
    for others_look in [false, true] {
        let (mut cluster, mut client) = settled_in(3);
        if others_look {
            // Somebody has looked since, at a quorum that may have granted.
            cluster.pass(36_001);
            client.look_around(&mut cluster);
        } else {
            cluster.pass(35_999);
        }
        cluster.restart(1);
        assert_eq!(cluster.settled(|it| it).view(), "oqo", "looked at since: {others_look}");
    }
}

#[test]
fn without_a_quorum_that_remembers_no_cluster_is_idle() {
    let (mut cluster, client) = settled_in(3);
    drop(client);
    cluster.pass(40_000);
    cluster.restart_each([1, 2]);
    assert_eq!(cluster.settled_afar(|it| it).view(), "oqq");
}

#[test]
fn an_idle_cluster_waits_for_a_long_lock_that_may_be_held() {
    let (mut cluster, mut client) = settled_in(3);
    assert!(client.lock(&mut cluster, 60_000).is_some());
    drop(client);
    cluster.pass(40_000);
    cluster.restart(1);
    let newcomer = cluster.settled_afar(|it| it);
    assert_eq!(newcomer.view(), "oqo");
    assert!(newcomer.left(&cluster, 1) > 20_000);
}

#[test]
fn idle_nodes_that_forgot_do_not_vouch_for_each_other() {
    let limit = Some(Duration::from_secs(600));
    let change = |it: quorlock_protocol::PolicyBuilder| it.max_ttl(limit);
    let mut cluster = Cluster::fresh(3);
    drop(cluster.settled(change));
    let mut holder = cluster.client(change);
    holder.cut_off[2] = true;
    holder.look_around(&mut cluster);
    let until = holder.lock(&mut cluster, 600_000).expect("a lock of ten minutes");
    cluster.pass(6_000);
    cluster.restart_each([0, 1]);
    // Somebody looks, and goes. Nobody uses the cluster for a while.
    drop(cluster.settled_afar(change));
    cluster.pass(40_000);
    let mut newcomer = cluster.settled_afar(change);
    assert_eq!(newcomer.view(), "qqo");
    cluster.pass(1_000);
    newcomer.look_around(&mut cluster);
    assert!(u128::from(cluster.now) + newcomer.left(&cluster, 0) >= u128::from(until));
}

/// Nodes that nobody has used for a while, of which node 2 has forgotten, and a client that has not looked yet.
fn idle_with_a_node_that_forgot() -> (Cluster, Watcher) {
    let (mut cluster, client) = settled_in(3);
    drop(client);
    cluster.pass(40_000);
    cluster.restart(2);
    let mut newcomer = cluster.client(|it| it);
    newcomer.latency = 1;
    (cluster, newcomer)
}

#[test]
fn a_client_that_finds_a_node_idle_asks_the_others_before_it_beats() {
    let (mut cluster, mut newcomer) = idle_with_a_node_that_forgot();
    let beats = cluster.nodes[0].store.clone();
    newcomer.look(&mut cluster, 0);
    assert_eq!((newcomer.view(), &cluster.nodes[0].store), ("?--".into(), &beats));
    newcomer.look_around(&mut cluster);
    assert_eq!(newcomer.view(), "ooo");
}

#[test]
fn a_node_that_forgot_is_used_at_once_in_an_idle_cluster_whichever_answers_first() {
    for order in [[2, 0, 1, 0, 1, 2], [2, 0, 1, 1, 0, 2], [0, 2, 1, 0, 1, 2], [0, 1, 2, 0, 1, 2]] {
        let (mut cluster, mut newcomer) = idle_with_a_node_that_forgot();
        for node in order {
            newcomer.look(&mut cluster, node);
        }
        newcomer.look_around(&mut cluster);
        assert_eq!(newcomer.view(), "ooo", "{order:?}");
    }
}

#[test]
fn a_far_node_that_forgot_is_used_at_once_in_an_idle_cluster() {
    for (late, view) in [(300, "ooo"), (600, "ooq")] {
        let (mut cluster, mut newcomer) = idle_with_a_node_that_forgot();
        newcomer.look(&mut cluster, 0);
        newcomer.look(&mut cluster, 1);
        cluster.pass(late);
        // These are heard again before the far one is for the first time.
        newcomer.look(&mut cluster, 0);
        newcomer.look(&mut cluster, 1);
        for _ in 0..2 {
            newcomer.look_around(&mut cluster);
        }
        assert_eq!(newcomer.view(), view, "after {late} ms");
    }
}
