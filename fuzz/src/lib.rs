//! Runs a target of the fuzzer with input that was kept: no fuzzer is needed for that.

use std::{env, fs};

/// Runs `target` with the contents of each file that the command line names.
pub fn replay(target: fn(&[u8])) {
    for path in env::args_os().skip(1) {
        let input = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        target(&input);
    }
}
