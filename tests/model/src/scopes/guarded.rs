//! The list of worlds in which a minority of nodes forget or set their clocks forward, with the
//! guards on.

use quorlock_protocol::{PolicyBuilder, RestartGuard};

use super::{faulty, millis};
use crate::clock::Rate;
use crate::scope::{Budget, Scope, Target, policy};

/// Nodes of a minority that forget or whose clocks jump, and what the guards make of that.
pub(super) fn small() -> Vec<Scope> {
    vec![
        forgetful("guards: a node forgets", |it| it.forgets = 1),
        forgetful("guards: a node is flushed", |it| it.flushes = 1),
        Scope {
            policy: guarding(|it| it.fencing(true)),
            ..forgetful("guards: tokens, and a node that forgets", |it| it.forgets = 1)
        },
        Scope {
            in_parts: true,
            bound: Some(500_000),
            ..forgetful("guards: grants in parts, and a node that is flushed", |it| it.flushes = 1)
        },
        forgetful("guards: a node comes back from a snapshot", |it| it.rollbacks = 1),
        Scope {
            newcomers: 1,
            ..forgetful("guards: a newcomer, and a node that forgets", |it| it.forgets = 1)
        },
        Scope {
            newcomers: 2,
            is_fresh: true,
            ..forgetful("guards: a new cluster, and a node that forgets", |it| it.forgets = 1)
        },
        Scope {
            policy: watching(|it| it),
            ..forgetful("guards: a clock jumps", |it| it.clock_steps = 1)
        },
        Scope {
            policy: watching(|it| it),
            newcomers: 1,
            ..forgetful("guards: a newcomer, and a clock that jumps", |it| it.clock_steps = 1)
        },
        Scope {
            policy: guarding(|it| it.auto_extend(true).max_hold(millis(340))),
            others: Some(guarding(|it| it)),
            ..forgetful("guards: one renewal, and a node that is flushed", |it| it.flushes = 1)
        },
        Scope {
            policy: watching(|it| it),
            newcomers: 1,
            // With that, other answers come late to the newcomer than to who was here before.
            late: 41,
            symmetric: false,
            ..forgetful("guards: a newcomer, and slow answers", |it| it.faults = 0)
        },
        still("guards: a machine that stands still"),
        Scope {
            together: 2,
            bound: Some(500_000),
            ..still("guards: two managers of one process, and a machine that stands still")
        },
        Scope {
            together: 2,
            clients: 3,
            bound: Some(1_000_000),
            ..still_and("guards: two managers, a machine that stands still, and a flush", |it| {
                it.flushes = 1;
            })
        },
        Scope {
            policy: watching(|it| it.fencing(true)),
            target: Target::Checking,
            stands_still: Some(0),
            ..still("guards: checked writes, and a machine that stands still")
        },
    ]
}

/// A lease that stands on two of three nodes, of which one may be flushed.
pub(super) fn flushed(name: &'static str) -> Scope {
    Scope {
        policy: guarding(|it| it.auto_extend(true).max_hold(millis(340))),
        down: 1,
        releases: true,
        ..forgetful(name, |it| (it.flushes, it.checks) = (1, 1))
    }
}

/// Nodes on which an older state of their memory comes back.
pub(super) fn coming_back() -> Vec<Scope> {
    vec![
        forgetful("guards: a node fails over to a replica and back", |it| it.failbacks = 1),
        Scope {
            newcomers: 1,
            ..forgetful("guards: a newcomer, and a node that fails over and back", |it| {
                it.failbacks = 1;
            })
        },
        Scope {
            newcomers: 1,
            may_ask: false,
            ..forgetful("guards: a newcomer that may not ask, and a machine put back", |it| {
                it.snapshots = 1;
            })
        },
        Scope {
            durable: true,
            newcomers: 1,
            ..forgetful("guards: a node that writes all to disk, and comes from a copy", |it| {
                it.snapshots = 1;
            })
        },
        Scope {
            may_ask: false,
            ..forgetful("guards: no right to ask servers, and a node that is flushed", |it| {
                it.flushes = 1;
            })
        },
    ]
}

/// Memories that were replaced by new ones, and come back.
pub(super) fn ended() -> Vec<Scope> {
    vec![Scope {
        newcomers: 1,
        bound: Some(300_000),
        ..forgetful("guards: a newcomer, and a memory that has ended comes back", |it| {
            (it.faults, it.flushes, it.returns) = (2, 1, 1);
        })
    }]
}

