//! Searches one world after another, and prints a table of what was found. Owns the table and the
//! limits of a search.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::random_worlds::unguarded_world_of;
use crate::scope::Scope;
use crate::search::{Extent, Limits, Report, SOME, Trace, search};
use crate::walk::Tally;
use crate::{scopes, shrink, walk};

/// Searches every scope to its end or bound, checking progress from one state of `share`; `false` also if one is too
/// large for that, or the machine too slow.
pub(crate) fn search_whole(scopes: &[Scope], share: u64) -> bool {
    let Searched { cut, is_well, .. } = search_each(scopes, |_| Limits { share, ..SMALL });
    if cut > 0 {
        println!("NOT COMPLETE: {cut} of {} worlds were not searched to their end", scopes.len());
    }
    is_well && cut == 0
}

/// Searches as much of every scope as `time` for all of them allows for, and says of how many that was all. What one
/// does not need is there for those after it.
pub(crate) fn search_long(scopes: &[Scope], time: Duration) -> bool {
    let end = Instant::now() + time;
    let Searched { whole, is_well, .. } = search_each(scopes, |left| {
        let rest = end.saturating_duration_since(Instant::now());
        let share = rest * THREADS / u32::try_from(left).unwrap_or(u32::MAX);
        Limits { states: MOST, time: share.min(rest), share: SOME }
    });
    println!("{whole} of {} worlds were searched to their end", scopes.len());
    is_well
}

struct Searched {
    /// How many worlds were searched to their end.
    whole: usize,
    /// How many were not, for want of time or memory.
    cut: usize,
    is_well: bool,
}

/// Searches every scope, two at a time, and prints a table in the order of the scopes. `limits` is told how many are
/// left, with the one that it is for.
fn search_each(scopes: &[Scope], limits: impl Fn(usize) -> Limits + Sync) -> Searched {
    println!("   states      steps depth  alone seconds  scope");
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let reports = Mutex::new(vec![None; scopes.len()]);
    let printed = Mutex::new(0);
    thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scope) = scopes.get(place) else {
                        break;
                    };
                    let report = search(scope, limits(scopes.len() - place));
                    let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
                    reports[place] = Some(report);
                    let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
                    while let Some(Some(report)) = reports.get(*printed) {
                        print_row(&scopes[*printed], report);
                        *printed += 1;
                    }
                }
            });
        }
    });
    let reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    let reports: Vec<Report> = reports.into_iter().flatten().collect();
    let states: usize = reports.iter().map(|report| report.states).sum();
    let steps: u64 = reports.iter().map(|report| report.steps).sum();
    println!("{states} states, {steps} steps in {:.1} s", started.elapsed().as_secs_f64());
    let count = |extent| reports.iter().filter(|report| report.extent == extent).count();
    Searched {
        whole: count(Extent::Whole),
        cut: count(Extent::Part),
        is_well: reports.iter().all(|report| report.found.is_none()),
    }
}

fn print_row(scope: &Scope, report: &Report) {
    println!(
        "{:>9} {:>10} {:>5} {:>6} {:>7.1}  {}{}",
        report.states,
        report.steps,
        report.depth,
        report.sampled,
        report.took.as_secs_f64(),
        scope.name,
        match report.extent {
            Extent::Whole => "",
            Extent::Bounded => " (to its bound)",
            Extent::Part => " (NOT to its end)",
        }
    );
    if let Some(trace) = &report.found {
        show(scope, &shrink::shrink(scope, trace));
    }
}

pub(crate) fn search_named(part: &str, share: u64) -> bool {
    let all = scopes::small().into_iter().chain(scopes::long()).chain(scopes::limits());
    let mut chosen: Vec<_> = all.filter(|scope| scope.name.contains(part)).collect();
    if chosen.iter().any(|scope| scope.name == part) {
        chosen.retain(|scope| scope.name == part);
    }
    let Searched { whole, is_well, .. } = search_each(&chosen, |_| Limits { share, ..NAMED });
    println!("{whole} of {} worlds were searched to their end", chosen.len());
    !chosen.is_empty() && is_well
}

/// Shows what the algorithm does not promise; `false` if the search did not see one of them.
pub(crate) fn show_limits() -> bool {
    println!("\nknown limits, each to be seen:");
    let mut is_well = true;
    for scope in scopes::limits() {
        let report = search(&scope, SMALL);
        let found = report.found.map(|trace| shrink::shrink(&scope, &trace));
        let seen = found.as_ref().filter(|trace| Some(trace.violation.property) == scope.limit);
        is_well &= seen.is_some();
        match seen {
            Some(trace) => println!("  {}: {}", scope.name, outline(trace)),
            None => println!("  {}: NOT SEEN ({} states)", scope.name, report.states),
        }
    }
    is_well && show_walks()
}

/// Walks through the random worlds of the guards, without these, until two hold one lock.
fn show_walks() -> bool {
    let mut tally = Tally::default();
    let found = walk::first_breach(1, UNGUARDED_WALKS, unguarded_world_of, crate::WALK, &mut tally);
    match &found {
        Some((seed, trace)) => {
            let short = shrink::shrink(&unguarded_world_of(*seed), trace);
            println!("  random worlds, without guards: {} (seed {seed})", outline(&short));
        }
        None => println!("  random worlds, without guards: NOT SEEN ({} steps)", tally.steps),
    }
    found.is_some()
}

fn outline(trace: &Trace) -> String {
    format!("{} after {} steps", trace.violation.property.name(), trace.steps.len())
}

pub(crate) fn show(scope: &Scope, trace: &Trace) {
    println!("\nBROKEN in '{}', {} nodes:", scope.name, scope.nodes);
    for step in &trace.steps {
        println!("    {step}");
    }
    println!("  {}\n", trace.violation);
}

/// Every small world has fewer states; the time is for a machine that does next to nothing.
const SMALL: Limits = Limits { states: 4_000_000, time: Duration::from_secs(1200), share: SOME };
/// A world that is named may take an hour.
const NAMED: Limits = Limits { states: MOST, time: Duration::from_secs(3600), share: SOME };
/// What two searches at once have room for in 4 GB.
const MOST: usize = 100_000_000;
/// How many scopes are searched at once.
const THREADS: u32 = 2;
/// How many walks without guards may pass before two holders are seen.
const UNGUARDED_WALKS: u64 = 400;
