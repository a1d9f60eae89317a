//! Draws worlds from a seed. Owns the generator and the meaning of a seed: the same seed always
//! gives the same world.

use std::time::Duration;

use quorlock_protocol::{Policy, RestartGuard};

use crate::clock::Rate;
use crate::print::fingerprint;
use crate::property::Property;
use crate::scope::{Budget, Scope, Target, policy};

/// The world of a seed: 3 to 7 nodes, up to 24 clients, up to 8 resources, clocks within the allowance,
/// and every fault that the promises allow for. In every other one the guards are on, and at any time a
/// minority of nodes forgets or has its clock set forward.
pub(crate) fn world_of(seed: u64) -> Scope {
    let random = &mut Random::new(seed);
    let scope = plain(seed, random);
    if seed.is_multiple_of(2) { scope } else { guarded(random, scope) }
}

/// The world of a seed as it was without its guards, which two holders are to be seen in sooner or later.
pub(crate) fn unguarded_world_of(seed: u64) -> Scope {
    let scope = world_of(seed);
    let policy = scope.policy.to_builder().restart_guard(RestartGuard::Off).clock_guard(false);
    let policy = policy.build().expect("it was valid before");
    Scope { name: UNGUARDED, policy, limit: Some(Property::Exclusion), ..scope }
}

fn plain(seed: u64, random: &mut Random) -> Scope {
    let nodes = random.one_of(&[3, 5, 5, 7]);
    let clients = 2 + random.place(23);
    let all = random.one_of(&[1, 2, 4, 8]);
    let rates = [(0, 0), (10_000, 0), (-10_000, 0), (5_000, -4_900), (-3_000, 3_000)];
    let (node_rate, client_rate) = random.one_of(&rates);
    let fencing = random.below(8) > 0;
    Scope {
        clients,
        in_parts: (seed / 2).is_multiple_of(2),
        wants: (0..clients).map(|_| wants(random, all)).collect(),
        policy: settings(random, fencing),
        elsewhere: policy(|it| it.ttl(random.one_of(&[300, 3000].map(Duration::from_millis)))),
        shorter: policy(|it| it.ttl(Duration::from_millis(200)).fencing(fencing)),
        locks: u16::MAX,
        budget: budget(random, clients),
        batches: true,
        symmetric: false,
        node_rate: Rate(node_rate),
        client_rate: Rate(client_rate),
        walls: (0..clients).map(|_| 1_000_000 + random.below(3_000_000)).collect(),
        walls_run: true,
        seed: seed | 1,
        target: if fencing { Target::Checking } else { Target::None },
        ..Scope::base("a random world", nodes)
    }
}

/// The same with the guards on, and with what they are there for.
fn guarded(random: &mut Random, scope: Scope) -> Scope {
    let stands_still = random.below(2) == 0;
    let many = u16::MAX;
    // A node that forgets a token cannot know it: then tokens rest on the wall clocks of clients.
    let fencing = scope.policy.fencing() && !stands_still;
    let settings = scope.policy.to_builder().fencing(fencing);
    let settings = settings.restart_guard(RestartGuard::Auto).clock_guard(true);
    let settings = settings.max_ttl(Some(Duration::from_secs(1)));
    let rates = [(0, 0), (400, 0), (-400, 0), (200, -200)];
    let (node_rate, client_rate) = random.one_of(&rates);
    let newcomers = random.place(scope.clients / 2 + 1);
    let cuts = cuts(random, &scope);
    Scope {
        newcomers,
        cuts,
        policy: settings.build().expect("it was valid before"),
        shorter: policy(|it| it.ttl(Duration::from_millis(200)).fencing(fencing)),
        budget: Budget {
            forgets: many,
            flushes: many,
            rollbacks: many,
            failbacks: many,
            snapshots: many,
            returns: many,
            clock_steps: many,
            freezes: if stands_still { many } else { 0 },
            wall_steps: 0,
            ..scope.budget
        },
        node_rate: Rate(node_rate),
        client_rate: Rate(client_rate),
        spares_majority: true,
        late: random.one_of(&[0, 30, 300]),
        target: if fencing { Target::Checking } else { Target::None },
        together: random.one_of(&[1, 1, 2, 3]).min(u8::try_from(scope.clients).unwrap_or(u8::MAX)),
        ..scope
    }
}

/// In half of the worlds every third client or so never reaches one of the nodes.
fn cuts(random: &mut Random, scope: &Scope) -> Vec<(u8, u8)> {
    let are_there = random.below(2) == 0;
    let nodes = u64::try_from(scope.nodes).unwrap_or(u64::MAX);
    let clients = (0..u8::MAX).take(scope.clients).filter(|_| are_there);
    let drawn = |client| (client, u8::try_from(random.below(3 * nodes)).unwrap_or(u8::MAX));
    let drawn: Vec<(u8, u8)> = clients.map(drawn).collect();
    drawn.into_iter().filter(|(_, node)| usize::from(*node) < scope.nodes).collect()
}

/// One to three of `all` resources.
fn wants(random: &mut Random, all: u8) -> Vec<u8> {
    let names: Vec<u8> = (0..all).collect();
    let mut list: Vec<u8> = (0..=random.below(3)).map(|_| random.one_of(&names)).collect();
    list.sort_unstable();
    list.dedup();
    list
}

fn settings(random: &mut Random, fencing: bool) -> Policy {
    let keeps = random.below(2) == 0;
    let limit = random.one_of(&[None, Some(0), Some(1), Some(5)]);
    let timeout = random.one_of(&[None, Some(700), Some(5000)]).map(Duration::from_millis);
    let (hold, jitter) = (random.millis(500, 4500), random.millis(0, 100));
    policy(|it| {
        let it = it.retry_limit(limit).timeout(timeout).retry_jitter(jitter);
        it.auto_extend(keeps).max_hold(hold).fencing(fencing)
    })
}

fn budget(random: &mut Random, clients: usize) -> Budget {
    let many = u16::MAX;
    Budget {
        faults: many,
        delays: many,
        resends: many,
        breaks: many,
        restarts: many,
        forgets: 0,
        fence_losses: 0,
        take_overs: many,
        strays: many,
        extends_elsewhere: 5,
        flushes: 0,
        rollbacks: 0,
        failbacks: 0,
        snapshots: 0,
        returns: 0,
        downs: many,
        hangs: many,
        clock_steps: 0,
        pauses: many,
        freezes: 0,
        crashes: u16::try_from(random.place(clients / 2 + 1)).unwrap_or(0),
        wall_steps: many,
        checks: many,
        cancels: many,
        abandons: many,
        extends: many,
        // Where nobody does, who has the token of a lease may rely on it.
        shortens: random.one_of(&[0, many]),
        wake_cuts: many,
        lost_news: many,
        queue_losses: many,
        deviations: 0,
    }
}

/// A stream of numbers from a seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        fingerprint(&self.0) % limit.max(1)
    }

    /// A place in something `length` long.
    #[allow(clippy::cast_possible_truncation)] // below a usize
    pub(crate) fn place(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    pub(crate) fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.place(list.len())]
    }

    fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}

const UNGUARDED: &str = "a random world without its guards";
