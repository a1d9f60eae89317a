//! The exhaustive search: every schedule of a scope, each state once. Owns the order of the search and its
//! count; knows nothing of locks.

use std::time::{Duration, Instant};

use crate::print::{Seen, fingerprint};
use crate::progress;
use crate::property::Violation;
use crate::scope::Scope;
use crate::step::Step;
use crate::world::World;

/// What a search found.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    pub(crate) states: usize,
    pub(crate) steps: u64,
    /// The longest schedule without a repeated state that was walked.
    pub(crate) depth: usize,
    pub(crate) took: Duration,
    pub(crate) extent: Extent,
    /// The states from which a single client was run.
    pub(crate) sampled: usize,
    pub(crate) found: Option<Trace>,
}

/// How much of a world was searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Every state was seen.
    Whole,
    /// As many states as its scope says, always the same ones.
    Bounded,
    /// As much as time and memory were enough for.
    Part,
}

/// A schedule that breaks a promise.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub(crate) steps: Vec<Step>,
    pub(crate) violation: Violation,
}

/// How far to search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) states: usize,
    pub(crate) time: Duration,
    /// From one state in this many, a single client must make progress.
    pub(crate) share: u64,
}

struct Level {
    /// Gone once the last of the steps is taken.
    world: Option<World>,
    steps: Vec<Step>,
    next: usize,
}

/// Walks through every schedule of `scope`, depth first, up to the first breach.
pub(crate) fn search(scope: &Scope, limits: Limits) -> Report {
    let started = Instant::now();
    let mut search = Search {
        scope,
        share: limits.share,
        seen: Seen::default(),
        deserts: Seen::default(),
        report: Report {
            states: 0,
            steps: 0,
            depth: 0,
            took: Duration::ZERO,
            extent: Extent::Whole,
            sampled: 0,
            found: None,
        },
        levels: Vec::new(),
    };
    let most = scope.bound.unwrap_or(limits.states).min(limits.states);
    search.visit(World::new(scope));
    while search.report.found.is_none() && !search.levels.is_empty() {
        let is_late = search.report.steps.is_multiple_of(1024) && started.elapsed() >= limits.time;
        if is_late || search.seen.len() >= most {
            let is_meant = !is_late && scope.bound == Some(most);
            search.report.extent = if is_meant { Extent::Bounded } else { Extent::Part };
            break;
        }
        search.advance();
    }
    search.report.states = search.seen.len();
    search.report.took = started.elapsed();
    search.report
}

struct Search<'a> {
    scope: &'a Scope,
    share: u64,
    seen: Seen,
    /// The worlds in which a client was alone.
    deserts: Seen,
    report: Report,
    levels: Vec<Level>,
}

impl Search<'_> {
    fn advance(&mut self) {
        let Some(level) = self.levels.last_mut() else {
            return;
        };
        let Some(step) = level.steps.get(level.next).copied() else {
            self.levels.pop();
            return;
        };
        level.next += 1;
        let is_last = level.next == level.steps.len();
        let world = if is_last { level.world.take() } else { level.world.clone() };
        let Some(mut world) = world else {
            return;
        };
        self.report.steps += 1;
        match world.apply(self.scope, step) {
            Ok(()) => self.visit(world),
            Err(violation) => self.found(violation),
        }
    }

    fn visit(&mut self, world: World) {
        let print = fingerprint(&world);
        if !self.seen.insert(print) {
            return;
        }
        if let Err(violation) = world.check(self.scope) {
            return self.found(violation);
        }
        if print.is_multiple_of(self.share) {
            self.report.sampled += 1;
            if let Err(violation) = progress::run(self.scope, &world, &mut self.deserts) {
                return self.found(violation);
            }
        }
        let mut steps = Vec::new();
        world.choices(self.scope, &mut steps);
        self.levels.push(Level { world: Some(world), steps, next: 0 });
        self.report.depth = self.report.depth.max(self.levels.len() - 1);
    }

    fn found(&mut self, violation: Violation) {
        let steps = self.levels.iter().map(|level| level.steps[level.next - 1]).collect();
        self.report.found = Some(Trace { steps, violation });
    }
}

/// From one state in this many, a single client must make progress, if not from every one.
pub(crate) const SOME: u64 = 512;
