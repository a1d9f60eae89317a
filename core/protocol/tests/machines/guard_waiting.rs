//! For how long a node is held back, and whose word ends that.

use std::time::Duration;

use quorlock_protocol::{Notice, QuarantineReason, Ruling};

use crate::guard_stage::{
    Cluster, TERM, Watcher, node_id, one_after_another, settled_in, ttl, used,
};

/// A lock of so many milliseconds is waited for so long, with the drift allowance of it.
const fn term(keep: u64) -> u64 {
    keep + keep / 100 + 2
}

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
fn locks_up_to_ten_seconds_are_waited_for_whoever_is_there() {
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
fn a_long_lock_that_is_held_is_waited_for_and_one_that_is_released_is_not() {
    for is_released in [false, true] {
        let (mut cluster, mut client) = settled_in(3);
        let (keep, taken) = (600_000, cluster.now);
        assert!(client.lock(&mut cluster, keep).is_some());
        cluster.pass(20_000);
        if is_released {
            client.unlock(&mut cluster);
            let at = cluster.now;
            client.ends(&mut cluster, keep, at);
        }
        cluster.pass(1_000);
        client.look_around(&mut cluster);
        drop(client);
        cluster.restart_each([0, 1]);
        let newcomer = cluster.settled(|it| it);
        let wait = if is_released { term(10_000) } else { term(keep) };
        assert_eq!(newcomer.left(&cluster, 0), u128::from(wait), "released: {is_released}");
        assert_eq!(newcomer.view(), "qqo");
        let is_told = newcomer.told.iter().any(|it| matches!(it, Notice::LongWait(..)));
        assert_eq!(is_told, !is_released);
        assert!(taken < cluster.now);
    }
}

#[test]
fn a_long_lock_is_over_when_its_entry_is() {
    let (mut cluster, mut client) = settled_in(3);
    let keep = 60_000;
    assert!(client.lock(&mut cluster, keep).is_some());
    drop(client);
    // Nobody renews the entry: it ends after twice its length and 20 s.
    cluster.pass(2 * keep + 20_000 - 11_000);
    cluster.restart_each([0, 1]);
    let newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.left(&cluster, 0), 11_000);
}

#[test]
fn a_long_lock_that_was_asked_for_later_does_not_hold_a_memory_back() {
    let (mut cluster, mut client) = settled_in(3);
    cluster.restart(1);
    client.look_around(&mut cluster);
    cluster.pass(5_000);
    assert!(client.lock(&mut cluster, 600_000).is_some());
    client.look_around(&mut cluster);
    assert_eq!(client.left(&cluster, 1), u128::from(TERM - 5_000));
    let newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.left(&cluster, 1), u128::from(TERM - 5_000));
}

#[test]
fn more_clients_than_a_node_has_room_for_begin_long_locks_at_once() {
    let (mut cluster, _) = settled_in(3);
    let (mut clients, keep): (Vec<_>, _) =
        ((0..90).map(|_| cluster.settled(|it| it)).collect(), 120_000);
    // Each has made up its mind to leave an entry of its own before it hears of any other.
    for client in &mut clients {
        client.means_to_keep(&cluster, keep);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        assert!(client.lock(&mut cluster, keep).is_some(), "client {number} is shut out");
        client.unlock(&mut cluster);
    }
    drop(clients);
    cluster.restart_each([0, 1]);
    let newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.left(&cluster, 0), u128::from(term(keep)));
}

#[test]
fn a_node_that_was_told_of_a_long_lock_too_late_does_not_vouch_for_it() {
    let (mut cluster, mut client) = settled_in(3);
    let keep = Duration::from_secs(90);
    client.means_to_keep(&cluster, 90_000);
    let mut checkup = client.ask(&mut cluster, 1, None);
    // It did the look four seconds later, and counts from then.
    cluster.pass(4_000);
    checkup.clock.received = client.now(&cluster);
    checkup.clock.micros = cluster.micros(1);
    checkup.notes.holdings[0].began = Duration::ZERO;
    client.hear(&cluster, 1, &checkup);
    assert!(!client.guards.covers(node_id(1), keep, client.now(&cluster)));
    client.look(&mut cluster, 1);
    assert!(client.guards.covers(node_id(1), keep, client.now(&cluster)));
}

