//! Tests how the guards find out which nodes may have forgotten locks: by canaries, runs, lineages and
//! counts.

use quorlock_protocol::Ruling;

use crate::guard_world::{Cluster, TERM, reasons, settled_in, used};

#[test]
fn a_node_that_comes_back_empty_is_quarantined_for_the_floor() {
    let (mut cluster, mut client) = used(3);
    cluster.restart(2);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "ooq");
    assert_eq!(client.left(&cluster, 2), u128::from(TERM));
    assert_eq!(reasons(&client), ["restarted"]);
    cluster.pass(TERM - 1);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "ooq");
    cluster.pass(1);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "ooo");
}

#[test]
fn a_newcomer_holds_back_a_node_without_a_history_beside_others() {
    let (mut cluster, _) = settled_in(3);
    cluster.restart(2);
    let mut newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.view(), "ooq");
    assert_eq!(reasons(&newcomer), ["no-history"]);
    cluster.pass(TERM - 1);
    newcomer.look_around(&mut cluster);
    assert_eq!(newcomer.view(), "ooq");
    cluster.pass(1);
    newcomer.look_around(&mut cluster);
    assert_eq!(newcomer.view(), "ooo");
}

#[test]
fn an_old_snapshot_does_not_pass_for_a_memory() {
    let (mut cluster, mut client) = used(3);
    let snapshot = cluster.nodes[1].clone();
    cluster.restart(1);
    cluster.nodes[1].take_back(&snapshot);
    // The restored canary is word for word the one that the client relies on: the new run tells.
    client.look(&mut cluster, 1);
    let newcomer = cluster.settled(|it| it);
    assert_eq!((client.view(), newcomer.view()), ("oqo".into(), "oqo".into()));
}

#[test]
fn a_replica_that_was_promoted_is_told_by_its_run() {
    let (mut cluster, mut client) = used(3);
    // It has the keys of its master, the canary among them, and answers at the same address.
    cluster.nodes[0].run = 77;
    client.look(&mut cluster, 0);
    assert_eq!(client.view(), "qoo");
    assert_eq!(reasons(&client), ["restarted"]);
}

#[test]
fn a_flush_under_the_same_run_is_noticed_by_the_next_grant() {
    let (mut cluster, mut client) = used(3);
    cluster.nodes[1].flush();
    assert!(!client.grant(&mut cluster, 1));
    assert_eq!(client.view(), "oqo");
    assert_eq!(reasons(&client), ["forgot"]);
    assert!(client.grant(&mut cluster, 0) && client.grant(&mut cluster, 2));
}

#[test]
fn a_canary_that_cannot_be_read_is_no_canary() {
    let (mut cluster, mut client) = used(3);
    cluster.nodes[1].store.canary = Some("9 of a later version".into());
    assert!(!client.grant(&mut cluster, 1));
    assert_eq!(client.view(), "oqo");
}

/// A node whose data comes back in the same run, from before the last beat, under connections that stay.
fn come_back(may_ask: bool) -> (Cluster, crate::guard_world::Watcher) {
    let (mut cluster, mut client) = settled_in(3);
    client.may_ask = may_ask;
    client.look_around(&mut cluster);
    let old = cluster.nodes[1].clone();
    cluster.pass(5_000);
    client.look_around(&mut cluster);
    cluster.nodes[1].take_back(&old);
    (cluster, client)
}

#[test]
fn an_older_state_in_the_same_run_is_noticed_by_the_next_grant() {
    let (mut cluster, mut client) = come_back(true);
    assert!(!client.grant(&mut cluster, 1));
    assert_eq!((client.view(), reasons(&client)), ("oqo".into(), vec!["forgot"]));
    // Nobody takes it up where it was: it has another name now.
    let newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.view(), "oqo");
}

#[test]
fn a_newcomer_finds_an_older_state_by_notes_on_other_nodes() {
    for may_ask in [true, false] {
        let (mut cluster, _) = come_back(may_ask);
        let mut newcomer = cluster.client(|it| it);
        newcomer.may_ask = may_ask;
        newcomer.look_around(&mut cluster);
        assert_eq!(newcomer.view(), "oqo", "may ask servers: {may_ask}");
    }
}

#[test]
fn an_older_state_from_after_the_last_beat_is_told_by_the_lineage() {
    let (mut cluster, mut client) = settled_in(3);
    let old = cluster.nodes[1].clone();
    assert!(client.grant(&mut cluster, 1));
    cluster.nodes[1].take_back(&old);
    cluster.nodes[1].lineage += 1;
    client.look(&mut cluster, 1);
    assert_eq!((client.view(), reasons(&client)), ("oqo".into(), vec!["forgot"]));
}

#[test]
fn a_memory_that_has_ended_does_not_come_back() {
    let (mut cluster, mut client) = settled_in(3);
    let old = cluster.nodes[1].clone();
    cluster.nodes[1].flush();
    assert!(!client.grant(&mut cluster, 1));
    cluster.pass(TERM);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "ooo");
    // The beats of the old memory were as many as anybody has seen, and its run and lineage are those of now.
    cluster.nodes[1].take_back(&old);
    let newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.view(), "oqo");
    assert!(!client.grant(&mut cluster, 1));
    assert_eq!(client.view(), "oqo");
}

