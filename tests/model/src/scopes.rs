//! The list of worlds that are searched: what each is for, how large it is, and what it must show.

mod ends;
mod guarded;
mod limits;
mod long;
mod queues;
mod tokens;

use std::time::Duration;

use quorlock_protocol::PolicyBuilder;

use crate::clock::Rate;
use crate::scope::{Budget, Scope, Target, policy};

pub(crate) use limits::limits;
pub(crate) use long::long;

/// The small worlds: every change of the code is searched in them.
pub(crate) fn small() -> Vec<Scope> {
    let mut scopes = vec![
        Scope { batches: true, ..Scope::base("two clients, any delivery", 3) },
        Scope { prompt: true, ..Scope::base("two clients, five nodes", 5) },
        Scope { prompt: true, ..Scope::base("an even number of nodes", 4) },
        Scope {
            clients: 3,
            prompt: true,
            policy: policy(|it| it.try_once().fencing(false)),
            ..Scope::base("three clients without tokens", 3)
        },
        Scope {
            policy: retrying(1),
            ..faulty("retries", 1, |it| (it.resends, it.cancels) = (1, 1))
        },
        faulty("broken connections", 2, |it| {
            (it.resends, it.breaks) = (2, 1);
        }),
        faulty("nodes that go down or restart", 1, |it| {
            (it.downs, it.restarts) = (1, 1);
        }),
        faulty("nodes that hang", 1, |it| it.hangs = 1),
        faulty("clients that stop and die", 1, |it| {
            (it.pauses, it.crashes) = (1, 1);
        }),
        faulty("users that give up", 1, |it| {
            (it.cancels, it.abandons, it.resends) = (2, 1, 1);
        }),
        faulty("extensions", 0, |it| {
            (it.extends, it.shortens, it.cancels) = (1, 1, 1);
        }),
        keeping("renewal", 400, 1, |it| it.resends = 1),
    ];
    scopes.extend(alone());
    scopes.extend(drifting());
    scopes.extend(writing());
    scopes.extend(several_resources());
    scopes.extend(keeping_others_out());
    scopes.extend(granting_in_parts());
    scopes.extend(ends::small());
    scopes.extend(queues::small());
    scopes.extend(guarded::small());
    scopes.extend(tokens::small());
    scopes.extend(guarded::coming_back());
    scopes.extend(guarded::apart());
    scopes.extend(guarded::long_locks());
    scopes.extend(guarded::limited());
    scopes.extend(guarded::ended());
    scopes.extend(guarded::idle());
    scopes.extend(guarded::fast());
    scopes
}

/// One client against slow and broken nodes: more of it fits.
fn alone() -> Vec<Scope> {
    let alone = |scope: Scope| Scope { clients: 1, ..scope };
    vec![
        alone(keeping("one lease against faults", 1000, 1, |it| {
            (it.resends, it.breaks, it.downs, it.delays) = (1, 1, 1, 1);
        })),
        alone(Scope { prompt: false, ..faulty("lost replies", 2, |it| it.resends = 2) }),
        // Answers of the one node take longer than the others' connections need to be made anew.
        alone(Scope {
            prompt: false,
            policy: policy(|it| it.try_once().fencing(false).node_timeout(millis(200))),
            ..faulty("lost connections, and a node that hangs", 3, |it| {
                (it.breaks, it.hangs) = (2, 1);
            })
        }),
        alone(Scope {
            policy: policy(|it| it.timeout(Some(millis(120)))),
            ..faulty("one client with a timeout", 2, |it| it.hangs = 2)
        }),
        alone(Scope {
            fences_end: true,
            // Clocks that run on replace a fence that is forgotten.
            walls_run: true,
            policy: policy(|it| {
                it.try_once().auto_extend(true).max_hold(millis(3500)).fence_retention(millis(1))
            }),
            ..faulty("one lease beyond the retention of its token", 0, |_| {})
        }),
        alone(faulty("one extension against faults", 1, |it| {
            (it.extends, it.shortens) = (1, 1);
            (it.delays, it.resends, it.pauses) = (1, 1, 1);
        })),
        alone(Scope {
            locks: 2,
            policy: retrying(1),
            ..faulty("one client twice against faults", 2, |it| {
                (it.downs, it.resends, it.cancels) = (1, 1, 1);
            })
        }),
    ]
}

