//! Tests that the checks find bugs: breaks a copy of the protocol in one way after another, and
//! runs the search on it. Owns the mutants, and what is searched in each; `tree` builds them. Shipping code has no
//! hooks for it.

mod tree;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::golden;
use crate::random_worlds::world_of;
use crate::scope::Scope;
use crate::scopes;
use crate::search::{Limits, SOME, Trace, search};
use crate::shrink::shrink;
use crate::site::Flaw;
use crate::walk;
use tree::{build, copy_edited, test_protocol};

/// A protocol that is wrong in one way.
pub(crate) struct Mutant {
    pub(crate) name: String,
    pub(crate) meaning: String,
    kind: Kind,
}

enum Kind {
    /// Text of the shipping protocol, replaced.
    Patch { file: PathBuf, only: String, edits: Vec<(String, String)> },
    /// Nodes that do not do what they should, or a process around the machines.
    Node(Flaw),
}

/// Every mutant: those of the protocol from `mutants/*.txt`, then those of the nodes.
pub(crate) fn mutants() -> io::Result<Vec<Mutant>> {
    let mut paths: Vec<_> = fs::read_dir(crate_dir().join("mutants"))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    paths.sort();
    let mut mutants = paths.iter().map(|path| parse(path)).collect::<io::Result<Vec<_>>>()?;
    mutants.extend(NODE_FLAWS.iter().map(|(flaw, name, meaning)| Mutant {
        name: (*name).to_owned(),
        meaning: (*meaning).to_owned(),
        kind: Kind::Node(*flaw),
    }));
    Ok(mutants)
}

/// Builds a mutant and searches it: the property that was broken, and where; `None` if nothing was noticed.
pub(crate) fn test(mutant: &Mutant) -> io::Result<Option<String>> {
    let caught = match &mutant.kind {
        // What only the guards ask of nodes shows nowhere else.
        Kind::Node(flaw @ (Flaw::IgnoresCanary | Flaw::LooksAhead | Flaw::LostIsShared)) => {
            find_violation(*flaw, "guards:")
        }
        Kind::Node(flaw @ Flaw::NoFloor) => find_violation(*flaw, "tokens:"),
        Kind::Node(flaw @ Flaw::WatchesOnce) => {
            find_violation(*flaw, "queue: a lease is renewed and")
        }
        Kind::Node(flaw) => find_violation(*flaw, ""),
        Kind::Patch { file, only, edits } if only.starts_with(PROTOCOL) => {
            let tests = only.strip_prefix(PROTOCOL).map(str::trim).filter(|it| !it.is_empty());
            let tests = tests.unwrap_or(TESTS_OF_GUARDS);
            test_protocol(&copy_edited(file, edits)?, tests)?
                .map(|test| format!("test | - | - | {test}"))
        }
        Kind::Patch { file, only, edits } => {
            let tree = copy_edited(file, edits)?;
            let program = build(&tree)?;
            let out = Command::new(program).args(["find-violation", only]).output()?;
            let text = String::from_utf8_lossy(&out.stdout);
            text.lines().find_map(|line| line.strip_prefix(CAUGHT)).map(str::to_owned)
        }
    };
    let seed = caught.as_deref().and_then(seed_of);
    if let Some(seed) = seed.filter(|seed| walk_once(Flaw::None, *seed).is_some()) {
        let text = format!("seed {seed} breaks a promise without the mutant, too: mend that first");
        return Err(io::Error::other(text));
    }
    Ok(caught)
}

/// The seed of the random world in which something was found, if it was one.
fn seed_of(found: &str) -> Option<u64> {
    found.rsplit_once(SEED)?.1.parse().ok()
}

/// Searches the small worlds with `only` in their names, at first not deeply, then walks; a line on what was
/// found.
pub(crate) fn find_violation(flaw: Flaw, only: &str) -> Option<String> {
    if only == GOLDEN {
        return break_golden();
    }
    // Nobody waits in queues in random worlds.
    let seeds = 1..=if only.starts_with(QUEUES) { 0 } else { WALKS };
    let find = |states| search_small(flaw, only, states);
    find(FEW)
        .or_else(|| seeds.clone().take(FEW_WALKS).find_map(|seed| walk_once(flaw, seed)))
        .or_else(|| find(MANY))
        .or_else(|| seeds.clone().skip(FEW_WALKS).find_map(|seed| walk_once(flaw, seed)))
        .or_else(break_golden)
}

fn break_golden() -> Option<String> {
    let (_, failed) = golden::run_all().ok()?;
    let case = failed.first()?.split(':').next()?;
    Some(format!("golden schedule | - | - | {case}"))
}

fn search_small(flaw: Flaw, only: &str, states: usize) -> Option<String> {
    let limits = Limits { states, time: Duration::from_secs(60), share: SOME };
    // A mutant that names its worlds may name a large one.
    let long = if only.is_empty() { Vec::new() } else { scopes::long() };
    let scopes = scopes::small().into_iter().chain(long).filter(|it| it.name.contains(only));
    scopes.map(|scope| Scope { flaw, ..scope }).find_map(|scope| {
        let report = search(&scope, limits);
        Some(line(&scope, &report.found?, report.states))
    })
}

