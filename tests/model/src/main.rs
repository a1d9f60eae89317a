//! Searches, simulates and attacks the shipping machines of `quorlock-protocol` in virtual time.
//!
//! `quorlock-model help` tells the commands.

// The method of one `Actor<'_>` is not that of every `Actor<'_>`, which a closure is.
#![allow(clippy::redundant_closure_for_method_calls)]

mod actor;
mod check;
mod choices;
mod client;
mod clock;
mod dice;
mod faults;
mod golden;
mod guarded;
mod lapse;
mod lease;
mod link;
mod lone;
mod look;
mod page;
mod print;
mod property;
mod scope;
mod scopes;
mod search;
mod shrink;
mod site;
mod step;
mod teeth;
mod users;
mod walk;
mod world;

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dice::{unguarded_world_of, world_of};
use scope::Scope;
use search::{Limits, Report, Trace, search};
use site::Flaw;
use walk::Tally;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_well = match words.as_slice() {
        ["search"] => search_all(&scopes::small(), SMALL) && show_limits(),
        ["search", "--long"] => search_all(&scopes::long(), LONG) && show_limits(),
        ["search", "--scope", name] => search_named(name),
        ["limits"] => show_limits(),
        ["simulate", "--seed", seed] => number(seed).is_some_and(|it| replay_seed(it, world_of)),
        ["simulate", "--unguarded", "--seed", seed] => {
            number(seed).is_some_and(|it| replay_seed(it, unguarded_world_of))
        }
        ["simulate"] => soak(0, Duration::from_secs(20)),
        ["soak", "--seconds", seconds] => number(seconds)
            .is_some_and(|seconds| soak(seed_of_today(), Duration::from_secs(seconds))),
        ["golden"] => show_golden(),
        ["teeth"] => bite_all("", false),
        ["teeth", "--write"] => bite_all("", true),
        ["teeth", "--only", part] => bite_all(part, false),
        ["teeth", "--write", "--only", part] => bite_all(part, true),
        ["hunt", only] => {
            if let Some(found) = teeth::hunt(Flaw::None, only) {
                println!("{}{found}", teeth::CAUGHT);
            }
            true
        }
        _ => {
            println!("{HELP}");
            words == ["help"]
        }
    };
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Searches every scope, two at a time, and prints a table.
fn search_all(scopes: &[Scope], limits: Limits) -> bool {
    println!("   states      steps depth  alone seconds  scope");
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let reports = Mutex::new(Vec::new());
    thread::scope(|threads| {
        for _ in 0..THREADS {
            threads.spawn(|| {
                while let Some(scope) = scopes.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let report = search(scope, limits);
                    let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
                    print_row(scope, &report);
                    reports.push(report);
                }
            });
        }
    });
    let reports = reports.into_inner().unwrap_or_else(PoisonError::into_inner);
    let states: usize = reports.iter().map(|report| report.states).sum();
    let steps: u64 = reports.iter().map(|report| report.steps).sum();
    println!("{states} states, {steps} steps in {:.1} s", started.elapsed().as_secs_f64());
    reports.iter().all(|report| report.found.is_none())
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
        if report.whole { "" } else { " (not to its end)" }
    );
    if let Some(trace) = &report.found {
        show(scope, &shrink::shrink(scope, trace));
    }
}

fn search_named(part: &str) -> bool {
    let all = scopes::small().into_iter().chain(scopes::long()).chain(scopes::limits());
    let chosen: Vec<_> = all.filter(|scope| scope.name.contains(part)).collect();
    !chosen.is_empty() && search_all(&chosen, LONG)
}

