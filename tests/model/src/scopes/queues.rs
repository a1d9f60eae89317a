//! Worlds in which clients wait in the nodes' queues. Those of one node are searched in every order; those of three in
//! the order of `order.rs`, and in whatever differs from it a few times.

use quorlock_protocol::{Policy, PolicyBuilder, WaitMode};

use super::millis;
use crate::scope::{Budget, Scope, policy};

/// The small ones.
pub(crate) fn small() -> Vec<Scope> {
    let mut scopes = vec![
        one_node("queue: one node, one waits", 2, |it| it.cancels = 1),
        one_node("queue: one node, two wait", 3, |_| {}),
        one_node("queue: one node, a lost command or reply", 2, |it| {
            (it.faults, it.resends, it.breaks) = (1, 1, 1);
        }),
        one_node("queue: one node, lost news", 2, |it| (it.faults, it.lost_news) = (1, 1)),
        // Only the refresh tells: the keys live far longer.
        Scope {
            policy: waiting(|it| it.ttl(millis(10_000))),
            ..one_node("queue: one node, lost news of a long lease", 2, |it| {
                (it.faults, it.lost_news) = (1, 1);
            })
        },
        one_node("queue: one node, a lost wake connection", 2, |it| {
            (it.faults, it.wake_cuts) = (1, 1);
        }),
    ];
    scopes.extend(sound());
    scopes.extend(faulty());
    scopes.extend(foreign());
    scopes.extend(ends());
    scopes.extend(fair());
    scopes
}

/// The large ones.
pub(crate) fn long() -> Vec<Scope> {
    let lossy = |name, change: fn(&mut Budget)| {
        ordered(name, 3, 1, |it| {
            it.faults = 1;
            change(it);
        })
    };
    vec![
        one_node("queue: one node, two wait, a lost command or reply", 3, |it| {
            (it.faults, it.resends, it.breaks) = (1, 1, 1);
        }),
        one_node("queue: one node, two wait, a lost wake connection", 3, |it| {
            (it.faults, it.wake_cuts) = (1, 1);
        }),
        lossy("queue: a waiter or holder hangs, any order", |it| it.pauses = 1),
        lossy("queue: a node restarts, any order", |it| it.restarts = 1),
        lossy("queue: a node goes down, any order", |it| it.downs = 1),
        Scope {
            policy: waiting(|it| it.fair(true)),
            walls: vec![20, 30, 40],
            walls_run: true,
            ..lossy("queue: fair, a waiter or holder hangs, any order", |it| it.pauses = 1)
        },
        ordered("queue: two wait, three deviations", 3, 3, |_| {}),
        ordered("queue: three wait", 4, 2, |_| {}),
    ]
}

/// Nothing breaks.
fn sound() -> Vec<Scope> {
    vec![
        ordered("queue: two wait", 3, 2, |_| {}),
        Scope {
            walls: vec![100, 50, 20],
            ..ordered("queue: two wait whose clocks disagree", 3, 2, |_| {})
        },
        Scope {
            queues_first: true,
            ..ordered("queue: places before the first round", 3, 2, |_| {})
        },
        Scope { locks: 3, ..ordered("queue: one waits again and again", 2, 1, |_| {}) },
        Scope { counts_messages: true, ..ordered("queue: messages of a hand-off", 3, 2, |_| {}) },
        Scope {
            policy: waiting(|it| it.auto_extend(true).max_hold(millis(700))),
            ..ordered("queue: a lease is renewed and released", 2, 2, |_| {})
        },
        Scope {
            counts_messages: true,
            releases: false,
            policy: waiting(|it| it.ttl(millis(10_000)).auto_extend(true).max_hold(millis(9000))),
            ..ordered("queue: two wait while the lease is renewed", 3, 2, |_| {})
        },
    ]
}

/// One thing is lost or dies at any moment.
fn faulty() -> Vec<Scope> {
    let lossy = |name, change: fn(&mut Budget)| {
        ordered(name, 3, 1, |it| {
            it.faults = 1;
            change(it);
        })
    };
    vec![
        lossy("queue: a lost command or reply", |it| (it.resends, it.breaks) = (1, 1)),
        lossy("queue: lost news", |it| it.lost_news = 1),
        lossy("queue: a lost wake connection", |it| it.wake_cuts = 1),
        lossy("queue: a waiter or holder dies", |it| it.crashes = 1),
        ordered("queue: a waiter or holder hangs", 3, 0, |it| (it.faults, it.pauses) = (1, 1)),
        lossy("queue: a node forgets its queue", |it| it.queue_losses = 1),
        ordered("queue: a node restarts", 3, 0, |it| (it.faults, it.restarts) = (1, 1)),
        ordered("queue: a node goes down", 3, 0, |it| (it.faults, it.downs) = (1, 1)),
    ]
}

