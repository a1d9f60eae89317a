//! Writes the page that tells which promise each mutant breaks (`docs/mutants.md`). Owns its text.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::mutants::Mutant;

/// The page, with what is known of each mutant.
pub(crate) struct Page {
    path: PathBuf,
    /// What was found, by mutant.
    rows: BTreeMap<String, String>,
}

impl Page {
    /// The page as it stands.
    pub(crate) fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/mutants.md");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let rows = text.lines().filter_map(|line| {
            let mut cells = line.strip_prefix("| ")?.splitn(3, " | ");
            let (name, _, found) = (cells.next()?, cells.next()?, cells.next()?);
            Some((name.to_owned(), found.strip_suffix(" |")?.to_owned()))
        });
        Self { rows: rows.collect(), path }
    }

    /// Writes down what was found of a mutant; what is said of others stays, of those that there are.
    pub(crate) fn write(&mut self, all: &[Mutant], name: &str, found: &str) -> io::Result<()> {
        self.rows.insert(name.to_owned(), found.to_owned());
        let rows = all.iter().filter_map(|mutant| {
            let found = self.rows.get(&mutant.name)?;
            Some(format!("| {} | {} | {found} |\n", mutant.name, mutant.meaning))
        });
        let rows: Vec<String> = rows.collect();
        let text = format!("{HEAD}{}", rows.concat());
        fs::write(&self.path, text)
    }
}

const HEAD: &str = "\
# The checks have teeth

Each mutant is the protocol, or a node, that is wrong in one way. `make teeth` builds them one after another,
searches the small worlds (each up to 30,000 states, then up to 2,000,000), walks at random, and writes this page.
Some are wrong in a way that takes more clients and time than that; they are put before the tests of the guards
(`core/protocol/tests/machines/guard_*.rs`), and *found in* names the first test that fails.
`cargo run -p quorlock-model --profile model -- teeth --write --only NAME` does that for some mutants. *Steps* is the length
of the shortened schedule that breaks the promise, *states* how many had been seen in that world (in a random one:
the steps of the walk). A mutant that nothing notices fails the command; one without a row here was not run since
it was added or changed.

| mutant | what is wrong | broken promise | steps | states | found in |
|---|---|---|---|---|---|
";
