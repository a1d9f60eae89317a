//! What clients that come anew make of the clocks, by what others have noted of them.

use crate::guard_clocks::{STEPPED, used};
use crate::guard_stage::{Cluster, TERM, one_after_another, reasons};

#[test]
fn a_newcomer_tells_a_jump_from_what_others_have_noted() {
    let (mut cluster, _) = used(3);
    cluster.nodes[1].ahead = 60_000;
    let mut newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.view(), "oqo");
    assert_eq!(newcomer.told, [STEPPED]);
    assert!(newcomer.grant(&mut cluster, 0) && newcomer.grant(&mut cluster, 2));
}

#[test]
fn a_newcomer_takes_clocks_for_right_that_stand_as_they_were_noted() {
    let mut cluster = Cluster::fresh(3);
    (cluster.nodes[1].ahead, cluster.nodes[2].ahead) = (3_600_000, -7_200_000);
    drop(cluster.settled(|it| it));
    cluster.pass(3_600_000);
    let newcomer = cluster.settled(|it| it);
    assert_eq!((newcomer.view(), newcomer.told.len()), ("ooo".into(), 0));
}

/// A cluster whose clocks were noted by a client that one node answers slowly.
fn noted_slowly(slow: usize) -> Cluster {
    let (mut cluster, _) = used(3);
    cluster.nodes.iter_mut().for_each(|it| it.notes.skew = None);
    cluster.nodes[slow].slow = 400;
    drop(cluster.settled(|it| it));
    cluster.nodes[slow].slow = 0;
    assert!(cluster.nodes.iter().all(|it| it.notes.skew.is_some()));
    cluster
}

#[test]
fn what_slow_answers_left_in_the_notes_accuses_no_clock() {
    for slow in 0..3 {
        let mut cluster = noted_slowly(slow);
        let newcomer = cluster.settled(|it| it);
        assert_eq!((newcomer.view(), newcomer.told), ("ooo".into(), vec![]), "node {slow}");
    }
}

#[test]
fn notes_of_slow_answers_show_steps_that_are_larger() {
    for slow in 0..3 {
        let mut cluster = noted_slowly(slow);
        cluster.nodes[slow].ahead = 1_000;
        let newcomer = cluster.settled(|it| it);
        assert_eq!(reasons(&newcomer), ["clock-stepped"], "node {slow}");
    }
}

#[test]
fn whoever_is_answered_slowly_leaves_better_notes_as_they_are() {
    let (mut cluster, _) = used(3);
    cluster.nodes[1].slow = 400;
    drop(cluster.settled(|it| it));
    (cluster.nodes[1].slow, cluster.nodes[1].ahead) = (0, 150);
    let newcomer = cluster.settled(|it| it);
    assert_eq!((newcomer.view(), newcomer.told), ("oqo".into(), vec![STEPPED]));
}

#[test]
fn a_newcomer_waits_for_the_other_nodes_before_it_trusts_a_clock() {
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
fn clients_that_come_one_after_another_see_the_quarantine_of_a_step_end() {
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
fn the_next_step_after_a_quarantine_is_noticed_by_newcomers_again() {
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
