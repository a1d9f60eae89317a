//! The promise of progress: from any state, a lone client gets the lock. Owns the fair schedule in which
//! all that is on its way arrives, everyone else is gone and nothing more breaks.

use std::time::Duration;

use quorlock_protocol::Policy;

use crate::client::{Client, Phase};
use crate::guarded::Watch;
use crate::link::Link;
use crate::property::{Property, Violation};
use crate::scope::{Budget, Scope};
use crate::site::Health;
use crate::step::Step;
use crate::world::World;

/// Lets a newcomer run alone from `world` on.
pub(crate) fn run(scope: &Scope, world: &World) -> Result<(), Violation> {
    let mut world = world.clone();
    let newcomer = u8::try_from(world.clients.len()).unwrap_or(u8::MAX);
    world.budget = Budget::default();
    for node in &mut world.nodes {
        node.health = Health::Up;
    }
    for client in 0..newcomer {
        world.crash(client, true);
    }
    let watch = Watch::new(&scope.policy, scope.nodes);
    world.clients.push(Client { watch, ..Client::new(newcomer, 1) });
    world.links.extend((0..scope.nodes).map(|_| Link::default()));
    let patient = patient(&scope.policy);
    world.announce(scope, newcomer);
    world.prepare(scope, newcomer);
    world.act(scope, newcomer, |actor| actor.acquire(patient))?;
    let rounds = if scope.is_guarded() { 6 } else { 3 };
    let patience = rounds * scope.policy.kept().as_millis();
    let least = u64::try_from(scope.policy.min_hold().as_millis()).unwrap_or(u64::MAX);
    let patience = patience.saturating_add(2 * least);
    let end = world.now + patience;
    let mut steps = Vec::new();
    while world.now < end {
        if matches!(world.clients[usize::from(newcomer)].phase, Phase::Holding(_)) {
            return Ok(());
        }
        world.choices(scope, &mut steps);
        let wanted =
            |step: &&Step| !matches!(step, Step::Until(_) | Step::Fault(_) | Step::User(..));
        let Some(step) = steps.iter().find(wanted).or(steps.last()).copied() else {
            break;
        };
        world.apply(scope, step)?;
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