/// Shows what the algorithm does not promise; `false` if the search did not see one of them.
fn show_limits() -> bool {
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
    let found = walk::first_breach(1, UNGUARDED_WALKS, unguarded_world_of, WALK, &mut tally);
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

fn show(scope: &Scope, trace: &Trace) {
    println!("\nBROKEN in '{}', {} nodes:", scope.name, scope.nodes);
    for step in &trace.steps {
        println!("    {step}");
    }
    println!("  {}\n", trace.violation);
}

fn soak(first: u64, time: Duration) -> bool {
    let started = Instant::now();
    let mut tally = Tally::default();
    let progress = |seeds: u64, tally: &Tally| {
        println!("{seeds} seeds, {} steps, {} locks won", tally.steps, tally.won);
    };
    let (seeds, found) = walk::soak(first, time, WALK, &mut tally, progress);
    println!(
        "seeds {first} to {} ({} with guards): {} steps, {} locks won, {} s of virtual time in {:.0} s",
        first + seeds,
        (first..first + seeds).filter(|seed| world_of(*seed).is_guarded()).count(),
        tally.steps,
        tally.won,
        tally.virtual_millis / 1000,
        started.elapsed().as_secs_f64()
    );
    for (fault, count) in &tally.faults {
        println!("{count:>9} times: {fault}");
    }
    let Some((seed, trace)) = found else {
        return true;
    };
    let scope = world_of(seed);
    show(&scope, &shrink::shrink(&scope, &trace));
    println!("again: cargo run -p quorlock-model --profile model -- simulate --seed {seed}");
    false
}

fn replay_seed(seed: u64, world_of: fn(u64) -> Scope) -> bool {
    let scope = world_of(seed);
    let mut tally = Tally::default();
    let Some(trace) = walk::walk(&scope, seed, WALK, &mut tally) else {
        println!("seed {seed}: {} steps, nothing broken", tally.steps);
        return true;
    };
    show(&scope, &shrink::shrink(&scope, &trace));
    false
}

fn show_golden() -> bool {
    match golden::run_all() {
        Ok((count, failed)) => {
            println!("{} of {count} golden schedules hold", count - failed.len());
            for line in &failed {
                println!("{line}");
            }
            failed.is_empty()
        }
        Err(problem) => {
            println!("{problem}");
            false
        }
    }
}

fn bite_all(part: &str, writes: bool) -> bool {
    let mutants = match teeth::mutants() {
        Ok(mutants) => mutants,
        Err(problem) => {
            println!("{problem}");
            return false;
        }
    };
    println!("| mutant | broken promise | steps | states | found in |\n|---|---|---|---|---|");
    let mut page = writes.then(page::Page::read);
    let mut is_well = true;
    for mutant in mutants.iter().filter(|mutant| mutant.name.contains(part)) {
        let (result, is_caught) = match teeth::bite(mutant) {
            Ok(teeth::Bite { caught: Some(line) }) => (line, true),
            Ok(teeth::Bite { caught: None }) => ("NOT CAUGHT | | |".to_owned(), false),
            Err(problem) => (format!("NOT BUILT: {problem} | | |"), false),
        };
        is_well &= is_caught;
        println!("| {} | {result} |", mutant.name);
        if let Some(Err(problem)) =
            page.as_mut().map(|page| page.write(&mutants, &mutant.name, &result))
        {
            println!("{problem}");
            is_well = false;
        }
    }
    is_well
}

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

/// A seed that differs from run to run, so that every soak walks elsewhere.
fn seed_of_today() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |since| since.as_secs()) * 1_000_000
}

const SMALL: Limits = Limits { states: 4_000_000, time: Duration::from_secs(60) };
const LONG: Limits = Limits { states: 60_000_000, time: Duration::from_secs(900) };
/// How many scopes are searched at once.
const THREADS: usize = 2;
/// How many walks without guards may pass before two holders are seen.
const UNGUARDED_WALKS: u64 = 400;
/// How many steps a walk has.
const WALK: usize = 5000;

const HELP: &str = "\
quorlock-model search [--long | --scope NAME]   every schedule of the small (large) worlds, and the known limits
quorlock-model limits                           only the known limits
quorlock-model simulate [[--unguarded] --seed N]
                                                random walks for 20 s, or the one of a seed
quorlock-model soak --seconds N                 random walks from a new seed, for a time
quorlock-model golden                           the golden schedules of tests/conformance
quorlock-model teeth [--write] [--only NAME]    breaks a copy of the protocol in every listed way; each must be noticed
quorlock-model hunt NAME                        what 'teeth' runs in each broken copy";
