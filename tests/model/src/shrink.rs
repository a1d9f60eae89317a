//! Shortens a schedule that breaks a promise, so that it can be read. Owns the removal of steps,
//! one chunk after another, while the same promise stays broken.

use crate::print::Seen;
use crate::property::{Property, Violation};
use crate::scope::Scope;
use crate::search::Trace;
use crate::step::{Fault, Step};
use crate::world::World;

/// The shortest schedule found that breaks the same promise as `trace`.
pub(crate) fn shrink(scope: &Scope, trace: &Trace) -> Trace {
    let scope = Scope { symmetric: false, is_ordered: false, ..scope.clone() };
    let property = trace.violation.property;
    let Some(mut best) = replay(&scope, &trace.steps, property) else {
        // A violation that no schedule shows by itself: that of progress.
        return trace.clone();
    };
    loop {
        let before = best.steps.len();
        let mut chunk = before.div_ceil(2);
        while chunk > 0 {
            let mut from = 0;
            while from < best.steps.len() {
                let to = (from + chunk).min(best.steps.len());
                let rest = [&best.steps[..from], &best.steps[to..]].concat();
                match replay(&scope, &rest, property) {
                    Some(shorter) if shorter.steps.len() < best.steps.len() => best = shorter,
                    _ => from += chunk,
                }
            }
            chunk /= 2;
        }
        if best.steps.len() == before {
            return best;
        }
    }
}

/// Walks through `steps`, leaving out what is not possible, up to a breach of `property`.
pub(crate) fn replay(scope: &Scope, steps: &[Step], property: Property) -> Option<Trace> {
    let mut world = World::new(scope);
    let mut done = Vec::new();
    let mut possible = Vec::new();
    for step in steps {
        world.choices(scope, &mut possible);
        let Some(step) = fitting(world.now, *step, &possible) else {
            continue;
        };
        done.push(step);
        let result = world.apply(scope, step).and_then(|()| world.check(scope));
        if let Err(violation) = result {
            return (violation.property == property).then_some(Trace { steps: done, violation });
        }
    }
    lone_breach(scope, &world, property).map(|violation| Trace { steps: done, violation })
}

fn lone_breach(scope: &Scope, world: &World, property: Property) -> Option<Violation> {
    if property != Property::Liveness {
        return None;
    }
    crate::progress::run(scope, world, &mut Seen::default()).err()
}

/// The step itself, or what has become of it: time passes to another moment, a reply comes at once. A walk
/// also stops on the way to the next moment.
fn fitting(now: u64, step: Step, possible: &[Step]) -> Option<Step> {
    if possible.contains(&step) {
        return Some(step);
    }
    let other = |step: Step| possible.contains(&step).then_some(step);
    match step {
        Step::Until(wanted) => possible.iter().find_map(|it| match *it {
            Step::Until(next) if now < next.min(wanted) => Some(Step::Until(next.min(wanted))),
            Step::Until(next) if next <= wanted => Some(*it),
            _ => None,
        }),
        Step::Trip(client, node) => {
            other(Step::Exec(client, node)).or(other(Step::Reply(client, node)))
        }
        Step::Ask(client, node) => {
            other(Step::Queue(client, node)).or(other(Step::Hear(client, node)))
        }
        Step::Queue(client, node) => other(Step::Ask(client, node)),
        Step::Exec(client, node) => other(Step::Trip(client, node)),
        Step::Fault(Fault::Crash(client, arrives)) => {
            other(Step::Fault(Fault::Crash(client, !arrives)))
        }
        _ => None,
    }
}
