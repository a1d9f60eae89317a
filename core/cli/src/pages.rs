//! Completions for shells and the manual page, generated from the command line's description.

use clap::{Command, CommandFactory as _};
use clap_complete::Shell as Completed;

use crate::arguments::{Arguments, Shell};
use crate::failure::code;
use crate::output::print;

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) -> u8 {
    let shell = match shell {
        Shell::Bash => Completed::Bash,
        Shell::Zsh => Completed::Zsh,
        Shell::Fish => Completed::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), NAME, &mut text);
    print(String::from_utf8_lossy(&text).trim_end());
    code::DONE
}

/// Prints the manual page: the command's own, followed by those of its commands.
pub(crate) fn man() -> u8 {
    let mut command = Arguments::command();
    command.build();
    let pages = command.get_subcommands().map(|it| page(it.clone()));
    let pages = [page(command.clone())].into_iter().chain(pages);
    print(pages.collect::<String>().trim_end());
    code::DONE
}

fn page(command: Command) -> String {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = clap_mangen::Man::new(command).render(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

const NAME: &str = "quorlock";
