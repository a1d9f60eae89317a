//! Tests how the guards find out which nodes' clocks were stepped, and whether the client itself
//! was paused.

use std::time::Duration;

use quorlock_protocol::{ClockReading, NodeId, Notice, RestartGuard};

use crate::guard_world::{Cluster, TERM, Watcher, policy, reasons, settled_in, ttl};

fn used(count: usize) -> (Cluster, Watcher) {
    let (mut cluster, client) = settled_in(count);
    cluster.pass(5_000);
    (cluster, client)
}

#[test]
fn a_clock_jump_holds_its_node_back_from_the_first_grant_on() {
    let (mut cluster, mut client) = used(3);
    cluster.nodes[1].ahead = 60_000;
    assert!(!client.grant(&mut cluster, 1));
    assert_eq!(client.view(), "oqo");
    assert_eq!(client.left(&cluster, 1), u128::from(TERM));
    assert_eq!(reasons(&client), ["clock-stepped"]);
    assert!(client.grant(&mut cluster, 0) && client.grant(&mut cluster, 2));
    cluster.pass(TERM);
    client.look_around(&mut cluster);
    assert!(client.grant(&mut cluster, 1));
    assert_eq!(reasons(&client), ["clock-stepped"]);
}

#[test]
fn a_jump_is_noticed_by_a_look_as_well() {
    let (mut cluster, mut client) = used(5);
    (cluster.nodes[1].ahead, cluster.nodes[3].ahead) = (60_000, 200);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "oqoqo");
}

#[test]
fn a_jump_within_the_drift_allowance_passes() {
    let (mut cluster, mut client) = used(3);
    cluster.nodes[1].ahead = 100;
    assert!(client.grant(&mut cluster, 1));
    assert!(client.told.is_empty());
    // The shortest lock has the smallest allowance.
    let policy = policy(ttl(1_000));
    client.guards.handle_policy(&policy);
    cluster.nodes[1].ahead = 200;
    assert!(!client.grant(&mut cluster, 1));
}

#[test]
fn long_locks_do_not_raise_the_clock_allowance() {
    // Others may hold locks of ten seconds, whatever this client asks for.
    let mut cluster = Cluster::fresh(3);
    let mut client = cluster.settled(ttl(600_000));
    for _ in 0..2 {
        cluster.pass(5_000);
        client.look_around(&mut cluster);
    }
    cluster.nodes[1].ahead = 5_000;
    assert!(!client.grant_for(&mut cluster, 1, 600_000));
    assert_eq!(reasons(&client), ["clock-stepped"]);
}

#[test]
fn a_clock_set_back_is_told_and_costs_nothing() {
    let (mut cluster, mut client) = used(3);
    cluster.nodes[1].ahead = -60_000;
    assert!(client.grant(&mut cluster, 1));
    assert_eq!(client.view(), "ooo");
    let told = client.told.clone();
    assert!(
        matches!(told.as_slice(), [Notice::ClockSetBack(NodeId(1), by)]
            if *by > Duration::from_secs(59)),
        "{told:?}"
    );
    // Set right again it is ahead of where it was: keys made meanwhile end early.
    cluster.nodes[1].ahead = 0;
    assert!(!client.grant(&mut cluster, 1));
    assert_eq!(client.view(), "oqo");
}

#[test]
fn all_clocks_ahead_together_mean_that_this_client_stood_still() {
    let (mut cluster, mut client) = used(3);
    let before = client.now(&cluster);
    cluster.pass(60_000);
    client.still += 60_000;
    assert_eq!(client.now(&cluster), before);
    assert!(!client.grant(&mut cluster, 0));
    // No node is to blame; the lease clock is to be set forward, so that every lease ends when it should.
    client.follow_up(&mut cluster);
    assert_eq!(client.view(), "ooo");
    assert!((60_000..60_100).contains(&client.lost.as_millis()));
    assert!(matches!(client.told.as_slice(), [Notice::Paused(lost)]
        if (60_000..60_100).contains(&lost.as_millis())));
    assert!((0..3).all(|node| client.grant(&mut cluster, node)));
}

