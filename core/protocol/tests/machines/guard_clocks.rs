//! Which nodes' clocks were stepped, and whether it was the client that stood still.

use std::time::Duration;

use quorlock_protocol::{ClockReading, NodeId, Notice, QuarantineReason, RestartGuard, Ruling};

use crate::guard_stage::{Cluster, TERM, Watcher, policy, ttl};

pub(crate) const STEPPED: Notice = Notice::Quarantined(NodeId(1), QuarantineReason::ClockStepped);

pub(crate) fn used(count: usize) -> (Cluster, Watcher) {
    let mut cluster = Cluster::fresh(count);
    let mut client = cluster.settled(|it| it);
    cluster.pass(5_000);
    client.look_around(&mut cluster);
    cluster.pass(5_000);
    (cluster, client)
}

#[test]
fn a_clock_that_jumps_ahead_holds_its_node_back_from_the_very_grant_that_told() {
    let (mut cluster, mut client) = used(3);
    cluster.nodes[1].ahead = 60_000;
    assert!(!client.grant(&mut cluster, 1));
    assert_eq!(client.view(), "oqo");
    assert_eq!(client.left(&cluster, 1), u128::from(TERM));
    assert_eq!(client.told, [STEPPED]);
    assert!(client.grant(&mut cluster, 0) && client.grant(&mut cluster, 2));
    cluster.pass(TERM);
    client.look_around(&mut cluster);
    assert!(client.grant(&mut cluster, 1));
    assert_eq!(client.told, [STEPPED]);
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
    assert_eq!(client.view(), "ooo");
    assert!(client.lost >= Duration::from_secs(60));
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
fn an_answer_from_before_a_pause_is_not_taken_for_a_clock_that_was_set_back() {
    let (mut cluster, mut client) = used(3);
    let (sent, micros) = (client.now(&cluster), cluster.micros(2));
    cluster.pass(60_001);
    client.still += 60_000;
    assert!(!client.grant(&mut cluster, 0));
    let lost = client.lost;
    // It was under way all the time.
    let late = ClockReading { sent, received: client.now(&cluster), micros };
    assert!(!client.guards.handle_clock(NodeId(2), late), "it tells nothing, and is no vote");
    client.take();
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "ooo");
    assert!(client.grant(&mut cluster, 2));
    assert_eq!(client.lost, lost, "{:?}", client.told);
    assert!(matches!(client.told.as_slice(), [Notice::Paused(_)]), "{:?}", client.told);
}

#[test]
fn finding_out_that_it_stood_still_moves_no_wait() {
    let until = |client: &Watcher, node: usize| match &client.rulings[node] {
        Some(Ruling::Quarantined(quarantine)) => quarantine.until,
        other => panic!("node {node} is {other:?}"),
    };
    // One that a canary tells of, and one that is this client's own affair.
    for guard in [RestartGuard::Auto, RestartGuard::Off] {
        let (mut cluster, _) = used(3);
        let mut client = cluster.settled(|it| it.restart_guard(guard));
        cluster.nodes[2].ahead = 60_000;
        client.look_around(&mut cluster);
        client.look_around(&mut cluster);
        let before = until(&client, 2);
        cluster.pass(2_000);
        client.still += 2_000;
        client.look_around(&mut cluster);
        assert!(client.lost >= Duration::from_secs(2), "{:?}", client.told);
        assert_eq!(until(&client, 2), before, "{guard:?}");
    }
}

#[test]
fn standing_still_does_not_shorten_a_quarantine_that_others_have_begun() {
    let (mut cluster, mut client) = used(3);
    let mut other = cluster.settled(|it| it);
    cluster.pass(60_000);
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
fn a_clock_that_was_stepped_while_this_client_stood_still_is_quarantined() {
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
    assert_eq!(client.view(), "-q-");
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
    assert_eq!(cluster.nodes[1].canary, None);
}

#[test]
fn without_the_clock_guard_clocks_are_no_matter() {
    let mut cluster = Cluster::fresh(3);
    let mut client = cluster.settled(|it| it.clock_guard(false));
    cluster.nodes[1].ahead = 60_000;
    assert!(client.grant(&mut cluster, 1));
    assert!(client.told.is_empty());
}

fn rates(client: &Watcher) -> Vec<(u8, i64)> {
    let rate = |notice: &Notice| match notice {
        Notice::ClockRate(node, rate) => Some((node.0, *rate)),
        _ => None,
    };
    client.told.iter().filter_map(rate).collect()
}

#[test]
fn a_rate_beyond_the_drift_allowance_is_told_once() {
    for (rate, pace) in [(20_000, 50), (20_000, 10_000), (-30_000, 500), (80_000, 10_000)] {
        let (mut cluster, mut client) = used(3);
        // Gained from now on, not since the beginning of time.
        let gained = rate * i64::try_from(cluster.now).unwrap() / 1_000_000;
        (cluster.nodes[1].rate, cluster.nodes[1].ahead) = (rate, -gained);
        for _ in 0..120_000 / pace {
            cluster.pass(pace);
            client.grant(&mut cluster, 1);
            client.look(&mut cluster, 1);
        }
        let told = rates(&client);
        assert_eq!(told.len(), 1, "{rate} ppm every {pace} ms: {told:?}");
        let (node, found) = told[0];
        assert!(node == 1 && found.signum() == rate.signum() && found.abs() <= rate.abs());
        assert!(found.abs() > 10_000, "{found} of {rate} ppm");
    }
}

#[test]
fn rates_within_the_allowance_and_steps_are_no_rate_errors() {
    let (mut cluster, mut client) = used(3);
    cluster.nodes[0].rate = 9_000;
    cluster.nodes[0].ahead = -9 * i64::try_from(cluster.now).unwrap() / 1000;
    for round in 0..60 {
        cluster.pass(1_000);
        cluster.nodes[2].ahead = if round < 20 { 0 } else { 3_600_000 };
        // Set forth and back by a second, over and over.
        cluster.nodes[1].ahead = i64::from(round / 10 % 2) * 1_000;
        for node in 0..3 {
            client.grant(&mut cluster, node);
        }
    }
    assert_eq!(rates(&client), []);
}
