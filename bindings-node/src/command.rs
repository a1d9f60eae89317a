//! The `quorlock` command of the npm package. Knows nothing of it: the crate `quorlock-cli` is the
//! command.

use std::env;
use std::ffi::OsString;

use napi_derive::napi;

/// Runs the command with these arguments (without the program's name); returns the status to exit
/// with. For a process of its own, on its main thread.
#[napi]
#[must_use]
pub fn command(arguments: Vec<String>) -> u8 {
    // Node replaces bytes that are not UTF-8; what the system has passed is as it was.
    let passed: Vec<OsString> = env::args_os().collect();
    let own = passed.len().checked_sub(arguments.len()).and_then(|first| passed.get(first..));
    let is_same = |own: &&[OsString]| {
        own.iter().zip(&arguments).all(|(own, shown)| own.to_string_lossy() == shown.as_str())
    };
    let own = own.filter(is_same).map(<[OsString]>::to_vec);
    quorlock_cli::main(own.unwrap_or_else(|| arguments.into_iter().map(OsString::from).collect()))
}