/// The holder knows nothing of queues.
fn foreign() -> Vec<Scope> {
    vec![
        Scope { foreign: Some(400), ..ordered("queue: a foreign key runs out", 2, 2, |_| {}) },
        Scope {
            foreign: Some(60_000),
            is_deleted: true,
            ..ordered("queue: a foreign key is deleted", 2, 2, |_| {})
        },
        Scope {
            foreign: Some(60_000),
            is_deleted: true,
            nodes: 1,
            ..ordered("queue: a foreign key is deleted, the first gives up", 2, 1, |it| {
                it.cancels = 1;
            })
        },
        Scope {
            foreign: Some(60_000),
            is_deleted: true,
            ..ordered("queue: a foreign key is deleted, the first dies", 3, 1, |it| {
                (it.faults, it.crashes) = (1, 1);
            })
        },
    ]
}

/// Waits that end otherwise, and leases that run out.
fn ends() -> Vec<Scope> {
    vec![
        Scope { releases: false, ..ordered("queue: leases run out", 3, 2, |_| {}) },
        ordered("queue: users that give up", 3, 1, |it| (it.cancels, it.abandons) = (2, 1)),
        Scope {
            policy: waiting(|it| it.retry_limit(Some(2))),
            ..ordered("queue: limited tries", 3, 2, |_| {})
        },
        Scope {
            policy: waiting(|it| it.timeout(Some(millis(400)))),
            ..ordered("queue: waits with a timeout", 3, 2, |_| {})
        },
    ]
}

/// The lock goes by arrival.
fn fair() -> Vec<Scope> {
    let fair = |scope: Scope| Scope {
        policy: waiting(|it| it.fair(true)),
        walls: vec![20, 30, 40],
        walls_run: true,
        ..scope
    };
    vec![
        fair(one_node("queue: fair, one node", 2, |it| it.cancels = 1)),
        fair(Scope {
            nodes: 1,
            ..ordered("queue: fair, one node, a lost command or reply", 3, 2, |it| {
                (it.faults, it.breaks) = (1, 1);
            })
        }),
        // Rounds that are lost while another comes.
        Scope {
            nodes: 1,
            policy: waiting(|it| it.fair(true).retry_limit(Some(2))),
            ..fair(ordered("queue: fair, limited tries", 3, 2, |_| {}))
        },
        fair(ordered("queue: fair", 3, 2, |_| {})),
        fair(ordered("queue: fair, a waiter or holder dies", 3, 1, |it| {
            (it.faults, it.crashes) = (1, 1);
        })),
        fair(ordered("queue: fair, a waiter or holder hangs", 3, 0, |it| {
            (it.faults, it.pauses) = (1, 1);
        })),
        fair(ordered("queue: fair, a lost wake connection", 3, 1, |it| {
            (it.faults, it.wake_cuts) = (1, 1);
        })),
    ]
}

fn one_node(name: &'static str, clients: usize, change: impl FnOnce(&mut Budget)) -> Scope {
    let mut budget = Budget::default();
    change(&mut budget);
    let scope = Scope { clients, prompt: true, ..Scope::base(name, 1) };
    Scope { policy: waiting(|it| it), walls: vec![20], budget, ..scope }
}

fn ordered(
    name: &'static str,
    clients: usize,
    deviations: u16,
    change: impl FnOnce(&mut Budget),
) -> Scope {
    let mut budget = Budget { deviations, ..Budget::default() };
    change(&mut budget);
    let scope = Scope { clients, is_ordered: true, ..Scope::base(name, 3) };
    Scope { policy: waiting(|it| it), walls: vec![20], budget, ..scope }
}

/// The settings of who waits as long as it takes.
fn waiting(change: impl FnOnce(PolicyBuilder) -> PolicyBuilder) -> Policy {
    policy(|it| {
        let it = it.wait(WaitMode::Push).fencing(false).retry_limit(None);
        change(it.unreachable_timeout(millis(60_000)))
    })
}
