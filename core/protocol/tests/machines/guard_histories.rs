//! Random histories of nodes that forget, under random clients: no grant counts from a node that forgot
//! a lock that is still valid.

use std::time::Duration;

use proptest::prelude::*;
use quorlock_protocol::{Drift, Moment};

use crate::guard_stage::{Cluster, PretendNode, Watcher, policy, reasons, ttl};

/// What happens next.
#[derive(Clone, Debug)]
enum Deed {
    Pass(u64),
    /// A client asks a node for a lock.
    Grant(usize, usize),
    /// A client looks at a node that it had lost the connection to.
    Look(usize, usize),
    LookAround(usize),
    /// One of the nodes that may fail is started anew, with nothing.
    Restart(usize),
    /// The same from a snapshot, taken the last time that one was taken.
    Restore(usize),
    Snapshot(usize),
    Flush(usize),
    /// Its clock jumps ahead.
    Step(usize, i64),
    /// A client ends, and another comes.
    Replace(usize),
}

/// A lock on one node, as its holder trusts it.
#[derive(Clone, Copy, Debug)]
struct Lock {
    /// When the node lets it go, by its own clock in milliseconds.
    expires: i64,
    /// The true time at which the holder no longer trusts it.
    until: u64,
    stands: bool,
}

struct History {
    cluster: Cluster,
    clients: Vec<Watcher>,
    /// What clients ask for, in milliseconds.
    ttls: Vec<u64>,
    locks: Vec<Vec<Lock>>,
    snapshots: Vec<Option<PretendNode>>,
    /// How many grants have counted, and how many from a node that had forgotten before.
    counted: u32,
}

impl History {
    fn begin(nodes: usize, ttls: &[u64]) -> Self {
        let mut cluster = Cluster::fresh(nodes);
        let mut clients: Vec<_> = ttls.iter().map(|it| cluster.settled(ttl(*it))).collect();
        // Everyone hears of everyone's ttl.
        for client in &mut clients {
            client.look_around(&mut cluster);
        }
        Self {
            cluster,
            clients,
            ttls: ttls.to_vec(),
            locks: vec![Vec::new(); nodes],
            snapshots: vec![None; nodes],
            counted: 0,
        }
    }

    fn clock(&self, node: usize) -> i64 {
        i64::try_from(self.cluster.now).unwrap() + self.cluster.nodes[node].ahead
    }

    fn happen(&mut self, deed: &Deed) -> Result<(), TestCaseError> {
        let client = |number: usize| number % self.clients.len();
        match *deed {
            Deed::Pass(millis) => self.cluster.pass(millis),
            Deed::Look(number, node) => {
                let number = client(number);
                let watcher = &mut self.clients[number];
                watcher.look(&mut self.cluster, node % self.locks.len());
                watcher.follow_up(&mut self.cluster);
            }
            Deed::LookAround(number) => {
                let number = client(number);
                self.clients[number].look_around(&mut self.cluster);
            }
            Deed::Grant(number, node) => self.grant(client(number), node % self.locks.len())?,
            Deed::Restart(node) => {
                self.cluster.restart(node);
                self.forget(node);
            }
            Deed::Flush(node) => {
                self.cluster.flush(node);
                self.locks[node].iter_mut().for_each(|lock| lock.stands = false);
            }
            Deed::Snapshot(node) => self.snapshots[node] = Some(self.cluster.nodes[node].clone()),
            Deed::Restore(node) => {
                self.cluster.restart(node);
                if let Some(old) = &self.snapshots[node] {
                    let site = &mut self.cluster.nodes[node];
                    (site.canary, site.notes) = (old.canary.clone(), old.notes);
                }
                self.forget(node);
            }
            Deed::Step(node, by) => self.cluster.nodes[node].ahead += by,
            Deed::Replace(number) => {
                let number = client(number);
                let watcher = self.cluster.settled(ttl(self.ttls[number]));
                self.clients[number] = watcher;
            }
        }
        Ok(())
    }

    /// The keys are gone, and every connection broke.
    fn forget(&mut self, node: usize) {
        self.locks[node].iter_mut().for_each(|lock| lock.stands = false);
        for client in &mut self.clients {
            client.look(&mut self.cluster, node);
            client.follow_up(&mut self.cluster);
        }
    }

    /// What one node does with a grant; its answer counts, or it does not.
    fn grant(&mut self, number: usize, node: usize) -> Result<(), TestCaseError> {
        let (now, clock) = (self.cluster.now, self.clock(node));
        let locks = &mut self.locks[node];
        locks.retain(|lock| lock.until > now || lock.expires > clock);
        let is_free = locks.iter().all(|lock| !lock.stands || lock.expires <= clock);
        let counts = self.clients[number].grant(&mut self.cluster, node);
        if !is_free || !counts {
            return Ok(());
        }
        self.counted += 1;
        let valid: Vec<_> = self.locks[node].iter().filter(|lock| lock.until > now).collect();
        prop_assert!(valid.is_empty(), "node {node} at {now} had forgotten {valid:?}");
        let asked = policy(ttl(self.ttls[number]));
        let until = Drift::default().end_of(asked.ttl(), Moment::default()).since_epoch();
        self.locks[node].push(Lock {
            expires: clock + i64::try_from(self.ttls[number]).unwrap(),
            until: now + u64::try_from(until.as_millis()).unwrap(),
            stands: true,
        });
        Ok(())
    }
}

