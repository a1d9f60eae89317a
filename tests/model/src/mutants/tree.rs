//! The copy of the workspace that a mutant is built in. Owns the copying, patching and building; knows no mutant.

use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::crate_dir;

/// Copies the workspace as far as the model needs it, with the edits made.
pub(super) fn copy_edited(file: &Path, edits: &[(String, String)]) -> io::Result<PathBuf> {
    let root = crate_dir().join("../..");
    let tree = root.join("target/teeth/tree");
    let schedules = ["tests/conformance/cases", "tests/model/schedules"];
    for part in
        ["core/protocol/src", "core/protocol/tests", "tests/model/src"].into_iter().chain(schedules)
    {
        copy_tree(&root.join(part), &tree.join(part))?;
    }
    for part in ["core/protocol/Cargo.toml", "tests/model/Cargo.toml"] {
        copy_if_new(&root.join(part), &tree.join(part))?;
    }
    let manifest = fs::read_to_string(root.join("Cargo.toml"))?;
    let manifest: Vec<_> = manifest.lines().map(narrow).collect();
    write_if_new(&tree.join("Cargo.toml"), manifest.join("\n").as_bytes())?;
    if !tree.join("Cargo.lock").exists() {
        fs::copy(root.join("Cargo.lock"), tree.join("Cargo.lock"))?;
    }
    fs::write(tree.join(file), edited(&root.join(file), edits)?)?;
    Ok(tree)
}

/// What a file is with the edits made.
pub(super) fn edited(file: &Path, edits: &[(String, String)]) -> io::Result<String> {
    let mut text = fs::read_to_string(file)?;
    for (old, new) in edits {
        let place = find(&text, old).ok_or_else(|| {
            io::Error::other(format!("the text to be replaced is not there once:\n{old}"))
        })?;
        text.replace_range(place, new);
    }
    Ok(text)
}

/// Where `wanted` stands in `text`, whatever the blanks and line ends between its words; `None` unless
/// it stands there once.
fn find(text: &str, wanted: &str) -> Option<Range<usize>> {
    let solid = |text: &str| -> Vec<(usize, char)> {
        text.char_indices().filter(|(_, letter)| !letter.is_whitespace()).collect()
    };
    let (text, wanted) = (solid(text), solid(wanted));
    let same = |window: &&[(usize, char)]| window.iter().zip(&wanted).all(|(a, b)| a.1 == b.1);
    let mut places = text.windows(wanted.len().max(1)).filter(same);
    let place = places.next().filter(|_| places.next().is_none())?;
    let ((first, _), (last, letter)) = (place.first()?, place.last()?);
    Some(*first..last + letter.len_utf8())
}

fn narrow(line: &str) -> &str {
    match line {
        line if line.starts_with("members = ") => "members = [\"core/protocol\", \"tests/model\"]",
        line => line,
    }
}

pub(super) fn build(tree: &Path) -> io::Result<PathBuf> {
    let target = tree.join("../target");
    let out = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--quiet", "--profile", "model", "-p", "quorlock-model"])
        .arg("--target-dir")
        .arg(&target)
        .env("RUSTFLAGS", "-Awarnings")
        .env_remove("CARGO_BUILD_TARGET")
        .current_dir(tree)
        .output()?;
    if !out.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&out.stderr).into_owned()));
    }
    Ok(target.join("model/quorlock-model"))
}

/// Runs those tests of the machines with `part` in their names; the first that fails.
pub(super) fn test_protocol(tree: &Path, part: &str) -> io::Result<Option<String>> {
    let out = Command::new(env!("CARGO"))
        .args(["test", "--offline", "--profile", "model", "-p", "quorlock-protocol"])
        .args(["--test", "machines", "--no-fail-fast", "--target-dir"])
        .arg(tree.join("../target"))
        .args(["--", part])
        .env("RUSTFLAGS", "-Awarnings")
        .env_remove("CARGO_BUILD_TARGET")
        .env("RUST_BACKTRACE", "0")
        .current_dir(tree)
        .output()?;
    let told = String::from_utf8_lossy(&out.stdout);
    if !told.contains("test result: ") {
        return Err(io::Error::other(String::from_utf8_lossy(&out.stderr).into_owned()));
    }
    let failed =
        |line: &str| line.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(str::to_owned);
    Ok(told.lines().find_map(failed))
}

fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            copy_if_new(&entry.path(), &target)?;
        }
    }
    Ok(())
}

/// A file that is the same keeps its time, so that what depends on it is not built again.
fn copy_if_new(from: &Path, to: &Path) -> io::Result<()> {
    write_if_new(to, &fs::read(from)?)
}

fn write_if_new(to: &Path, content: &[u8]) -> io::Result<()> {
    if fs::read(to).is_ok_and(|old| old == content) {
        return Ok(());
    }
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(to, content)
}
