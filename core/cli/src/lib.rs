//! The `quorlock` command: runs programs under a distributed lock, and shows who holds one and
//! which node is not fit.
//!
//! Cargo's binary, the Python wheel and the npm package all call [`main`]. The decisions about
//! locks are the crate `quorlock`'s; this one owns the command line, child processes, and what
//! people read.
//!
//! | module | what it owns |
//! |---|---|
//! | `arguments` | the command line, and what is wrong with one |
//! | `context` | the nodes, and the manager over them |
//! | `failure` | exit codes and messages |
//! | `output` | tables, colours, JSON, messages |
//! | `run` | a command under a lock: child, signals, terminal |
//! | `holders` | `status`, `release`, `extend`, `verify` |
//! | `survey` | what each node is: `nodes`, `doctor` |
//! | `bench` | a quick look at the speed of one's own nodes |
//! | `refusal` | why a server refuses a call |
//! | `server_info` | what a server says of itself |
//! | `streams` | that there are three standard streams |
//! | `pages` | completions and the manual, generated |

#![deny(unsafe_code)]

mod arguments;
mod bench;
mod context;
mod failure;
mod holders;
mod output;
mod pages;
mod refusal;
#[cfg(unix)]
mod run;
mod server_info;
#[cfg(unix)]
mod streams;
mod survey;

use std::ffi::OsString;

use self::arguments::{Command, Common};
use self::context::Context;
use self::failure::Failure;
use self::output::Output;

/// Runs the command with these arguments (without the program's name), and returns the status to
/// exit with.
///
/// It blocks until the command has ended, and must be called on the process's main thread, which
/// nothing else uses meanwhile: it sets the dispositions of signals, and a child of `run` is told
/// when the thread that started it ends.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    #[cfg(unix)]
    {
        streams::open_missing();
        run::restore_interrupt();
    }
    let (code, is_quiet) = match arguments::parse(arguments) {
        Ok(arguments) => {
            let Common { json, quiet, no_color, .. } = arguments.common;
            let output = Output::new(json, quiet, !no_color);
            let done = perform(&arguments, output);
            // A program reads an outcome also where the nodes have not told it.
            if let Err(failure) = &done
                && failure.is_without_quorum()
                && let Some(unknown) =
                    failure.told().or_else(|| holders::unknown(&arguments.command))
            {
                output.json(&unknown);
            }
            (done, quiet)
        }
        Err(failure) => (Err(failure), false),
    };
    let code = code.unwrap_or_else(|failure| failure.tell(is_quiet));
    let code = failure::of_output(code);
    output::messages::finish();
    code
}

fn perform(arguments: &arguments::Arguments, output: Output) -> Result<u8, Failure> {
    #[cfg(unix)]
    if !matches!(arguments.command, Command::Run(_)) {
        run::end_first_process();
    }
    let context = || Context::new(&arguments.common, output);
    let of_all = || Context::of_all(&arguments.common, output);
    match &arguments.command {
        Command::Status(options) => holders::status(&context()?, options),
        Command::Release(options) => holders::release(&context()?, options),
        Command::Extend(options) => holders::extend(&context()?, options),
        Command::Verify(options) => holders::verify(&context()?, options),
        Command::Nodes(options) => survey::nodes(&of_all()?, options),
        Command::Doctor => survey::doctor(&of_all()?),
        Command::Bench(options) => bench::bench(&context()?, options),
        Command::Completions { shell } => Ok(pages::completions(*shell)),
        Command::Man => Ok(pages::man()),
        #[cfg(unix)]
        Command::Run(options) => run::run(&context()?, options),
        #[cfg(not(unix))]
        Command::Run(_) => Err(Failure::usage("quorlock run needs a Unix system")),
    }
}