/// Clocks at the edge of the allowance.
fn drifting() -> Vec<Scope> {
    let shift = |name, node, client| Scope {
        node_rate: Rate(node),
        client_rate: Rate(client),
        ..faulty(name, 1, |it| it.pauses = 1)
    };
    let extending = Budget { faults: 1, pauses: 1, extends: 1, ..Budget::default() };
    vec![
        Scope { budget: extending, ..shift("nodes 1 % fast, extensions", 10_000, 0) },
        shift("nodes 1 % slow", -10_000, 0),
        Scope {
            policy: policy(|it| it.try_once().auto_extend(true).max_hold(millis(400))),
            ..shift("nodes fast, clients slow, renewal", 5_000, -4_900)
        },
    ]
}

/// Something is written under the lock.
fn writing() -> Vec<Scope> {
    vec![
        Scope {
            target: Target::Checking,
            ..faulty("writes that are checked, clients that stop", 1, |it| {
                it.pauses = 1;
            })
        },
        Scope {
            walls: vec![700_000, 0],
            walls_run: true,
            ..faulty("wall clocks that run apart and jump", 1, |it| {
                it.wall_steps = 1;
            })
        },
        Scope {
            walls: vec![50, 100],
            policy: retrying(1),
            bound: Some(1_000_000),
            ..faulty("tokens and a node that hangs", 1, |it| it.hangs = 1)
        },
        Scope {
            walls: vec![50, 100, 20],
            locks: 2,
            ..faulty("tokens of clients whose clocks disagree", 0, |_| {})
        },
    ]
}

fn several_resources() -> Vec<Scope> {
    let wants = vec![vec![0, 1], vec![1]];
    vec![
        Scope { wants: wants.clone(), prompt: true, ..Scope::base("two resources and one", 3) },
        Scope {
            wants,
            ..faulty("two resources, broken connections", 1, |it| {
                (it.resends, it.breaks) = (1, 1);
            })
        },
    ]
}

fn granting_in_parts() -> Vec<Scope> {
    vec![
        in_parts(Scope {
            walls: vec![50, 100],
            ..faulty("grants in parts, clocks that disagree", 1, |it| it.cancels = 1)
        }),
        Scope {
            bound: Some(1_000_000),
            ..in_parts(faulty("grants in parts, broken connections", 1, |it| {
                (it.resends, it.breaks) = (1, 1);
            }))
        },
    ]
}

/// Locks that stay closed when their lease has ended.
fn keeping_others_out() -> Vec<Scope> {
    let delayed = |it: PolicyBuilder| it.try_once().lock_delay(millis(300));
    vec![
        Scope {
            policy: policy(|it| delayed(it).auto_extend(true).max_hold(millis(400))),
            ..faulty("lock-delay, renewal, clients that die", 1, |it| it.crashes = 1)
        },
        Scope {
            policy: policy(delayed),
            ..faulty("lock-delay, extensions", 0, |it| it.extends = 1)
        },
        Scope {
            policy: policy(|it| it.try_once().min_hold(millis(1500))),
            ..faulty("least hold, broken connections", 1, |it| it.breaks = 1)
        },
    ]
}

/// Others come in between the commands of a first grant.
fn in_parts(scope: Scope) -> Scope {
    Scope { in_parts: true, ..scope }
}

fn faulty(name: &'static str, faults: u16, change: impl FnOnce(&mut Budget)) -> Scope {
    let mut budget = Budget { faults, ..Budget::default() };
    change(&mut budget);
    Scope { budget, prompt: true, ..Scope::base(name, 3) }
}

fn keeping(
    name: &'static str,
    max_hold: u64,
    faults: u16,
    change: impl FnOnce(&mut Budget),
) -> Scope {
    let policy = policy(|it| it.try_once().auto_extend(true).max_hold(millis(max_hold)));
    Scope { policy, ..faulty(name, faults, change) }
}

fn retrying(limit: u32) -> quorlock_protocol::Policy {
    policy(|it: PolicyBuilder| it.retry_limit(Some(limit)))
}

const fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
