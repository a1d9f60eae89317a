//! Checks the promise of progress: from any state, a single client gets the lock, and a single
//! holder keeps it. Owns the fair schedule in which everything in flight arrives, all other clients
//! are gone and no more faults happen.

use std::time::Duration;

use quorlock_protocol::Policy;

use crate::client::{Client, Phase, Status};
use crate::guarded::Guarding;
use crate::link::Link;
use crate::print::{Seen, fingerprint};
use crate::property::{Property, Violation};
use crate::scope::{Budget, Scope};
use crate::site::{Health, Holder};
use crate::step::{Step, name};
use crate::wake::Wake;
use crate::world::World;

/// Lets a newcomer run alone from `world` on, and then each of those who renew a lease. What is left of the world when
/// everyone else is gone is often `known` from another.
pub(crate) fn run(scope: &Scope, world: &World, known: &mut Seen) -> Result<(), Violation> {
    let left = desert(world, None);
    if known.insert(fingerprint(&left)) {
        come(scope, left)?;
    }
    for client in world.clients.iter().filter(|it| world.can_renew(scope, it)) {
        let left = desert(world, Some(client.id));
        if known.insert(fingerprint(&left)) {
            stay(scope, left, client.id)?;
        }
    }
    Ok(())
}

/// The same world, where nothing more breaks and everyone is gone but `client`.
fn desert(world: &World, client: Option<u8>) -> World {
    let mut world = world.clone();
    world.budget = Budget { deviations: u16::MAX, ..Budget::default() };
    for node in 0..world.nodes.len() {
        world.nodes[node].health = Health::Up;
    }
    for other in 0..u8::try_from(world.clients.len()).unwrap_or(u8::MAX) {
        if Some(other) != client {
            world.crash(other, true);
        }
    }
    world
}

/// Takes the next step of the fair schedule; `false` if there is none.
fn advance(scope: &Scope, world: &mut World, steps: &mut Vec<Step>) -> Result<bool, Violation> {
    world.choices(scope, steps);
    let wanted = |step: &&Step| !matches!(step, Step::Until(_) | Step::Fault(_) | Step::User(..));
    let passes = |step: &&Step| matches!(step, Step::Until(_));
    let step = steps.iter().find(wanted).or(steps.iter().find(passes)).copied();
    step.map_or(Ok(false), |step| world.apply(scope, step).map(|()| true))
}

/// A holder renews its lease.
fn stay(scope: &Scope, mut world: World, client: u8) -> Result<(), Violation> {
    let until = |world: &World| match &world.clients[usize::from(client)].phase {
        Phase::Holding(holding) => Some(holding.until()),
        _ => None,
    };
    let (before, mut steps) = (until(&world), Vec::new());
    while until(&world).is_some() && until(&world) <= before {
        if !advance(scope, &mut world, &mut steps)? {
            break;
        }
    }
    if until(&world) > before {
        return Ok(());
    }
    let text = format!("{} could not renew its lease although nothing broke", name(client));
    Err(Violation::new(Property::Liveness, text))
}

impl World {
    /// Whether a client that renews has time enough for one more try, and nothing in its way.
    fn can_renew(&self, scope: &Scope, client: &Client) -> bool {
        let Phase::Holding(holding) = &client.phase else {
            return false;
        };
        let clock = client.clock(scope, self.now);
        let ttl = holding.lease().ttl().as_duration();
        let is_in_time = holding.until() > clock + ttl * 2 / 5
            && ttl >= holding.life.policy().node_timeout() * 20
            && holding.until() <= holding.life.since() + holding.life.policy().max_hold();
        let is_steady = client.unaware.is_none()
            && !client.lost_time.is_behind()
            && client.lost_time.ahead().is_zero();
        // A node whose clock was set forward has the keys still, and not for long.
        let holder = Holder { client: client.id, draw: holding.draw };
        let struck = self.struck_since(scope, client, holding.proved());
        let sound = self.stands_on(scope, holder) & !struck;
        client.status == Status::Running
            && holding.life.is_kept()
            && is_in_time
            && is_steady
            && sound.count_ones() as usize >= scope.quorum()
    }
}

/// A newcomer gets the lock.
fn come(scope: &Scope, mut world: World) -> Result<(), Violation> {
    let newcomer = u8::try_from(world.clients.len()).unwrap_or(u8::MAX);
    let policy = scope.policy_of(newcomer);
    let guarding = Guarding::new(&policy, scope.nodes);
    world.clients.push(Client { guarding, ..Client::new(newcomer, 1) });
    world.links.extend((0..scope.nodes).map(|_| Link::default()));
    if !world.wakes.is_empty() {
        world.wakes.extend((0..scope.nodes).map(|_| Wake::default()));
    }
    let patient = patient(&policy);
    world.announce(scope, newcomer);
    world.prepare(scope, newcomer);
    world.act(scope, newcomer, |actor| actor.acquire(patient))?;
    let rounds = if scope.is_guarded() { 6 } else { 3 };
    // Keys that another user has extended stay for as long as that asked.
    let ttl = scope.policy.key_ttl().max(policy.key_ttl()).max(scope.elsewhere.key_ttl());
    let patience = rounds * ttl.as_millis();
    let least = u64::try_from(scope.policy.min_hold().as_millis()).unwrap_or(u64::MAX);
    // The dead may be the first in queues until the newcomer looks again.
    let refresh = if scope.has_queues() { 4000 } else { 0 };
    let patience = patience.saturating_add(2 * least).saturating_add(refresh);
    let end = world.now + patience;
    let mut steps = Vec::new();
    while world.now < end {
        if matches!(world.clients[usize::from(newcomer)].phase, Phase::Holding(_)) {
            return Ok(());
        }
        if !advance(scope, &mut world, &mut steps)? {
            break;
        }
    }
    let text = format!("a lone client did not get the lock within {patience} ms");
    Err(Violation::new(Property::Liveness, text))
}

/// The same policy, for someone who waits as long as it takes.
fn patient(policy: &Policy) -> Policy {
    policy
        .to_builder()
        .retry_limit(None)
        .timeout(None)
        .unreachable_timeout(Duration::from_secs(3600))
        .build()
        .expect("it was valid before")
}
