//! Tells why a command could not be started, as shells do. Knows no lock.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::failure::{Failure, code};

/// The failure behind `error`. A command whose interpreter is missing exits with 127, as under
/// shells: the system tells them no more than that something is not there.
pub(super) fn not_started(program: &OsString, error: &io::Error) -> Failure {
    let name = program.to_string_lossy();
    if let Some(short) = shortage(error) {
        return Failure::new(
            code::INTERNAL,
            format!("{name}: cannot be started: {short}: {error}"),
        );
    }
    if error.kind() != io::ErrorKind::NotFound {
        return Failure::new(code::NOT_EXECUTABLE, format!("{name}: cannot be executed: {error}"));
    }
    let message = match found(program) {
        None => format!("{name}: command not found"),
        Some(file) => match interpreter(&file) {
            Some(interpreter) => {
                format!("{name}: cannot be executed: its interpreter {interpreter:?} is missing")
            }
            None => format!("{name}: cannot be executed: the loader that it names is missing"),
        },
    };
    Failure::new(code::NOT_FOUND, message)
}

/// What this process or the machine is short of, if that is why: the command may be sound.
fn shortage(error: &io::Error) -> Option<&'static str> {
    match Errno::from_raw(error.raw_os_error()?) {
        Errno::EAGAIN => Some("too many processes (ulimit -u, or a limit of the container)"),
        Errno::EMFILE => Some("too many open files in this process (ulimit -n)"),
        Errno::ENFILE => Some("too many open files on this machine"),
        Errno::ENOMEM => Some("too little memory"),
        _ => None,
    }
}

/// The file of the program, if there is one.
fn found(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|file| file.is_file());
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The word behind `#!` in the first line of a script.
fn interpreter(file: &Path) -> Option<String> {
    let mut start = Vec::new();
    File::open(file).ok()?.take(LONGEST_LINE).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    // A line end of Windows is part of the word.
    let line = String::from_utf8_lossy(line);
    line.split([' ', '\t']).find(|word| !word.is_empty()).map(str::to_owned)
}

/// Systems read less of it.
const LONGEST_LINE: u64 = 1024;