/// Random deeds; with `steps` clocks jump, with `newcomers` clients end and others come.
fn deeds(nodes: usize, steps: bool, newcomers: bool) -> impl Strategy<Value = Vec<Deed>> {
    // A minority fails, however often.
    let (failing, clients) = (0..(nodes - 1) / 2, 0_usize..3);
    let (often, all) = (failing.clone(), 0..nodes);
    let pass = prop_oneof![Just(0), 1_u64..100, 900..1_100_u64, 1_u64..2_500];
    let deed = prop_oneof![
        6 => pass.prop_map(Deed::Pass),
        6 => (clients.clone(), often.clone()).prop_map(|(client, node)| Deed::Grant(client, node)),
        2 => (clients.clone(), all.clone()).prop_map(|(client, node)| Deed::Grant(client, node)),
        2 => (clients.clone(), all).prop_map(|(client, node)| Deed::Look(client, node)),
        1 => clients.clone().prop_map(Deed::LookAround),
        1 => failing.clone().prop_map(Deed::Restart),
        1 => failing.clone().prop_map(Deed::Restore),
        1 => failing.clone().prop_map(Deed::Snapshot),
        1 => failing.clone().prop_map(Deed::Flush),
        1 => clients.prop_map(move |client| if newcomers { Deed::Replace(client) } else { Deed::LookAround(client) }),
        1 =>
            (failing, 30_i64..5_000)
            .prop_map(move |(node, by)| if steps { Deed::Step(node, by) } else { Deed::Flush(node) }),
    ];
    prop::collection::vec(deed, 1..120)
}

fn run(nodes: usize, ttls: &[u64], deeds: &[Deed]) -> Result<(), TestCaseError> {
    let mut history = History::begin(nodes, ttls);
    for deed in deeds {
        history.happen(deed)?;
    }
    // However it went: in the end every node is of use again.
    history.cluster.pass(5_000);
    for _ in 0..4 {
        let mut client = history.cluster.settled(ttl(ttls[0]));
        if client.view().chars().all(|letter| letter == 'o') {
            return Ok(());
        }
        history.cluster.pass(2_000);
        client.look_around(&mut history.cluster);
    }
    prop_assert!(false, "a quarantine does not end");
    Ok(())
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_grant_counts_from_a_node_that_forgot_a_valid_lock(deeds in deeds(3, false, true)) {
        run(3, &[1_000, 1_000], &deeds)?;
    }

    #[test]
    fn the_same_with_locks_of_several_lengths(deeds in deeds(3, false, true)) {
        run(3, &[300, 2_000, 1_000], &deeds)?;
    }

    #[test]
    fn the_same_with_clocks_that_jump(deeds in deeds(3, true, true)) {
        run(3, &[1_000, 1_000], &deeds)?;
    }

    #[test]
    fn the_same_with_two_of_five(deeds in deeds(5, false, true)) {
        run(5, &[1_000, 1_000], &deeds)?;
    }

    // While one node is held back clocks are not noted, so that a newcomer may miss a step of another.
    #[test]
    fn the_same_with_clocks_of_two_of_five(deeds in deeds(5, true, false)) {
        run(5, &[1_000, 1_000], &deeds)?;
    }

    #[test]
    fn no_clock_is_accused_that_nobody_set(
        deeds in deeds(3, false, true),
        slow in prop::collection::vec((0_usize..3, 0_u64..500), 120),
    ) {
        let mut history = History::begin(3, &[1_000, 1_000]);
        for (deed, (node, millis)) in deeds.iter().zip(slow) {
            history.cluster.nodes[node].slow = millis;
            history.happen(deed)?;
            for client in &history.clients {
                prop_assert!(!reasons(client).contains(&"clock-stepped"), "{:?}", client.told);
            }
        }
    }
}

#[test]
fn a_history_counts_grants_before_and_after() {
    let mut history = History::begin(3, &[1_000, 1_000]);
    let grant = Deed::Grant(0, 0);
    for deed in
        [&grant, &Deed::Restart(0), &grant, &Deed::Pass(1_012), &Deed::LookAround(1), &grant]
    {
        history.happen(deed).unwrap();
    }
    history.happen(&Deed::LookAround(0)).unwrap();
    history.happen(&grant).unwrap();
    assert_eq!(history.counted, 2);
    assert_eq!(Duration::from_millis(history.locks[0].len() as u64).as_millis(), 1);
}
