//! Walks at random through large worlds. Owns how steps are drawn: the same seed always gives the
//! same walk.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::print::Seen;
use crate::progress;
use crate::random_worlds::{Random, world_of};
use crate::scope::Scope;
use crate::search::Trace;
use crate::step::{Deed, Fault, Step};
use crate::world::World;

/// What walks have done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) steps: u64,
    pub(crate) won: u64,
    pub(crate) virtual_millis: u64,
    pub(crate) faults: BTreeMap<&'static str, u64>,
}

/// Walks `length` steps through the world of `seed`.
pub(crate) fn walk(scope: &Scope, seed: u64, length: usize, tally: &mut Tally) -> Option<Trace> {
    let mut random = Random::new(seed ^ 0x5bd1_e995);
    // The number of faults in one thousand steps of this walk.
    let wildness = random.one_of(&[0, 3, 10, 40]);
    let mut world = World::new(scope);
    let mut steps = Vec::with_capacity(length);
    let mut possible = Vec::new();
    for number in 0..length {
        world.choices(scope, &mut possible);
        let Some(step) = draw(&mut random, &world, &possible, wildness) else {
            break;
        };
        steps.push(step);
        tally.steps += 1;
        if let Step::Fault(fault) = step {
            *tally.faults.entry(word(fault)).or_default() += 1;
        }
        let mut result = world.apply(scope, step).and_then(|()| world.check(scope));
        if result.is_ok() && number % LONE_SHARE == LONE_SHARE - 1 {
            result = progress::run(scope, &world, &mut Seen::default());
        }
        if let Err(violation) = result {
            return Some(Trace { steps, violation });
        }
    }
    tally.won += u64::from(world.won);
    tally.virtual_millis += world.now;
    None
}

/// One of the possible steps, by weight: messages mostly arrive, users are patient, faults are rare.
fn draw(random: &mut Random, world: &World, possible: &[Step], wildness: u64) -> Option<Step> {
    let weight = |step: &Step| match step {
        Step::Exec(..)
        | Step::Reply(..)
        | Step::Trip(..)
        | Step::Queue(..)
        | Step::Hear(..)
        | Step::Ask(..) => 400,
        Step::Delete(_) => 5,
        Step::Batch(_) => 100,
        Step::Glance(..) => 10,
        Step::Timer(_) => 2000,
        Step::Until(_) => 150,
        Step::User(_, Deed::Acquire) => 60,
        Step::User(_, Deed::Release) => 20,
        Step::User(_, Deed::Look | Deed::Write) => 40,
        Step::User(_, Deed::Extend | Deed::Shorten | Deed::TakeOver | Deed::ExtendElsewhere) => 8,
        Step::User(..) => 2,
        Step::Fault(Fault::Up(_) | Fault::Resume(_) | Fault::Arrive(..)) => 30,
        Step::Fault(_) => 0,
    };
    let faults = possible.iter().filter(|step| is_fault(step)).count();
    if faults > 0 && random.below(1000) < wildness {
        let nth = random.place(faults);
        return possible.iter().filter(|step| is_fault(step)).nth(nth).copied();
    }
    let total: u64 = possible.iter().map(weight).sum();
    let mut point = random.below(total);
    let step = possible.iter().find(|step| {
        let weight = weight(step);
        let hit = point < weight;
        point = point.saturating_sub(weight);
        hit
    })?;
    // Time may also stop on the way to the next moment.
    Some(match *step {
        Step::Until(time) if time > world.now && random.below(3) == 0 => {
            Step::Until(world.now + 1 + random.below(time - world.now))
        }
        step => step,
    })
}

const fn is_fault(step: &Step) -> bool {
    matches!(step, Step::Fault(fault) if !matches!(fault, Fault::Up(_) | Fault::Resume(_) | Fault::Arrive(..)))
}

const fn word(fault: Fault) -> &'static str {
    match fault {
        Fault::CutWake(..) => "a wake connection is lost",
        Fault::MendWake(..) => "a wake connection is back",
        Fault::LoseNews(..) => "news is lost",
        Fault::LoseQueues(_) => "the queues of a node are deleted",
        Fault::Break(_, _, true) => "connection replaced",
        Fault::Break(_, _, false) => "connection lost",
        Fault::Stray(..) => "connection replaced, commands late",
        Fault::Arrive(..) => "a late command arrives",
        Fault::Restart(_, false) => "node restarted",
        Fault::Restart(_, true) => "node forgot",
        Fault::Rollback(_) => "node restored",
        Fault::Flush(_) => "node flushed",
        Fault::LoseFences(_) => "fences lost",
        Fault::FailBack(_) => "node failed over and back",
        Fault::Snapshot(_) => "node's machine put back",
        Fault::Return(_) => "node's older memory back",
        Fault::Down(_) => "node down",
        Fault::Up(_) => "node back",
        Fault::Hang(_) => "node hung",
        Fault::ClockStep(_) => "node clock stepped",
        Fault::Pause(_) => "client stopped",
        Fault::Freeze(_) => "client's machine stood still",
        Fault::Resume(_) => "client went on",
        Fault::Crash(..) => "client died",
        Fault::WallBack(_) => "wall clock set back",
    }
}

