//! A `run` under `npx`: npm passes SIGTERM on to the shell that it starts, which dies of it alone.

use std::os::unix::ffi::OsStrExt as _;
use std::{env, fs};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, raise};
use nix::unistd::getppid;

use crate::arguments::is_under_npx;

/// If npm's shell has started this process, SIGTERM comes when that shell ends, which waits for nothing else.
pub(super) fn end_with_shell() {
    let shell = getppid();
    let words = fs::read(format!("/proc/{shell}/cmdline")).unwrap_or_default();
    let mut words = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    if words.next_back().is_some_and(is_line_of_npx) {
        let _ = set_pdeathsig(Signal::SIGTERM);
        if getppid() != shell {
            let _ = raise(Signal::SIGTERM);
        }
    }
}

/// Whether this is what `npx quorlock ...` has a shell run, and not what a person has written (`npx -c`).
fn is_line_of_npx(line: &[u8]) -> bool {
    let program = env::var_os("npm_lifecycle_script").unwrap_or_default();
    let program = program.as_bytes();
    is_under_npx()
        && !program.is_empty()
        && line.strip_prefix(program).is_some_and(|arguments| arguments.starts_with(b" "))
}
