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
mod env;
mod event_checks;
mod faults;
mod golden;
mod guarded;
mod holding;
mod lease;
mod link;
mod look;
mod lost_time;
mod messages;
mod mutants;
mod order;
mod page;
mod parts;
mod print;
mod progress;
mod property;
mod random_worlds;
mod scope;
mod scopes;
mod search;
mod second_user;
mod shrink;
mod site;
mod step;
mod strays;
mod table;
mod users;
mod views;
mod waits;
mod wake;
mod waking;
mod walk;
mod world;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use random_worlds::{unguarded_world_of, world_of};
use scope::Scope;
use site::Flaw;
use walk::Tally;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_well = match words.as_slice() {
        ["search"] => table::search_whole(&scopes::small(), search::SOME) && table::show_limits(),
        ["search", "--every"] => table::search_whole(&scopes::small(), 1),
        ["search", "--long"] => search_long(LONG),
        ["search", "--long", "--seconds", seconds] => number(seconds).is_some_and(search_long),
        ["search", "--scope", name] => table::search_named(name, search::SOME),
        ["search", "--every", "--scope", name] => table::search_named(name, 1),
        ["limits"] => table::show_limits(),
        ["simulate", "--seed", seed] => number(seed).is_some_and(|it| replay_seed(it, world_of)),
        ["simulate", "--unguarded", "--seed", seed] => {
            number(seed).is_some_and(|it| replay_seed(it, unguarded_world_of))
        }
        ["simulate"] => soak(0, Duration::from_secs(20)),
        ["soak", "--seconds", seconds] => number(seconds)
            .is_some_and(|seconds| soak(seed_of_today(), Duration::from_secs(seconds))),
        ["golden"] => show_golden(),
        ["teeth"] => test_mutants("", false),
        ["teeth", "--write"] => test_mutants("", true),
        ["teeth", "--only", part] => test_mutants(part, false),
        ["teeth", "--write", "--only", part] => test_mutants(part, true),
        ["find-violation", only] => {
            if let Some(found) = mutants::find_violation(Flaw::None, only) {
                println!("{}{found}", mutants::CAUGHT);
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

fn search_long(seconds: u64) -> bool {
    table::search_long(&scopes::long(), Duration::from_secs(seconds)) && table::show_limits()
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
    table::show(&scope, &shrink::shrink(&scope, &trace));
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
    table::show(&scope, &shrink::shrink(&scope, &trace));
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

fn test_mutants(part: &str, writes: bool) -> bool {
    let mutants = match mutants::mutants() {
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
        let (result, is_caught) = match mutants::test(mutant) {
            Ok(Some(line)) => (line, true),
            Ok(None) => ("NOT CAUGHT | | |".to_owned(), false),
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

/// For how many seconds all larger worlds together are searched.
const LONG: u64 = 3600;
/// How many steps a walk has.
const WALK: usize = 5000;

const HELP: &str = "\
quorlock-model search                           every schedule of the small worlds, and the known limits
quorlock-model search --every                   the same, and from every state a lone client gets the lock
quorlock-model search --long [--seconds N]      larger worlds, as far as an hour (or N seconds) goes
quorlock-model search [--every] --scope NAME    every schedule of the worlds with NAME in their names
quorlock-model limits                           only the known limits
quorlock-model simulate [[--unguarded] --seed N]
                                                random walks for 20 s, or the one of a seed
quorlock-model soak --seconds N                 random walks from a new seed, for a time
quorlock-model golden                           the golden schedules of tests/conformance
quorlock-model teeth [--write] [--only NAME]    breaks a copy of the protocol in every listed way; each must be noticed
quorlock-model find-violation NAME              what 'teeth' runs in each broken copy";
