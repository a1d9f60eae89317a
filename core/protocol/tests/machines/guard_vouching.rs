//! Tests which nodes a client believes when they tell that another node has missed nothing.

use std::time::Duration;

use quorlock_protocol::{ClockReading, Ruling};

use crate::guard_world::{Cluster, TERM, Watcher, node_id, settled_in};

#[test]
fn a_node_whose_clock_was_stepped_does_not_vouch_for_another() {
    for is_stepped in [false, true] {
        let (mut cluster, mut client) = settled_in(3);
        cluster.restart(1);
        client.look_around(&mut cluster);
        cluster.pass(TERM);
        if is_stepped {
            // A grant tells so. The node does not answer the look that would give it a new memory.
            cluster.nodes[0].ahead = 60_000;
            let now = client.now(&cluster);
            let reading = ClockReading { sent: now, received: now, micros: cluster.micros(0) };
            assert!(!client.guards.handle_clock(node_id(0), reading));
            cluster.nodes[0].hangs = true;
        }
        client.look(&mut cluster, 2);
        client.look(&mut cluster, 1);
        // Long locks need a quorum of other nodes that remember them.
        let Some(Ruling::Open(pass)) = &client.rulings[1] else {
            panic!("node 1 is {:?}", client.rulings[1]);
        };
        assert_eq!(pass.longest == Duration::MAX, !is_stepped, "longest: {:?}", pass.longest);
    }
}

/// A lock of a minute, of which only node 2 knows: the others have forgotten it, and a client that reaches them
/// alone has used them since. The client has looked at node 2 before the lock was taken, and at no other.
fn known_to_one_node() -> (Cluster, Watcher) {
    let (mut cluster, client) = settled_in(3);
    drop(client);
    let mut early = cluster.client(|it| it);
    early.latency = 1;
    (early.cut_off[0], early.cut_off[1]) = (true, true);
    early.look_around(&mut cluster);
    let mut holder = cluster.settled(|it| it);
    assert!(holder.lock(&mut cluster, 60_000).is_some());
    cluster.restart_each([0, 1]);
    let mut founder = cluster.client(|it| it);
    founder.cut_off[2] = true;
    while founder.view() != "oo-" {
        founder.look_around(&mut cluster);
        cluster.pass(1_000);
    }
    (cluster, early)
}

#[test]
fn young_memories_count_once_every_node_has_told_what_it_knows() {
    let (mut cluster, _) = known_to_one_node();
    let mut newcomer = cluster.client(|it| it);
    cluster.nodes[2].hangs = true;
    for _ in 0..30 {
        newcomer.look_around(&mut cluster);
        assert_eq!(newcomer.view(), "??-");
        cluster.pass(60);
    }
    cluster.nodes[2].hangs = false;
    newcomer.look_around(&mut cluster);
    assert_eq!(newcomer.view(), "qqo");
}

#[test]
fn a_node_that_could_not_be_reached_before_is_tried_again_before_young_memories_count() {
    let (mut cluster, mut early) = known_to_one_node();
    early.cut_off[2] = true;
    early.look(&mut cluster, 2);
    // It can be reached again; this client has been paused, and does not know.
    cluster.pass(1_000);
    early.cut_off.fill(false);
    early.look(&mut cluster, 0);
    early.look(&mut cluster, 1);
    early.look(&mut cluster, 0);
    assert_eq!(early.view(), "??-");
    early.look(&mut cluster, 2);
    early.follow_up(&mut cluster);
    assert_eq!(early.view(), "qqo");
}

#[test]
fn young_memories_wait_for_no_node_that_is_down_or_hangs() {
    let (mut cluster, mut early) = known_to_one_node();
    let mut newcomer = cluster.client(|it| it);
    newcomer.cut_off[2] = true;
    newcomer.look_around(&mut cluster);
    assert_eq!(newcomer.view(), "??-", "one refused connection proves nothing");
    cluster.pass(400);
    for node in [2, 0, 1] {
        newcomer.look(&mut cluster, node);
    }
    assert_eq!(newcomer.view(), "oo-", "a limit that the manual names");
    cluster.nodes[2].hangs = true;
    early.cut_off.fill(false);
    for _ in 0..10 {
        early.look_around(&mut cluster);
        assert_eq!(early.view(), "???");
        cluster.pass(1_000);
    }
    early.look_around(&mut cluster);
    assert_eq!(early.view(), "oo?");
}

#[test]
fn young_memories_wait_for_a_node_that_refuses_to_be_looked_at() {
    let (mut cluster, _) = known_to_one_node();
    let mut newcomer = cluster.client(|it| it);
    let mut waited = 0;
    // A pause, however long it is, counts a second.
    for pass in std::iter::once(30_000).chain(std::iter::repeat(1_000)) {
        let now = newcomer.now(&cluster);
        newcomer.guards.handle_down(node_id(2), now);
        for node in [0, 1, 0] {
            newcomer.look(&mut cluster, node);
        }
        if newcomer.view() == "oo-" {
            break;
        }
        assert_eq!(newcomer.view(), "??-");
        cluster.pass(pass);
        waited += 1;
    }
    assert_eq!(waited, 10);
}

#[test]
fn a_connection_that_was_refused_tells_of_its_beginning() {
    let (mut cluster, _) = known_to_one_node();
    let mut newcomer = cluster.client(|it| it);
    let began = newcomer.now(&cluster);
    newcomer.look(&mut cluster, 0);
    // The client is paused while it connects, and the connection breaks meanwhile.
    cluster.pass(1_000);
    newcomer.guards.handle_down(node_id(2), newcomer.now(&cluster));
    newcomer.guards.handle_failed_try(node_id(2), began);
    newcomer.look(&mut cluster, 1);
    newcomer.look(&mut cluster, 0);
    assert_eq!(newcomer.view(), "??-");
}

#[test]
fn nodes_idle_before_another_forgot_do_not_vouch_for_it() {
    let (mut cluster, client) = settled_in(3);
    drop(client);
    cluster.pass(40_000);
    let mut early = cluster.settled_afar(|it| it);
    cluster.pass(1_000);
    let mut holder = cluster.settled(|it| it);
    holder.cut_off[2] = true;
    assert!(holder.lock(&mut cluster, 10_000).is_some());
    cluster.restart(1);
    early.look_around(&mut cluster);
    assert_eq!(early.view(), "oqo");
}

#[test]
fn a_canary_cannot_raise_the_floor_above_ten_seconds() {
    let (mut cluster, client) = settled_in(3);
    drop(client);
    for node in [0, 2] {
        let canary = cluster.nodes[node].store.canary.as_deref().expect("a canary");
        let longer = canary.replacen(" 10000 ", " 3600000 ", 1);
        assert_ne!(*longer, *canary);
        cluster.nodes[node].store.canary = Some(longer.into());
    }
    cluster.restart(1);
    assert_eq!(cluster.settled(|it| it).left(&cluster, 1), u128::from(TERM));
}
