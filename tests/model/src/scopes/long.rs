//! The list of larger worlds, ordered by the time that their search takes.

use super::{faulty, guarded, in_parts, keeping, queues, small};
use crate::scope::{Budget, Scope, policy};

/// The large worlds, for the patient: those that end come first, and leave their time to the others.
pub(crate) fn long() -> Vec<Scope> {
    let mut scopes = vec![
        Scope { clients: 3, ..faulty("three clients", 0, |_| {}) },
        Scope { nodes: 5, ..faulty("five nodes, tokens", 0, |_| {}) },
        five("five nodes, a client dies", |it| it.crashes = 1),
        five("five nodes, users that give up", |it| it.cancels = 1),
        five("five nodes, broken connections", |it| it.resends = 1),
        in_parts(faulty("grants in parts, clients that stop", 1, |it| it.pauses = 1)),
    ];
    scopes.extend(pairs());
    scopes.extend(guarded::long());
    scopes.extend(renewals());
    scopes.extend(extensions());
    scopes.extend(larger());
    scopes.extend(queues::long());
    scopes.extend(twice());
    scopes
}

/// Two faults of different kinds, each at any moment: of six kinds every two.
fn pairs() -> Vec<Scope> {
    two_of(&[
        ("a client dies, a user gives up", |it| (it.crashes, it.cancels) = (1, 1)),
        ("a broken connection, a user gives up", |it| (it.resends, it.cancels) = (1, 1)),
        ("a broken connection, a client dies", |it| (it.resends, it.crashes) = (1, 1)),
        ("a client stops, a user gives up", |it| (it.pauses, it.cancels) = (1, 1)),
        ("one client stops, one dies", |it| (it.pauses, it.crashes) = (1, 1)),
        ("a broken connection, a client stops", |it| (it.resends, it.pauses) = (1, 1)),
        ("a node goes down, a user gives up", |it| (it.downs, it.cancels) = (1, 1)),
        ("a node goes down, a client dies", |it| (it.downs, it.crashes) = (1, 1)),
        ("a node hangs, a user gives up", |it| (it.hangs, it.cancels) = (1, 1)),
        ("a node hangs, a client dies", |it| (it.hangs, it.crashes) = (1, 1)),
        ("a broken connection, a node goes down", |it| (it.resends, it.downs) = (1, 1)),
        ("a broken connection, a node hangs", |it| (it.resends, it.hangs) = (1, 1)),
        ("a node goes down, a client stops", |it| (it.downs, it.pauses) = (1, 1)),
        ("a node hangs, a client stops", |it| (it.hangs, it.pauses) = (1, 1)),
        ("one node goes down, one hangs", |it| (it.downs, it.hangs) = (1, 1)),
    ])
    .map(|(name, budget)| Scope { budget, ..faulty(name, 0, |_| {}) })
    .collect()
}

/// The same while leases are renewed.
fn renewals() -> Vec<Scope> {
    two_of(&[
        ("renewal, a broken connection, a client stops", |it| (it.resends, it.pauses) = (1, 1)),
        ("renewal, a broken connection, a node goes down", |it| (it.resends, it.downs) = (1, 1)),
        ("renewal, a broken connection, a node hangs", |it| (it.resends, it.hangs) = (1, 1)),
        ("renewal, a node goes down, a client stops", |it| (it.downs, it.pauses) = (1, 1)),
        ("renewal, a node hangs, a client stops", |it| (it.hangs, it.pauses) = (1, 1)),
        ("renewal, one node goes down, one hangs", |it| (it.downs, it.hangs) = (1, 1)),
    ])
    .map(|(name, budget)| Scope { budget, ..keeping(name, 700, 0, |_| {}) })
    .collect()
}

/// The same while leases are extended, once by their ttl and once by a shorter one.
fn extensions() -> Vec<Scope> {
    two_of(&[
        ("extensions, a broken connection, a client stops", |it| (it.resends, it.pauses) = (1, 1)),
        ("extensions, a broken connection, a node goes down", |it| (it.resends, it.downs) = (1, 1)),
        ("extensions, a node goes down, a client stops", |it| (it.downs, it.pauses) = (1, 1)),
    ])
    .map(|(name, budget)| {
        let budget = Budget { extends: 1, shortens: 1, ..budget };
        Scope { budget, ..faulty(name, 0, |_| {}) }
    })
    .collect()
}

/// More nodes, more clients, more that is late.
fn larger() -> Vec<Scope> {
    vec![
        Scope { clients: 3, ..faulty("three clients, broken connections", 1, |it| it.resends = 1) },
        faulty("late and lost messages", 1, |it| (it.delays, it.resends) = (2, 1)),
        Scope {
            clients: 3,
            policy: policy(|it| it.try_once().fencing(false)),
            nodes: 5,
            ..faulty("five nodes, three clients without tokens", 0, |_| {})
        },
        five("five nodes, a node goes down", |it| it.downs = 1),
        Scope {
            nodes: 5,
            ..faulty("five nodes, extensions", 1, |it| (it.extends, it.downs) = (1, 1))
        },
        Scope {
            nodes: 5,
            clients: 1,
            ..keeping("five nodes, one lease against faults", 700, 2, |it| {
                (it.resends, it.downs, it.hangs, it.delays) = (1, 2, 1, 1);
            })
        },
        Scope {
            prompt: false,
            batches: true,
            locks: 2,
            ..Scope::base("two clients twice, any delivery", 3)
        },
    ]
}

/// The small worlds, where every client comes twice.
fn twice() -> Vec<Scope> {
    let once = small().into_iter().filter(|scope| scope.locks == 1);
    let again = |name| -> &'static str { format!("twice: {name}").leak() };
    once.map(|scope| Scope { name: again(scope.name), locks: 2, bound: None, ..scope }).collect()
}

/// Five nodes and no tokens, which need another round trip.
fn five(name: &'static str, change: impl FnOnce(&mut Budget)) -> Scope {
    let policy = policy(|it| it.try_once().fencing(false));
    Scope { nodes: 5, policy, ..faulty(name, 1, change) }
}

fn two_of<const N: usize>(kinds: &[Kinds; N]) -> impl Iterator<Item = (&'static str, Budget)> {
    kinds
        .map(|(name, change)| {
            let mut budget = Budget { faults: 2, ..Budget::default() };
            change(&mut budget);
            (name, budget)
        })
        .into_iter()
}

type Kinds = (&'static str, fn(&mut Budget));
