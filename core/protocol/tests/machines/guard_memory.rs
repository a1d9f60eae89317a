//! Which nodes may have forgotten locks: what the guards make of canaries and runs.

use crate::guard_stage::{Cluster, TERM, reasons, used};

#[test]
fn a_node_that_comes_back_empty_is_held_back_for_the_longest_ttl() {
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
    let (mut cluster, _) = used(3);
    cluster.restart(2);
    let mut newcomer = cluster.settled(|it| it);
    assert_eq!(newcomer.view(), "oo?");
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
    let snapshot = cluster.nodes[1].canary.clone();
    cluster.restart(1);
    cluster.nodes[1].canary = snapshot;
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
    cluster.flush(1);
    assert!(!client.grant(&mut cluster, 1));
    assert_eq!(client.view(), "oqo");
    assert_eq!(reasons(&client), ["forgot"]);
    assert!(client.grant(&mut cluster, 0) && client.grant(&mut cluster, 2));
}

#[test]
fn a_canary_that_cannot_be_read_is_no_canary() {
    let (mut cluster, mut client) = used(3);
    cluster.nodes[1].canary = Some("9 of a later version".into());
    assert!(!client.grant(&mut cluster, 1));
    assert_eq!(client.view(), "oqo");
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
    cluster.flush(0);
    assert!(!client.grant(&mut cluster, 0));
    assert_eq!(client.view(), "qoo");
}

#[test]
fn a_node_that_was_not_durable_before_its_restart_may_have_forgotten() {
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
fn two_nodes_of_three_in_quarantine_leave_no_quorum_until_it_ends() {
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