#[test]
fn a_node_that_was_told_of_a_long_lock_a_moment_late_has_others_heed_it() {
    let (mut cluster, mut holder) = settled_in(3);
    holder.cut_off[2] = true;
    holder.means_to_keep(&cluster, 90_000);
    let now = holder.now(&cluster);
    let left = holder.guards.notes_for(node_id(1), now);
    // It is granted by a node that forgets it at once, before the other has done its look.
    assert!(holder.grant_for(&mut cluster, 0, 90_000));
    cluster.restart(0);
    let mut first = cluster.client(|it| it);
    first.cut_off[1] = true;
    first.look_around(&mut cluster);
    cluster.pass(900);
    let micros = cluster.micros(1);
    cluster.nodes[1].store.look(None, &left, micros);
    cluster.pass(TERM);
    first.look_around(&mut cluster);
    drop((first, holder));
    let newcomer = cluster.settled(|it| it);
    assert!(!newcomer.is_open(0), "{}", newcomer.view());
}

#[test]
fn a_longer_lock_of_the_same_client_does_not_hide_the_one_before() {
    let (mut cluster, mut client) = settled_in(3);
    assert!(client.lock(&mut cluster, 90_000).is_some());
    cluster.restart(0);
    client.look_around(&mut cluster);
    cluster.pass(5_000);
    client.announce(&mut cluster, 600_000);
    client.look_around(&mut cluster);
    cluster.pass(TERM);
    drop(client);
    let newcomer = cluster.settled(|it| it);
    assert!(!newcomer.is_open(0), "{}", newcomer.view());
}

#[test]
fn a_clock_that_was_set_back_does_not_make_long_locks_look_younger() {
    let (mut cluster, mut holder) = settled_in(3);
    holder.cut_off[1] = true;
    let keep = 90_000;
    assert!(holder.lock(&mut cluster, keep).is_some());
    drop(holder);
    cluster.pass(3_000);
    cluster.nodes[2].ahead -= 60_000;
    cluster.restart(0);
    // The first to find that does not see the node that knows of the lock.
    let mut first = cluster.client(|it| it);
    first.cut_off[2] = true;
    first.look_around(&mut cluster);
    cluster.pass(12_000);
    first.look_around(&mut cluster);
    drop(first);
    let newcomer = cluster.settled(|it| it);
    assert!(!newcomer.is_open(0), "{}", newcomer.view());
}

/// Nodes 0, 1, 2 and 0 restart, 3 s apart, while somebody holds a lock of ten minutes.
fn one_restart_after_another(watcher: &mut Watcher, cluster: &mut Cluster) {
    for node in [0, 1, 2, 0] {
        cluster.restart(node);
        watcher.look(cluster, node);
        watcher.follow_up(cluster);
        cluster.pass(3_000);
    }
}

#[test]
fn entries_of_long_locks_outlive_nodes_that_restart_one_after_another() {
    for is_cut_off in [false, true] {
        let (mut cluster, mut watcher) = settled_in(3);
        let mut holder = cluster.settled(|it| it);
        let began = cluster.now;
        assert!(holder.lock(&mut cluster, 600_000).is_some());
        if is_cut_off {
            // It has looked since, as it does every ten seconds.
            cluster.pass(10_000);
            watcher.look_around(&mut cluster);
            one_restart_after_another(&mut watcher, &mut cluster);
        } else {
            // It is the holder itself that is connected.
            one_restart_after_another(&mut holder, &mut cluster);
        }
        cluster.pass(40_000);
        let mut newcomer = cluster.settled_afar(|it| it);
        newcomer.look_around(&mut cluster);
        for node in 0..3 {
            let left = newcomer.left(&cluster, node) + u128::from(cluster.now - began);
            assert!(left >= 600_000, "cut off: {is_cut_off}, node {node}: {left}");
        }
    }
}

