//! Tests what clients that start later conclude about clocks from the notes of others.

use quorlock_protocol::{GuardStore, LeadNote, Notes, SightingNote};

use crate::guard_world::{
    Cluster, TERM, one_after_another, reasons, settled_in as used, used as just_used,
};

#[test]
fn a_newcomer_tells_a_jump_from_what_others_have_noted() {
    let (mut cluster, _) = used(3);
    cluster.nodes[1].ahead = 60_000;
    let mut newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.view(), "oqo");
    assert_eq!(reasons(&newcomer), ["clock-stepped"]);
    assert!(newcomer.grant(&mut cluster, 0) && newcomer.grant(&mut cluster, 2));
}

#[test]
fn a_newcomer_trusts_clocks_that_stand_as_noted() {
    let mut cluster = Cluster::fresh(3);
    (cluster.nodes[1].ahead, cluster.nodes[2].ahead) = (3_600_000, -500_000);
    drop(cluster.settled(|it| it));
    cluster.pass(3_600_000);
    let newcomer = cluster.settled(|it| it);
    assert_eq!((newcomer.view(), newcomer.told.len()), ("ooo".into(), 0));
}

#[test]
fn what_slow_answers_left_in_the_notes_accuses_no_clock() {
    for slow in 0..3 {
        let mut cluster = Cluster::fresh(3);
        cluster.nodes[slow].slow = 400;
        drop(cluster.settled(|it| it));
        cluster.nodes[slow].slow = 0;
        let newcomer = cluster.settled(|it| it);
        assert_eq!((newcomer.view(), reasons(&newcomer)), ("ooo".into(), vec![]), "node {slow}");
        cluster.nodes[slow].ahead = 1_000;
        let newcomer = cluster.settled(|it| it);
        assert_eq!(reasons(&newcomer), ["clock-stepped"], "node {slow}");
    }
}

#[test]
fn a_client_that_is_answered_slowly_leaves_better_notes_as_they_are() {
    let (mut cluster, _) = used(3);
    cluster.nodes[1].slow = 400;
    drop(cluster.settled(|it| it));
    (cluster.nodes[1].slow, cluster.nodes[1].ahead) = (0, 150);
    let newcomer = cluster.settled(|it| it);
    assert_eq!((newcomer.view(), reasons(&newcomer)), ("oqo".into(), vec!["clock-stepped"]));
}

#[test]
fn one_node_that_cannot_be_reached_does_not_hide_a_step() {
    for missing in [0, 2] {
        let (mut cluster, _) = used(3);
        cluster.nodes[1].ahead = 60_000;
        let mut newcomer = cluster.client(|it| it);
        newcomer.cut_off[missing] = true;
        newcomer.look_around(&mut cluster);
        assert_eq!(reasons(&newcomer), ["clock-stepped"], "without node {missing}");
    }
}

#[test]
fn a_step_right_after_the_first_client_has_come_is_told() {
    for stepped in 0..3 {
        for missing in [None, Some((stepped + 1) % 3), Some((stepped + 2) % 3)] {
            let (mut cluster, _) = just_used(3);
            cluster.nodes[stepped].ahead = 60_000;
            let mut newcomer = cluster.client(|it| it);
            if let Some(node) = missing {
                newcomer.cut_off[node] = true;
            }
            newcomer.look_around(&mut cluster);
            assert_eq!(reasons(&newcomer), ["clock-stepped"], "node {stepped}, not {missing:?}");
        }
    }
}

#[test]
fn a_newcomer_that_misses_a_step_does_not_hide_it() {
    let (mut cluster, _) = used(3);
    cluster.nodes[1].ahead = 60_000;
    // It has no eye on clocks, and leaves notes all the same, or none.
    drop(cluster.settled(|it| it.clock_guard(false)));
    let newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.view(), "oqo");
}

#[test]
fn a_newcomer_trusts_no_clock_before_it_knows_the_others() {
    let (mut cluster, _) = used(3);
    let mut newcomer = cluster.client(|it| it);
    newcomer.look(&mut cluster, 1);
    assert_eq!(newcomer.view(), "-?-");
    newcomer.look_around(&mut cluster);
    assert_eq!(newcomer.view(), "ooo");
}

#[test]
fn old_clients_and_newcomers_wait_for_the_same_step_once() {
    let (mut cluster, mut old) = used(3);
    let mut other = cluster.settled(|it| it);
    cluster.pass(1_000);
    cluster.nodes[1].ahead = 60_000;
    old.look_around(&mut cluster);
    cluster.pass(4_000);
    assert!(!other.grant(&mut cluster, 1));
    let newcomer = cluster.settled(|it| it);
    assert_eq!(other.left(&cluster, 1), u128::from(TERM - 4_000));
    assert_eq!(newcomer.left(&cluster, 1), u128::from(TERM - 4_000));
    cluster.pass(TERM - 4_000);
    for client in [&mut old, &mut other] {
        client.look_around(&mut cluster);
        assert_eq!(client.view(), "ooo");
    }
}

#[test]
fn successive_clients_see_the_quarantine_of_a_step_end() {
    for life in [0, 200, 2_000] {
        let (mut cluster, _) = used(3);
        cluster.nodes[1].ahead = 60_000;
        one_after_another(&mut cluster, life);
        // It stays so, for all that come.
        for _ in 0..3 {
            cluster.pass(100);
            assert_eq!(cluster.settled(|it| it).view(), "ooo", "lives of {life} ms");
        }
    }
}

#[test]
fn newcomers_notice_the_next_step_after_a_quarantine() {
    let (mut cluster, mut client) = used(3);
    cluster.nodes[1].ahead = 60_000;
    client.look_around(&mut cluster);
    cluster.pass(TERM);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "ooo");
    cluster.nodes[1].ahead = 120_000;
    let newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.view(), "oqo");
}

#[test]
fn a_note_of_two_clocks_is_not_replaced_by_a_larger_one() {
    let mut store = GuardStore::default();
    store.canary = Some("whatever".into());
    let mut leave = |most_micros| {
        let lead = Some(LeadNote { most_micros, age_micros: 0, anew: false });
        let left =
            Notes { sightings: vec![SightingNote { id: 7, count: 1, lead }], ..Notes::default() };
        let (_, told) = store.look(None, &left, 5_000_000);
        told.sightings[0].lead.map(|lead| lead.most_micros)
    };
    assert_eq!(leave(300), Some(300));
    assert_eq!(leave(60_000_000), Some(300));
    assert_eq!(leave(-20), Some(-20));
}