/// A node that forgets when nobody has used the cluster for a while. A client that comes then comes again a second later,
/// when it has asked the other nodes once more.
pub(super) fn idle() -> Vec<Scope> {
    let again = |it: PolicyBuilder| it.retry_limit(None).timeout(Some(millis(1200)));
    let again = changed(unlimited(1000), |it| again(it).retry_delay(millis(1010)));
    vec![Scope {
        newcomers: 2,
        idle: IDLE,
        policy: unlimited(5000),
        others: Some(again),
        bound: Some(300_000),
        ..forgetful("guards: an idle cluster, and a node that forgets", |it| it.forgets = 1)
    }]
}

/// Nodes whose clocks gain more than the drift allowance.
pub(super) fn fast() -> Vec<Scope> {
    let fast = |name| Scope {
        policy: watching(|it| it),
        wrong_rates: vec![Rate(50_000)],
        ..forgetful(name, |it| it.faults = 0)
    };
    vec![
        fast("guards: a clock that runs 5 % fast"),
        Scope { newcomers: 1, ..fast("guards: a newcomer, and a clock that runs 5 % fast") },
    ]
}

/// Clients that do not reach the same nodes.
pub(super) fn apart() -> Vec<Scope> {
    vec![
        Scope {
            down: 0,
            newcomers: 2,
            is_fresh: true,
            cuts: vec![(1, 2)],
            ..forgetful("guards: a new cluster, and a client that does not reach all of it", |it| {
                it.forgets = 1;
            })
        },
        Scope {
            down: 0,
            newcomers: 1,
            cuts: vec![(0, 2), (1, 2)],
            ..forgetful("guards: whatever is in sight forgets", |it| {
                (it.faults, it.forgets) = (2, 2);
            })
        },
        Scope {
            newcomers: 1,
            cuts: vec![(1, 0)],
            policy: watching(|it| it),
            ..forgetful("guards: a newcomer in sight of two nodes, and a clock that jumps", |it| {
                it.clock_steps = 1;
            })
        },
    ]
}

/// Locks that nodes keep for longer than the shortest quarantine.
pub(super) fn long_locks() -> Vec<Scope> {
    vec![
        Scope {
            bound: Some(300_000),
            ..lasting(forgetful("guards: long locks, and a node that forgets", |it| it.forgets = 1))
        },
        Scope {
            bound: Some(300_000),
            ..lasting(forgetful("guards: long locks, and one node after another forgets", |it| {
                (it.faults, it.forgets) = (2, 2);
            }))
        },
        Scope {
            cuts: vec![(0, 2)],
            down: 0,
            ..lasting(forgetful(
                "guards: long locks, and a holder that does not reach a node",
                |it| {
                    it.forgets = 1;
                },
            ))
        },
    ]
}

/// The same for a lock of twelve seconds, and others that are short.
pub(super) fn lasting(scope: Scope) -> Scope {
    Scope { policy: unlimited(12_000), others: Some(unlimited(1000)), locks: 2, ..scope }
}

/// What long locks are not safe from where no longest one is set: nobody in sight knows of the lock, and a newcomer
/// comes again when the floor is over and the lock is not.
pub(super) fn limits() -> Vec<Scope> {
    let again = |it: PolicyBuilder| it.retry_limit(None).timeout(Some(millis(10_600)));
    let again = changed(unlimited(1000), |it| again(it).retry_delay(millis(10_300)));
    let unseen =
        |scope| Scope { newcomers: 1, down: 0, locks: 1, others: Some(again), ..lasting(scope) };
    vec![Scope {
        cuts: vec![(0, 2), (1, 1)],
        ..unseen(forgetful(
            "a long lock without max_ttl, and who knows of it is out of sight",
            |it| {
                (it.faults, it.forgets, it.pauses) = (2, 1, 1);
            },
        ))
    }]
}

/// The same where it is: then such nodes are held back for as long.
pub(super) fn limited() -> Vec<Scope> {
    let limited = |it: PolicyBuilder| it.max_ttl(Some(millis(12_000)));
    let named = |name: &str| -> &'static str { name.replace("without", "with").leak() };
    let with = |scope: Scope| Scope {
        name: named(scope.name),
        policy: changed(scope.policy, limited),
        others: scope.others.map(|it| changed(it, limited)),
        bound: Some(300_000),
        ..scope
    };
    limits().into_iter().map(with).collect()
}

