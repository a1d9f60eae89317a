//! The list of worlds of fencing tokens: forgotten fences, clocks that differ, leases that are
//! taken over.

use quorlock_protocol::{PolicyBuilder, RestartGuard};

use super::{faulty, in_parts, millis};
use crate::property::Property;
use crate::scope::{Scope, policy};

/// Tokens grow in each of them, whatever the clocks of clients show.
pub(super) fn small() -> Vec<Scope> {
    vec![
        Scope {
            wants: vec![vec![0], vec![1]],
            shares_bucket: true,
            walls: vec![50, 100],
            locks: 2,
            bound: Some(300_000),
            ..faulty("tokens: two names in one bucket", 0, |_| {})
        },
        Scope {
            wants: vec![vec![0, 1], vec![1]],
            shares_bucket: true,
            ..faulty("tokens: two names in one bucket, and both at once", 1, |it| it.resends = 1)
        },
        in_parts(Scope {
            knows_clocks: true,
            wants: vec![vec![0], vec![1]],
            shares_bucket: true,
            ..faulty("tokens: two names in one bucket, in parts", 0, |_| {})
        }),
        forgetful("tokens: a node forgets, clocks of clients seconds apart", SECONDS),
        forgetful("tokens: a node forgets, clocks of clients an hour apart", HOUR),
        Scope {
            knows_clocks: false,
            ..forgetful("tokens: a node forgets, no clock is known, clients an hour apart", HOUR)
        },
        Scope {
            knows_clocks: false,
            nodes_ahead: vec![3_600_000; 3],
            ..forgetful("tokens: a node forgets, no clock is known, a client an hour behind", HOUR)
        },
        Scope {
            nodes_ahead: vec![7_000],
            symmetric: false,
            ..forgetful("tokens: a node forgets, clocks of nodes 7 s apart", HOUR)
        },
        expiring("tokens: fences that end, clocks of nodes 7 s apart", 7_000),
        losing("tokens: fences that are lost alone, leases that run out", 3_000),
        taking_over("tokens: a lease is taken over, a node goes down", |it| it.downs = 1),
        taking_over("tokens: a lease is taken over, a client dies", |it| it.crashes = 1),
        Scope {
            wants: vec![vec![0, 1], vec![1], vec![0]],
            ..taking_over("tokens: a lease of two resources is taken over", |_| {})
        },
    ]
}

/// What tokens do not promise.
pub(super) fn limits() -> Vec<Scope> {
    let limit = |scope| Scope { limit: Some(Property::Fencing), ..scope };
    vec![
        limit(Scope {
            nodes_ahead: vec![20_000],
            symmetric: false,
            ..forgetful("a node forgets its fences, clocks of nodes 20 s apart", HOUR)
        }),
        limit(expiring("fences that end, clocks of nodes an hour apart", 3_600_000)),
        limit(Scope {
            releases: true,
            ..losing("fences that are lost alone, and a lease given back at once", 1_000)
        }),
    ]
}

/// A node that forgets is held back for ten seconds, by which the clocks of nodes make up for its fences.
fn forgetful(name: &'static str, apart: u64) -> Scope {
    Scope {
        policy: policy(|it| guarded(it).ttl(millis(10_000))),
        walls: vec![apart, 0],
        walls_run: true,
        knows_clocks: true,
        down: 1,
        releases: false,
        ..faulty(name, 1, |it| it.forgets = 1)
    }
}

/// Nobody tells the nodes to remember their fences for longer.
fn expiring(name: &'static str, apart: u64) -> Scope {
    Scope {
        policy: policy(|it| it.try_once().fence_retention(millis(1))),
        fences_end: true,
        nodes_ahead: vec![apart],
        symmetric: false,
        walls: vec![HOUR, 0],
        walls_run: true,
        knows_clocks: true,
        ..faulty(name, 0, |_| {})
    }
}

fn losing(name: &'static str, ttl: u64) -> Scope {
    Scope {
        policy: policy(|it| it.try_once().ttl(millis(ttl))),
        walls: vec![HOUR, 0],
        walls_run: true,
        knows_clocks: true,
        releases: false,
        ..faulty(name, 2, |it| it.fence_losses = 2)
    }
}

/// The second of three clients has a middle clock, so that others raise fences that it has not, and get less.
fn taking_over(name: &'static str, change: impl FnOnce(&mut crate::scope::Budget)) -> Scope {
    let scope = faulty(name, 1, change);
    let budget = crate::scope::Budget { take_overs: 1, ..scope.budget };
    Scope { clients: 3, walls: vec![50, 100, 20], budget, bound: Some(600_000), ..scope }
}

fn guarded(it: PolicyBuilder) -> PolicyBuilder {
    it.try_once().restart_guard(RestartGuard::Auto)
}

/// In microseconds.
const SECONDS: u64 = 4_400_000;
const HOUR: u64 = 3_600_000_000;
