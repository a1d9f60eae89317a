//! Tries every possible step in every state that can be reached, each state once.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::scope::{Scope, Step};
use super::world::World;

/// Searches all schedules of `scope`; fails with the first that breaks a promise.
pub(super) fn search(scope: &Scope) {
    let mut seen = HashSet::new();
    let mut stack = vec![Vec::new()];
    while let Some(mut path) = stack.pop() {
        let outcome =
            catch_unwind(AssertUnwindSafe(|| follow(scope, &mut path, &mut seen, &mut stack)));
        if let Err(panic) = outcome {
            eprintln!("the schedule: {path:?}");
            resume_unwind(panic);
        }
    }
    println!("{} states", seen.len());
    // Fewer states would mean that the steps do not do what they should.
    assert!(seen.len() > LEAST_STATES, "only {} states", seen.len());
}

/// Goes along `path`, and then on by the first step of each state as long as that is new; the other steps are put on the
/// stack.
fn follow(
    scope: &Scope,
    path: &mut Vec<Step>,
    seen: &mut HashSet<u64>,
    stack: &mut Vec<Vec<Step>>,
) {
    let mut world = World::new(scope);
    for step in path.iter() {
        world.step(*step);
    }
    while seen.insert(hash_of(&world)) {
        let steps = world.steps();
        let Some((first, others)) = steps.split_first() else {
            return world.check_end();
        };
        stack.extend(others.iter().map(|step| [path.as_slice(), &[*step]].concat()));
        path.push(*first);
        world.step(*first);
    }
}

fn hash_of(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.fingerprint().hash(&mut hasher);
    hasher.finish()
}

const LEAST_STATES: usize = 100;