#[test]
fn standing_still_does_not_shorten_a_quarantine() {
    let (mut cluster, mut client) = used(3);
    cluster.restart(2);
    client.latency = 400;
    client.look_around(&mut cluster);
    let (left, began) = (client.left(&cluster, 2), cluster.now);
    // It stood still, and its slow answers make that look longer than it was.
    cluster.pass(2_000);
    client.still += 2_000;
    client.look_around(&mut cluster);
    client.look_around(&mut cluster);
    assert!(matches!(client.told.last(), Some(Notice::Paused(_))), "{:?}", client.told);
    let passed = u128::from(cluster.now - began);
    assert!(client.left(&cluster, 2) + passed >= left, "{} of {left}", client.left(&cluster, 2));
}

#[test]
fn standing_still_does_not_shorten_a_quarantine_of_others() {
    let (mut cluster, mut client) = used(3);
    let mut other = cluster.settled(|it| it);
    for _ in 0..12 {
        cluster.pass(5_000);
        other.look_around(&mut cluster);
    }
    client.still += 60_000;
    cluster.restart(2);
    other.look_around(&mut cluster);
    // The answer that tells of the quarantine is the one that shows that the client stood still.
    cluster.nodes[1].is_up = false;
    client.look_around(&mut cluster);
    assert!(matches!(client.told.first(), Some(Notice::Paused(_))), "{:?}", client.told);
    assert_eq!(client.view(), "o-q");
    assert_eq!(client.left(&cluster, 2), other.left(&cluster, 2));
}

#[test]
fn a_clock_step_during_a_pause_of_the_client_is_noticed() {
    for (stepped, view) in ["qoo", "oqo", "ooq"].into_iter().enumerate() {
        let (mut cluster, mut client) = used(3);
        cluster.nodes[stepped].ahead = 60_000;
        cluster.pass(30_000);
        client.still += 30_000;
        client.look_around(&mut cluster);
        assert!(client.told.iter().any(|it| matches!(it, Notice::Paused(_))), "{:?}", client.told);
        assert_eq!(client.view(), view);
        // It is not taken for another pause.
        client.look_around(&mut cluster);
        let pauses = client.told.iter().filter(|it| matches!(it, Notice::Paused(_))).count();
        assert_eq!(pauses, 1, "{:?}", client.told);
    }
}

#[test]
fn it_is_so_where_no_other_client_has_noted_anything() {
    // Without the restart guard there are no notes by which the clocks of every two nodes are compared.
    for (stepped, view) in ["qoo", "oqo", "ooq"].into_iter().enumerate() {
        let mut cluster = Cluster::fresh(3);
        let mut client = cluster.settled(|it| it.restart_guard(RestartGuard::Off));
        cluster.pass(5_000);
        client.look_around(&mut cluster);
        cluster.nodes[stepped].ahead = 60_000;
        cluster.pass(30_000);
        client.still += 30_000;
        client.look_around(&mut cluster);
        assert!(client.told.iter().any(|it| matches!(it, Notice::Paused(_))), "{:?}", client.told);
        assert_eq!(client.view(), view);
    }
}

#[test]
fn half_of_the_clocks_are_no_majority() {
    let (mut cluster, mut client) = used(4);
    (cluster.nodes[0].ahead, cluster.nodes[1].ahead) = (60_000, 60_000);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "qqoo");
}

#[test]
fn slow_answers_are_no_steps() {
    let (mut cluster, mut client) = used(3);
    for latency in [5, 900, 0, 3_000, 1] {
        client.latency = latency;
        assert!((0..3).all(|node| client.grant(&mut cluster, node)), "{latency} ms");
    }
    assert!(client.told.is_empty());
}

#[test]
fn a_suspicion_that_nobody_answers_ends_in_a_quarantine() {
    let (mut cluster, mut client) = used(3);
    (cluster.nodes[0].is_up, cluster.nodes[2].is_up) = (false, false);
    cluster.nodes[1].ahead = 60_000;
    assert!(!client.grant(&mut cluster, 1));
    assert_eq!(client.view(), "-?-");
    cluster.pass(1_000);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "-?-");
    (cluster.nodes[0].is_up, cluster.nodes[2].is_up) = (true, true);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "oqo");
}