fn changed(
    policy: quorlock_protocol::Policy,
    change: impl FnOnce(PolicyBuilder) -> PolicyBuilder,
) -> quorlock_protocol::Policy {
    change(policy.to_builder()).build().expect("a ttl that is allowed")
}

/// Locks of `ttl` milliseconds, where no longest one is set.
fn unlimited(ttl: u64) -> quorlock_protocol::Policy {
    policy(|it| it.try_once().fencing(false).restart_guard(RestartGuard::Auto).ttl(millis(ttl)))
}

/// The machine of a client stands still, with the guards on.
pub(super) fn still(name: &'static str) -> Scope {
    Scope { policy: watching(|it| it), ..forgetful(name, |it| it.freezes = 1) }
}

/// The same, and one more fault.
fn still_and(name: &'static str, change: impl FnOnce(&mut Budget)) -> Scope {
    let scope = still(name);
    let mut budget = Budget { faults: 2, ..scope.budget };
    change(&mut budget);
    Scope { budget, ..scope }
}

/// One node is down at first, so that a lock stands on the other two, and `change` says what may happen to
/// those.
pub(super) fn forgetful(name: &'static str, change: impl FnOnce(&mut Budget)) -> Scope {
    Scope {
        policy: guarding(|it| it),
        walls: vec![0],
        walls_run: true,
        down: 1,
        releases: false,
        ..faulty(name, 1, change)
    }
}

/// Five nodes, of which two are down at first, and come back at once. Without the guards, one that forgets is
/// enough for two holders then.
pub(super) fn five(scope: Scope) -> Scope {
    Scope { nodes: 5, down: 2, returns_at_once: true, ..scope }
}

/// The same in larger worlds.
pub(super) fn long() -> Vec<Scope> {
    let apart = |scope| Scope { returns_at_once: false, ..five(scope) };
    vec![
        Scope {
            policy: guarding(|it| it.auto_extend(true).max_hold(millis(400))),
            ..forgetful("guards: renewal, and a node that forgets", |it| it.forgets = 1)
        },
        Scope {
            policy: watching(|it| it.auto_extend(true).max_hold(millis(400))),
            others: Some(watching(|it| it)),
            stands_still: Some(0),
            ..still("guards: renewal, and a machine that stands still")
        },
        Scope {
            others: Some(watching(|it| it.retry_limit(Some(1)))),
            stands_still: Some(1),
            ..still_and("guards: a machine that stands still, and a node that forgets", |it| {
                it.forgets = 1;
            })
        },
        Scope {
            others: Some(watching(|it| it.retry_limit(Some(1)))),
            stands_still: Some(1),
            down: 0,
            ..still_and("guards: a machine that stands still, and a clock that jumps", |it| {
                it.clock_steps = 1;
            })
        },
        // Two nodes are down at first: the lock stands on a bare quorum, of which one node is enough.
        five(forgetful("guards: five nodes, one forgets", |it| it.forgets = 1)),
        five(forgetful("guards: five nodes, one is flushed", |it| it.flushes = 1)),
        Scope {
            policy: watching(|it| it),
            ..five(forgetful("guards: five nodes, a clock jumps", |it| it.clock_steps = 1))
        },
        five(forgetful("guards: five nodes, two are flushed", |it| {
            (it.faults, it.flushes) = (2, 2);
        })),
        apart(forgetful("guards: five nodes that come back one by one, one forgets", |it| {
            it.forgets = 1;
        })),
    ]
}

/// The same without the guards.
pub(super) fn without(scope: Scope) -> Scope {
    let policy = policy(|it| it.try_once().fencing(false));
    Scope { policy, others: None, ..scope }
}

/// The same with an eye on the clocks.
fn watching(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> quorlock_protocol::Policy {
    guarding(|it| change(it.clock_guard(true)))
}

fn guarding(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> quorlock_protocol::Policy {
    policy(|it| {
        let it = it.try_once().fencing(false).max_ttl(Some(millis(1000)));
        change(it.restart_guard(RestartGuard::Auto))
    })
}

/// The time after the last beat from which a node is idle, in milliseconds.
const IDLE: u64 = 40_000;
