//! Tests how a new cluster is founded, and which settings of the guards there are.

use std::time::Duration;

use quorlock_protocol::{PolicyBuilder, RestartGuard, Ruling};

use crate::guard_world::{Cluster, PretendNode, TERM, Watcher, settled_in, used};

/// Lets the client wait until nobody can be about to set the cluster up any more.
fn give_up_on_a_founder(client: &mut Watcher, cluster: &mut Cluster) {
    for millis in [1_001, 3_001] {
        cluster.pass(millis);
        client.look_around(cluster);
    }
}

#[test]
fn a_fresh_cluster_is_used_at_once() {
    let (mut cluster, mut client) = used(3);
    assert_eq!(client.view(), "ooo");
    assert!((0..3).all(|node| client.grant(&mut cluster, node)));
    assert!(client.told.is_empty());
    // For locks of any length.
    assert!(client.lock(&mut cluster, 3_600_000).is_some());
}

#[test]
fn a_cluster_that_forgot_as_a_whole_is_new_to_newcomers() {
    for (guard, is_used) in [(RestartGuard::Auto, true), (RestartGuard::Strict, false)] {
        let (mut cluster, mut other) = settled_in(3);
        cluster.nodes.iter_mut().for_each(PretendNode::flush);
        let newcomer = cluster.settled(|it| it.restart_guard(guard));
        assert_eq!(newcomer.is_open(0), is_used, "{guard:?}");
        // Who was there holds the nodes back for himself alone.
        other.look_around(&mut cluster);
        assert_eq!(other.view(), "qqq", "{guard:?}");
        assert_eq!(cluster.settled(|it| it.restart_guard(guard)).is_open(0), is_used);
    }
}

#[test]
fn a_strict_client_heeds_long_locks_from_before_all_forgot() {
    let change = |it: PolicyBuilder| it.restart_guard(RestartGuard::Strict);
    let mut cluster = Cluster::fresh(3);
    let mut holder = cluster.settled(change);
    cluster.pass(TERM);
    holder.look_around(&mut cluster);
    let mut other = cluster.settled(change);
    assert!(holder.lock(&mut cluster, 600_000).is_some());
    other.look_around(&mut cluster);
    // The holder is cut off from now on; nobody else is.
    cluster.nodes.iter_mut().for_each(PretendNode::flush);
    let mut newcomer = cluster.settled(change);
    other.look_around(&mut cluster);
    cluster.pass(TERM);
    newcomer.look_around(&mut cluster);
    other.look_around(&mut cluster);
    assert_eq!((newcomer.view(), other.view()), ("qqq".into(), "qqq".into()));
}

#[test]
fn nodes_that_have_lost_their_canaries_alone_are_no_new_cluster() {
    let (mut cluster, mut client) = settled_in(3);
    assert!(client.lock(&mut cluster, 90_000).is_some());
    drop(client);
    cluster.nodes.iter_mut().for_each(|node| node.store.canary = None);
    let newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.view().matches('o').count(), 0, "{}", newcomer.view());
}

#[test]
fn two_clients_that_find_a_fresh_cluster_use_it_together() {
    let mut cluster = Cluster::fresh(3);
    let (mut one, mut two) = (cluster.client(|it| it), cluster.client(|it| it));
    for node in 0..3 {
        one.look(&mut cluster, node);
        two.look(&mut cluster, node);
    }
    // Either of them may be the first to come by again.
    for _ in 0..4 {
        one.follow_up(&mut cluster);
        two.follow_up(&mut cluster);
        one.look_around(&mut cluster);
        two.look_around(&mut cluster);
    }
    assert_eq!((one.view(), two.view()), ("ooo".into(), "ooo".into()));
    for client in [&mut one, &mut two] {
        assert!(client.lock(&mut cluster, 10_000).is_some());
        client.unlock(&mut cluster);
    }
}

#[test]
fn who_comes_while_a_cluster_is_set_up_waits_for_it() {
    let mut cluster = Cluster::fresh(3);
    let (mut founder, mut other) = (cluster.client(|it| it), cluster.client(|it| it));
    for node in [0, 1, 2, 0] {
        founder.look(&mut cluster, node);
    }
    other.look_around(&mut cluster);
    let canaries =
        |cluster: &Cluster| cluster.nodes.iter().filter(|it| it.store.canary.is_some()).count();
    assert_eq!(canaries(&cluster), 1, "only that of the registrar stands");
    founder.follow_up(&mut cluster);
    assert_eq!((founder.view(), canaries(&cluster)), ("ooo".into(), 3));
    cluster.pass(100);
    other.look_around(&mut cluster);
    assert_eq!(other.view(), "ooo");
}

#[test]
fn nodes_of_a_founder_that_died_are_waited_for() {
    let mut cluster = Cluster::fresh(3);
    let mut founder = cluster.client(|it| it);
    for node in [0, 1, 2, 0] {
        founder.look(&mut cluster, node);
    }
    drop(founder);
    let mut other = cluster.settled(|it| it);
    give_up_on_a_founder(&mut other, &mut cluster);
    assert_eq!(other.view().matches('q').count(), 2, "{}", other.view());
    cluster.pass(TERM);
    other.look_around(&mut cluster);
    assert_eq!(other.view(), "ooo");
}