fn walk_once(flaw: Flaw, seed: u64) -> Option<String> {
    let scope = Scope { flaw, ..world_of(seed) };
    let trace = walk::walk(&scope, seed, 3000, &mut walk::Tally::default())?;
    Some(format!("{}{SEED}{seed}", line(&scope, &trace, trace.steps.len())))
}

fn line(scope: &Scope, trace: &Trace, states: usize) -> String {
    let short = shrink(scope, trace);
    let (property, steps) = (short.violation.property.name(), short.steps.len());
    format!("{property} | {steps} | {states} | {}", scope.name)
}

/// Reads one mutant: a line on what it is, the file, perhaps where to look for it, then pairs of old and
/// new text.
fn parse(path: &Path) -> io::Result<Mutant> {
    let text = fs::read_to_string(path)?;
    let wrong = |what: &str| io::Error::other(format!("{}: {what}", path.display()));
    let (head, body) = text.split_once("\n<<<<\n").ok_or_else(|| wrong("no '<<<<'"))?;
    let (meaning, file) = head.split_once("\nfile ").ok_or_else(|| wrong("no 'file'"))?;
    let (file, only) = file.split_once("\nonly ").unwrap_or((file, ""));
    let mut edits = Vec::new();
    for block in body.split("\n<<<<\n") {
        let (old, rest) = block.split_once("\n====\n").ok_or_else(|| wrong("no '===='"))?;
        let new = rest.strip_suffix(">>>>\n").or(rest.strip_suffix(">>>>"));
        let new = new.ok_or_else(|| wrong("no '>>>>'"))?;
        edits.push((format!("{old}\n"), new.to_owned()));
    }
    let name = path.file_stem().unwrap_or_default().to_string_lossy().replace('-', " ");
    Ok(Mutant {
        name,
        meaning: meaning.trim_start_matches("# ").replace("\n# ", " "),
        kind: Kind::Patch { file: PathBuf::from(file.trim()), only: only.to_owned(), edits },
    })
}

fn crate_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// What stands before the seed of a random world.
const SEED: &str = ", seed ";
/// What begins the line that `find-violation` prints.
pub(crate) const CAUGHT: &str = "caught: ";

/// What the names of worlds with queues begin with.
const QUEUES: &str = "queue:";

const NODE_FLAWS: [(Flaw, &str, &str); 12] = [
    (
        Flaw::RevokesOvertake,
        "node: revokes overtake grants",
        "no order between a revoke and what was sent before it (pottery, redlock-universal)",
    ),
    (
        Flaw::RevokesAnyones,
        "node: revoke without owner check",
        "a release deletes whatever is there (the plain DEL of early clients)",
    ),
    (
        Flaw::GrantsInPart,
        "node: grant in part",
        "some of several resources are taken although others are not free",
    ),
    (
        Flaw::FenceFollowsProposal,
        "node: fence without step",
        "the token is the client's proposal, whatever the node has seen",
    ),
    (
        Flaw::RefusesItsOwn,
        "node: grant not idempotent",
        "a grant sent again after a lost reply is refused by its own key (redis-py)",
    ),
    (Flaw::NeverExpires, "node: key without ttl", "keys are set without an end (sherlock)"),
    (
        Flaw::IgnoresCanary,
        "node: grant without canary",
        "the grant script does not look at the canary, so that a flush goes unnoticed",
    ),
    (
        Flaw::LooksAhead,
        "node: canary before the key",
        "a grant by several commands reads the canary first, and a flush comes in between",
    ),
    (
        Flaw::KeepsFence,
        "node: token of who was before",
        "a key that is the claim's already is taken for a fence that is its own",
    ),
    (
        Flaw::LostIsShared,
        "process: each manager adds the lost time",
        "lost time is process-wide, so that several managers that stood still together each add it (ours, once)",
    ),
    (
        Flaw::WatchesOnce,
        "process: watch not armed again",
        "the first in the queue is told of one change of the key, and of no further one",
    ),
    (
        Flaw::NoFloor,
        "node: no floor by the clock",
        "a token may lie as far below the node's clock as the clock of a client does",
    ),
];

/// Where to look for what takes too many clients and faults for a search.
const GOLDEN: &str = "golden";
/// The same for what takes clients and nodes that only the tests of the guards have, or calls that only other tests
/// make, which are named behind it: `core/protocol/tests/machines`.
const PROTOCOL: &str = "protocol";
const TESTS_OF_GUARDS: &str = "guard_";
/// How many states of each small world are searched at first, and then.
const FEW: usize = 30_000;
const MANY: usize = 2_000_000;
/// How many walks there are, and how many of them come before the deeper search.
const WALKS: u64 = 1000;
const FEW_WALKS: usize = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_every_mutant_is_still_there() {
        for mutant in mutants().expect("they can be read") {
            if let Kind::Patch { file, edits, .. } = &mutant.kind {
                let file = crate_dir().join("../..").join(file);
                assert!(tree::edited(&file, edits).is_ok(), "mutant '{}'", mutant.name);
            }
        }
    }
}
