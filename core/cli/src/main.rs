//! The `quorlock` command of cargo; the wheel and the npm package call the same library.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(quorlock_cli::main(std::env::args_os().skip(1)))
}
