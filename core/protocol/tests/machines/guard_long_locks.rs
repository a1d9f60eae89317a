//! Tests locks that last longer than the floor: which clients take them into account, and for how
//! long.

use std::time::Duration;

use quorlock_protocol::Notice;

use crate::guard_world::{Cluster, TERM, Watcher, node_id, settled_in, term};

#[test]
fn only_long_locks_that_are_held_are_waited_for() {
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
fn a_later_long_lock_does_not_hold_a_memory_back() {
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
fn more_clients_than_there_is_room_for_begin_long_locks() {
    let (mut cluster, _) = settled_in(3);
    let (mut clients, keep): (Vec<_>, _) =
        ((0..90).map(|_| cluster.settled(|it| it)).collect(), 120_000);
    // Each has decided to leave an entry of its own before it knows of any other.
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
fn a_node_told_of_a_long_lock_too_late_does_not_cover_it() {
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
fn a_node_that_knows_of_a_longer_lock_covers_a_shorter_one() {
    let (mut cluster, mut client) = settled_in(3);
    let covers = |client: &Watcher, cluster: &Cluster, seconds| {
        let keep = Duration::from_secs(seconds);
        client.guards.covers(node_id(1), keep, client.now(cluster))
    };
    client.announce(&mut cluster, 30_000);
    client.look_around(&mut cluster);
    // A lease of 30 s is extended by less.
    assert!([12, 20, 30].iter().all(|seconds| covers(&client, &cluster, *seconds)));
    assert!([31, 45, 90].iter().all(|seconds| !covers(&client, &cluster, *seconds)));
}

#[test]
fn an_entry_of_a_longer_lock_that_is_about_to_end_covers_no_shorter_one() {
    let (mut cluster, mut client) = settled_in(3);
    client.announce(&mut cluster, 30_000);
    client.look_around(&mut cluster);
    let at = cluster.now;
    client.ends(&mut cluster, 30_000, at);
    // The entry ends 80 s after the last look that renewed it.
    for (passed, is_covered) in [(60_000, true), (10_000, false)] {
        cluster.pass(passed);
        client.look_around(&mut cluster);
        let now = client.now(&cluster);
        assert_eq!(client.guards.covers(node_id(1), Duration::from_secs(12), now), is_covered);
    }
}

#[test]
fn a_longer_lock_in_a_shared_entry_covers_a_shorter_one() {
    let (mut cluster, _) = settled_in(3);
    let mut clients: Vec<_> = (0..50).map(|_| cluster.settled(|it| it)).collect();
    for client in &mut clients {
        assert!(client.lock(&mut cluster, 120_000).is_some());
        client.unlock(&mut cluster);
    }
    // There is no room for an entry of its own.
    let mut client = cluster.settled(|it| it);
    client.announce(&mut cluster, 600_000);
    client.look_around(&mut cluster);
    let covers = |seconds| {
        let keep = Duration::from_secs(seconds);
        client.guards.covers(node_id(1), keep, client.now(&cluster))
    };
    // A lease of 600 s is extended by less.
    let covered = [12, 20, 61, 130, 600].map(covers);
    assert_eq!(covered, [true; 5]);
    assert!(!covers(601));
}

#[test]
fn others_heed_a_long_lock_that_was_noted_a_moment_late() {
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
fn a_longer_lock_does_not_hide_an_earlier_one_of_its_client() {
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
fn a_clock_set_back_does_not_make_long_locks_look_younger() {
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
fn entries_of_long_locks_outlive_successive_restarts() {
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
fn a_client_learns_of_long_locks_before_their_last_node_forgets() {
    // Who watches clocks has one more reason to look.
    for watches_clocks in [true, false] {
        let (mut cluster, _) = settled_in(3);
        let mut watcher = cluster.settled(|it| it.clock_guard(watches_clocks));
        let mut holder = cluster.settled(|it| it);
        // The watcher has looked before the lock was asked for, and does not look again by itself.
        assert!(holder.lock(&mut cluster, 600_000).is_some());
        drop(holder);
        one_restart_after_another(&mut watcher, &mut cluster);
        let newcomer = cluster.settled(|it| it);
        assert!(newcomer.left(&cluster, 0) > 580_000, "{}", newcomer.left(&cluster, 0));
    }
}

/// A lock of a minute on nodes 0 and 1, of which `forgetful` forget; whether another gets a lock before it ends,
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
fn long_locks_that_no_reachable_node_knows_need_max_ttl() {
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
fn a_renewed_lock_with_an_ended_entry_needs_max_ttl() {
    assert!(is_outlived(None), "a limit that the manual names");
    assert!(!is_outlived(Some(Duration::from_secs(20))));
}