#[test]
fn a_founder_that_is_late_does_not_overrule_who_waits() {
    let mut cluster = Cluster::fresh(3);
    let mut founder = cluster.client(|it| it);
    for node in [0, 1, 2, 0] {
        founder.look(&mut cluster, node);
    }
    let mut other = cluster.settled(|it| it);
    give_up_on_a_founder(&mut other, &mut cluster);
    let view = other.view();
    founder.look_around(&mut cluster);
    other.look_around(&mut cluster);
    assert_eq!((founder.view(), other.view()), (view.clone(), view));
}

#[test]
fn a_founder_does_not_set_up_a_node_that_was_started_anew() {
    let mut cluster = Cluster::fresh(3);
    let (mut slow, mut quick) = (cluster.client(|it| it), cluster.client(|it| it));
    for node in 0..3 {
        slow.look(&mut cluster, node);
    }
    quick.look_around(&mut cluster);
    slow.follow_up(&mut cluster);
    quick.look_around(&mut cluster);
    assert_eq!((quick.view(), slow.view()), ("ooo".into(), "ooo".into()));
    assert!(quick.lock(&mut cluster, 10_000).is_some());
    for node in 0..3 {
        cluster.restart(node);
        slow.look(&mut cluster, node);
        slow.follow_up(&mut cluster);
        assert!(!slow.grant(&mut cluster, node));
    }
}

#[test]
fn a_founder_that_reaches_only_nodes_that_forgot_founds_nothing() {
    for cut in 0..3 {
        let (mut cluster, _) = settled_in(3);
        let others = || (0..3).filter(|node| *node != cut);
        others().for_each(|node| cluster.restart(node));
        let mut narrow = cluster.client(|it| it);
        narrow.cut_off[cut] = true;
        narrow.look_around(&mut cluster);
        assert!(!narrow.view().contains('o'), "{}", narrow.view());
        give_up_on_a_founder(&mut narrow, &mut cluster);
        assert_eq!(narrow.view().matches('q').count(), 2, "{}", narrow.view());
    }
}

#[test]
fn a_client_that_was_paused_founds_the_cluster_all_the_same() {
    let mut cluster = Cluster::fresh(3);
    let mut client = cluster.client(|it| it);
    client.look(&mut cluster, 0);
    let asked = client.ask(&mut cluster, 0, None);
    cluster.pass(2_000);
    // The others' answers have come, too, and are read next.
    assert!(matches!(client.hear(&cluster, 0, &asked), Ruling::Undecided(_)));
    client.look(&mut cluster, 1);
    client.look(&mut cluster, 2);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "ooo");
}

#[test]
fn who_may_not_ask_servers_founds_nothing() {
    let mut cluster = Cluster::fresh(3);
    let mut client = cluster.client(|it| it);
    client.may_ask = false;
    client.look_around(&mut cluster);
    give_up_on_a_founder(&mut client, &mut cluster);
    assert_eq!(client.view(), "qqq");
    cluster.pass(TERM);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "ooo");
}

#[test]
fn a_cluster_is_not_new_before_every_node_was_reached() {
    let mut cluster = Cluster::fresh(3);
    let mut client = cluster.client(|it| it);
    client.look(&mut cluster, 0);
    client.look(&mut cluster, 1);
    client.follow_up(&mut cluster);
    assert_eq!(client.view(), "??-");
    cluster.nodes[2].is_up = false;
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "??-");
    give_up_on_a_founder(&mut client, &mut cluster);
    assert_eq!(client.view(), "qq-");
    cluster.pass(TERM);
    // The third is tried once more before the second counts.
    for _ in 0..2 {
        client.look_around(&mut cluster);
    }
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
fn an_old_client_does_not_believe_a_founder() {
    let (mut cluster, mut old) = settled_in(3);
    assert!(old.lock(&mut cluster, 60_000).is_some());
    for node in 0..3 {
        cluster.restart(node);
    }
    // A client that has known nothing of it may begin anew; one that has waits, its own lock too.
    let newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.view(), "ooo");
    old.look_around(&mut cluster);
    assert_eq!(old.view(), "qqq");
    assert!(old.left(&cluster, 0) > 60_000);
}

#[test]
fn strict_waits_also_for_a_cluster_without_a_history() {
    let strict = |it: PolicyBuilder| it.restart_guard(RestartGuard::Strict);
    let hour = Duration::from_secs(3600);
    for (limit, before, least) in [(None, 9_000, TERM - 2), (Some(hour), 3_600_000, 3_636_002)] {
        let mut cluster = Cluster::fresh(3);
        let mut client = cluster.settled(|it| strict(it).max_ttl(limit));
        assert_eq!(client.view().matches('o').count(), 0, "{}", client.view());
        cluster.pass(before);
        client.look_around(&mut cluster);
        assert_eq!(client.view().matches('o').count(), 0, "{}", client.view());
        cluster.pass(least + 2_000 - before);
        client.look_around(&mut cluster);
        assert_eq!(client.view(), "ooo");
    }
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
    cluster.pass(TERM + 2_000);
    strict.look_around(&mut cluster);
    assert_eq!(strict.view(), "o");
    cluster.restart(0);
    strict.look_around(&mut cluster);
    assert_eq!(strict.view(), "q");
}