#[test]
fn without_the_restart_guard_a_step_is_waited_for_all_the_same() {
    let mut cluster = Cluster::fresh(3);
    let mut client = cluster.settled(|it| it.restart_guard(RestartGuard::Off));
    cluster.nodes[1].ahead = 60_000;
    assert!(!client.grant(&mut cluster, 1));
    assert_eq!(client.view(), "oqo");
    cluster.pass(TERM);
    client.look_around(&mut cluster);
    assert!(client.grant(&mut cluster, 1));
    assert_eq!(cluster.nodes[1].store.canary, None);
}

#[test]
fn without_the_clock_guard_clocks_are_no_matter() {
    let mut cluster = Cluster::fresh(3);
    let mut client = cluster.settled(|it| it.clock_guard(false));
    cluster.nodes[1].ahead = 60_000;
    assert!(client.grant(&mut cluster, 1));
    assert!(client.told.is_empty());
}

#[test]
fn a_fast_clock_is_found_out_however_often_it_is_read() {
    for pace in [50, 500, 5_000] {
        let (mut cluster, mut client) = used(3);
        // 5 %, gained from now on, not since the beginning of time.
        cluster.nodes[1].rate = 50_000;
        cluster.nodes[1].ahead = -50 * i64::try_from(cluster.now).unwrap() / 1000;
        for _ in 0..20_000 / pace {
            cluster.pass(pace);
            client.grant(&mut cluster, 1);
            client.follow_up(&mut cluster);
        }
        assert!(reasons(&client).contains(&"clock-stepped"), "read every {pace} ms");
    }
}

#[test]
fn a_memory_from_before_a_step_does_not_answer_it() {
    let (mut cluster, mut client) = used(3);
    let mut other = cluster.settled(ttl(1_000));
    // The other, whose locks are short, finds a small step, and begins a new memory. It goes before it has noted how
    // the clock stands to others. This one has not looked, but hears the clock go right, as far as it minds.
    cluster.nodes[1].ahead = 50;
    for node in [1, 0, 2, 1] {
        other.look(&mut cluster, node);
    }
    assert_eq!(reasons(&other), ["clock-stepped"]);
    cluster.pass(4_000);
    let now = client.now(&cluster);
    let reading = ClockReading { sent: now, received: now, micros: cluster.micros(1) };
    assert!(client.guards.handle_clock(NodeId(1), reading));
    cluster.pass(1_000);
    cluster.nodes[1].ahead = 60_000;
    client.look_around(&mut cluster);
    assert_eq!(client.left(&cluster, 1), u128::from(TERM));
}

#[test]
fn answers_from_before_the_first_sign_prove_no_standstill() {
    let (mut cluster, mut client) = used(3);
    let asked = client.now(&cluster);
    // It stands still for two seconds, after it has asked node 0, and node 0 has answered.
    let early = ClockReading { sent: asked, received: asked, micros: cluster.micros(0) };
    cluster.pass(2_000);
    client.still += 2_000;
    let now = client.now(&cluster);
    let late = |node| ClockReading { sent: now, received: now, micros: cluster.micros(node) };
    assert!(!client.guards.handle_clock(NodeId(1), late(1)));
    client.guards.handle_clock(NodeId(0), ClockReading { received: now, ..early });
    client.guards.handle_clock(
        NodeId(2),
        ClockReading { sent: asked.before(Duration::from_millis(1)), ..late(2) },
    );
    client.look_around(&mut cluster);
    assert!((2_000..2_100).contains(&client.lost.as_millis()), "{:?}", client.lost);
    assert_eq!(client.view(), "ooo");
}

#[test]
fn an_answer_from_before_a_pause_is_no_clock_that_was_set_back() {
    let (mut cluster, mut client) = used(3);
    let sent = client.now(&cluster);
    let micros = cluster.micros(0);
    cluster.pass(2_000);
    client.still += 2_000;
    cluster.pass(1);
    client.look_around(&mut cluster);
    assert!((2_000..2_100).contains(&client.lost.as_millis()), "{:?}", client.lost);
    // By the clock that stood still meanwhile it lies two seconds behind.
    let received = client.now(&cluster);
    let is_steady = client.guards.handle_clock(NodeId(0), ClockReading { sent, received, micros });
    assert!(!is_steady, "nor does a grant count by it");
    cluster.pass(1);
    client.look_around(&mut cluster);
    assert!(matches!(client.told.as_slice(), [Notice::Paused(_)]), "{:?}", client.told);
    assert_eq!(client.view(), "ooo");
}