#[test]
fn a_client_learns_of_a_long_lock_before_the_last_node_that_knows_of_it_goes() {
    let (mut cluster, mut watcher) = settled_in(3);
    let mut holder = cluster.settled(|it| it);
    // The watcher has looked before the lock was asked for, and does not look again by itself.
    assert!(holder.lock(&mut cluster, 600_000).is_some());
    drop(holder);
    one_restart_after_another(&mut watcher, &mut cluster);
    let newcomer = cluster.settled(|it| it);
    assert!(newcomer.left(&cluster, 0) > 580_000, "{}", newcomer.left(&cluster, 0));
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
fn a_node_that_was_not_looked_at_since_another_forgot_does_not_vouch_for_it() {
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
fn a_node_that_forgot_while_nobody_used_the_cluster_is_used_at_once() {
    let (mut cluster, client) = settled_in(3);
    drop(client);
    cluster.pass(36_001);
    cluster.restart(1);
    let newcomer = cluster.settled_afar(|it| it);
    assert_eq!(newcomer.view(), "ooo");
    // Whoever comes later does not have to find that out again.
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
fn with_few_that_remember_nobody_knows_whether_the_cluster_was_idle() {
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
fn nodes_that_forgot_themselves_do_not_vouch_for_each_other_by_being_idle() {
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

#[test]
fn whoever_finds_a_node_idle_asks_the_others_before_it_beats() {
    let (mut cluster, client) = settled_in(3);
    drop(client);
    cluster.pass(40_000);
    cluster.restart(2);
    let mut newcomer = cluster.client(|it| it);
    newcomer.latency = 1;
    let beats = cluster.nodes[0].store.clone();
    newcomer.look(&mut cluster, 0);
    assert_eq!((newcomer.view(), &cluster.nodes[0].store), ("?--".into(), &beats));
    newcomer.look_around(&mut cluster);
    assert_eq!(newcomer.view(), "ooo");
}

#[test]
fn a_node_that_forgot_may_be_far_and_is_used_at_once_if_nobody_used_the_cluster() {
    for (late, view) in [(300, "ooo"), (600, "ooq")] {
        let (mut cluster, client) = settled_in(3);
        drop(client);
        cluster.pass(40_000);
        cluster.restart(2);
        let mut newcomer = cluster.client(|it| it);
        newcomer.latency = 1;
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

/// A lock of a minute on nodes 0 and 1, of which `forgetful` forget; whether another gets a lock before it is over,
/// that does not reach the nodes `out_of_sight`. The holder never reached node 2.
fn is_forgotten(forgetful: &[usize], out_of_sight: &[usize], limit: Option<Duration>) -> bool {
    let mut cluster = Cluster::fresh(3);
    drop(cluster.settled(|it| it.max_ttl(limit)));
    cluster.pass(6_000);
    let mut holder = cluster.client(|it| it.max_ttl(limit));
    holder.cut_off[2] = true;
    holder.look_around(&mut cluster);
    let until = holder.lock(&mut cluster, 60_000).expect("a lock of a minute");
    for node in forgetful {
        cluster.restart(*node);
    }
    let mut other = cluster.client(|it| it.max_ttl(limit));
    for node in out_of_sight {
        other.cut_off[*node] = true;
    }
    gets_a_lock(&mut other, &mut cluster, until)
}

/// Whether the client gets a lock before that moment.
fn gets_a_lock(client: &mut Watcher, cluster: &mut Cluster, before: u64) -> bool {
    while cluster.now < before {
        client.look_around(cluster);
        if client.lock(cluster, 10_000).is_some() {
            return true;
        }
        cluster.pass(1_000);
    }
    false
}

#[test]
fn long_locks_that_nobody_in_sight_knows_of_are_safe_only_with_max_ttl() {
    for (forgetful, out_of_sight) in [(&[0][..], &[1][..]), (&[0, 1], &[])] {
        assert!(is_forgotten(forgetful, out_of_sight, None), "a limit that the manual names");
        let limit = Some(Duration::from_secs(60));
        assert!(!is_forgotten(forgetful, out_of_sight, limit), "{forgetful:?} forgot");
    }
}

/// The same where the entry of a lock that is renewed has ended on the node that its holder does not reach any more.
fn is_outlived(limit: Option<Duration>) -> bool {
    let (keep, change) = (20_000, |it: quorlock_protocol::PolicyBuilder| it.max_ttl(limit));
    let mut cluster = Cluster::fresh(3);
    let mut holder = cluster.settled(change);
    cluster.pass(6_000);
    holder.look_around(&mut cluster);
    assert!(holder.lock(&mut cluster, keep).is_some());
    holder.cut_off[2] = true;
    let mut until = 0;
    for _ in 0..10 {
        cluster.pass(9_000);
        holder.look_around(&mut cluster);
        for node in [0, 1] {
            cluster.nodes[node].key = None;
        }
        until = holder.lock(&mut cluster, keep).expect("it is renewed");
    }
    cluster.restart(0);
    let mut other = cluster.client(change);
    other.cut_off[1] = true;
    gets_a_lock(&mut other, &mut cluster, until)
}

#[test]
fn a_renewed_lock_whose_entry_has_ended_in_sight_is_safe_only_with_max_ttl() {
    assert!(is_outlived(None), "a limit that the manual names");
    assert!(!is_outlived(Some(Duration::from_secs(20))));
}