#[test]
fn a_beat_of_another_client_is_no_alarm() {
    let (mut cluster, mut client) = settled_in(3);
    cluster.pass(6_000);
    let mut other = cluster.settled(|it| it);
    for client in [&mut client, &mut other] {
        assert!((0..3).all(|node| client.grant(&mut cluster, node)));
        client.unlock(&mut cluster);
    }
    assert!(client.told.is_empty() && other.told.is_empty());
}

#[test]
fn a_durable_node_goes_on_where_it_was() {
    let mut cluster = Cluster::fresh(3);
    cluster.nodes[0].durable = true;
    let mut client = cluster.settled(|it| it);
    cluster.nodes[0].run += 1;
    client.look(&mut cluster, 0);
    assert_eq!(client.view(), "ooo");
    assert!(client.grant(&mut cluster, 0) && client.told.is_empty());
    // It is durable as long as it says so, and forgets like any other when it is flushed.
    cluster.nodes[0].flush();
    assert!(!client.grant(&mut cluster, 0));
    assert_eq!(client.view(), "qoo");
}

#[test]
fn a_durable_node_with_an_older_state_has_forgotten() {
    let mut cluster = Cluster::fresh(3);
    cluster.nodes[0].durable = true;
    let mut client = cluster.settled(|it| it);
    let old = cluster.nodes[0].clone();
    cluster.pass(6_000);
    client.look_around(&mut cluster);
    // As from a copy of its files.
    cluster.nodes[0].take_back(&old);
    cluster.nodes[0].run += 1;
    let newcomer = cluster.settled(|it| it);
    client.look(&mut cluster, 0);
    assert_eq!((client.view(), newcomer.view()), ("qoo".into(), "qoo".into()));
}

#[test]
fn a_node_not_durable_before_its_restart_may_have_forgotten() {
    let (mut cluster, mut client) = used(3);
    cluster.nodes[0].run += 1;
    cluster.nodes[0].durable = true;
    client.look(&mut cluster, 0);
    assert_eq!(client.view(), "qoo");
    // One that has become durable meanwhile is so from its next run on.
    cluster.pass(TERM);
    client.look_around(&mut cluster);
    cluster.nodes[0].run += 1;
    client.look(&mut cluster, 0);
    assert_eq!(client.view(), "ooo");
}

#[test]
fn two_of_three_in_quarantine_leave_no_quorum() {
    let (mut cluster, mut client) = used(3);
    cluster.restart(0);
    client.look_around(&mut cluster);
    cluster.pass(2_000);
    cluster.restart(1);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "qqo");
    cluster.pass(TERM - 2_000);
    client.look_around(&mut cluster);
    assert_eq!(client.view(), "oqo");
}

#[test]
fn a_client_that_learns_of_more_beats_than_it_relies_on_looks_again() {
    let (mut cluster, mut client) = settled_in(3);
    let old = cluster.nodes[1].clone();
    // Another beats all nodes, and one of them has the state of before then, in the same run.
    cluster.pass(6_000);
    let mut other = cluster.settled(|it| it);
    other.look_around(&mut cluster);
    cluster.nodes[1].take_back(&old);
    client.look(&mut cluster, 2);
    client.follow_up(&mut cluster);
    assert_eq!(client.view(), "oqo");
}

#[test]
fn an_older_state_that_another_has_taken_up_is_told_by_its_text() {
    let (mut cluster, mut client) = settled_in(3);
    let old = cluster.nodes[1].clone();
    cluster.pass(6_000);
    client.look_around(&mut cluster);
    cluster.nodes[1].take_back(&old);
    cluster.pass(50);
    // Who reaches only nodes that do not know of the last beat beats the older state, as often as that.
    let mut narrow = cluster.client(|it| it);
    narrow.cut_off[2] = true;
    narrow.look_around(&mut cluster);
    assert_eq!(narrow.view(), "oo-", "nobody in sight has told it");
    client.look(&mut cluster, 1);
    assert_eq!(client.view(), "oqo");
}

#[test]
fn beats_heard_of_after_a_look_do_not_condemn_a_memory() {
    let (mut cluster, mut client) = settled_in(3);
    let mut other = cluster.settled(|it| it);
    cluster.pass(5_000);
    client.look(&mut cluster, 0);
    (client.latency, other.latency) = (1, 1);
    // The client asks; then another beats the memory, and tells the next node, whose answer comes first.
    let asked_before = client.ask(&mut cluster, 1, None);
    other.look_around(&mut cluster);
    client.look(&mut cluster, 2);
    let ruling = client.hear(&cluster, 1, &asked_before);
    assert!(matches!(ruling, Ruling::Undecided(_)), "{ruling:?}");
    client.look_around(&mut cluster);
    assert_eq!((client.view(), reasons(&client)), ("ooo".into(), vec![]));
}