/// Walks from seed to seed for `time`; the seed and schedule of the first breach.
pub(crate) fn soak(
    first: u64,
    time: Duration,
    length: usize,
    tally: &mut Tally,
    mut told: impl FnMut(u64, &Tally),
) -> (u64, Option<(u64, Trace)>) {
    let started = Instant::now();
    let mut last_told = started;
    let mut seed = first;
    while started.elapsed() < time {
        let scope = world_of(seed);
        if let Some(trace) = walk(&scope, seed, length, tally) {
            return (seed - first + 1, Some((seed, trace)));
        }
        seed += 1;
        if last_told.elapsed() >= Duration::from_secs(10) {
            last_told = Instant::now();
            told(seed - first, tally);
        }
    }
    (seed - first, None)
}

/// The seed and schedule of the first breach in the worlds of `count` odd seeds from `first` on: those with
/// guards.
pub(crate) fn first_breach(
    first: u64,
    count: u64,
    world_of: fn(u64) -> Scope,
    length: usize,
    tally: &mut Tally,
) -> Option<(u64, Trace)> {
    let mut seeds = (0..count).map(|number| (first | 1) + 2 * number);
    seeds.find_map(|seed| Some((seed, walk(&world_of(seed), seed, length, tally)?)))
}

/// After this many steps a single client is run alone.
const LONE_SHARE: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::property::Property;
    use crate::random_worlds::unguarded_world_of;
    use crate::shrink::{replay, shrink};
    use crate::step::Fault;

    /// Walks until the guards are missed; a seed, the schedule and the shortened one.
    fn breach() -> (u64, Trace, Trace) {
        let mut tally = Tally::default();
        let found = first_breach(1, 20, unguarded_world_of, 2000, &mut tally);
        let (seed, trace) = found.expect("two hold one lock where the guards are off");
        let short = shrink(&unguarded_world_of(seed), &trace);
        (seed, trace, short)
    }

    #[test]
    fn without_the_guards_two_hold_one_lock_and_with_them_nobody_does() {
        let (seed, trace, short) = breach();
        assert_eq!(trace.violation.property, Property::Exclusion);
        assert!(short.steps.len() < trace.steps.len());
        let is_guarded_against =
            |fault: &Fault| fault.strikes() || matches!(fault, Fault::Freeze(_));
        let mut steps = short.steps.iter();
        assert!(steps.any(|step| matches!(step, Step::Fault(it) if is_guarded_against(it))));
        // The same seed is the same walk, and the short schedule shows it by itself.
        let scope = unguarded_world_of(seed);
        let again = walk(&scope, seed, 2000, &mut Tally::default()).expect("as before");
        assert_eq!(again.steps, trace.steps);
        assert!(replay(&scope, &short.steps, Property::Exclusion).is_some());
        assert!(replay(&world_of(seed), &short.steps, Property::Exclusion).is_none());
        let guarded = walk(&world_of(seed), seed, 2000, &mut Tally::default());
        assert!(guarded.is_none_or(|trace| panic!("{}", trace.violation)));
    }

    #[test]
    fn at_any_time_a_minority_is_struck() {
        let mut tally = Tally::default();
        for seed in [1, 3, 5] {
            let scope = world_of(seed);
            assert!(scope.is_guarded() && scope.spares_majority);
            let mut world = World::new(&scope);
            let mut possible = Vec::new();
            for _ in 0..scope.nodes {
                world.choices(&scope, &mut possible);
                let fault = possible.iter().find_map(|step| match step {
                    Step::Fault(fault @ Fault::Flush(_)) => Some(*fault),
                    _ => None,
                });
                if let Some(fault) = fault {
                    world.fail(&scope, fault);
                }
                let is_struck = |node: &&crate::site::Site| node.is_struck(world.now);
                assert!(world.nodes.iter().filter(is_struck).count() <= scope.nodes / 2);
            }
            assert!(walk(&scope, seed, 300, &mut tally).is_none());
        }
        assert!(tally.faults.len() > 3, "{:?}", tally.faults);
    }
}
