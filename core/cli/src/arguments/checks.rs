//! Checks a command line, and says in words what is wrong with it. The exit status is 64 then.

use std::env;
use std::ffi::OsString;
use std::time::Duration;

use clap::Parser as _;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use quorlock::embed::plain_line;
use quorlock_protocol::Resource;

use super::{Arguments, Command, Common, Run};
use crate::failure::{Failure, code};
use crate::output::shell_word;

/// Reads a command line, without the program's name.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Arguments, Failure> {
    let words: Vec<OsString> = [OsString::from("quorlock")].into_iter().chain(arguments).collect();
    let mut arguments =
        Arguments::try_parse_from(&words).map_err(|error| of_clap(error, &words))?;
    if let Command::Run(run) = &mut arguments.command {
        take_names(run)?;
    }
    check_places(&arguments.common, &words)?;
    let token = match &arguments.command {
        Command::Release(release) if release.force && !release.yes => {
            return Err(Failure::usage(
                "release --force takes the lock from a holder whose work goes on: confirm it with --yes",
            ));
        }
        Command::Release(release) if release.force => None,
        Command::Release(release) => Some(("release", &release.token)),
        Command::Extend(extend) => Some(("extend", &extend.token)),
        _ => None,
    };
    if let Some((command, None)) = token {
        return Err(Failure::usage(format!(
            "{command} needs the holder's token: --token \"$QUORLOCK_TOKEN\""
        )));
    }
    if let Command::Run(run) = &arguments.command {
        if arguments.common.json {
            return Err(Failure::usage(
                "run prints no JSON, since its output is the command's: read its exit code",
            ));
        }
        check_run(run)?;
    }
    Ok(arguments)
}

/// Of options before the command and behind it, only the latter count: other nodes, for example, than were named.
fn check_places(common: &Common, words: &[OsString]) -> Result<(), Failure> {
    let own = words.iter().take_while(|word| *word != "--").map(|word| word.to_string_lossy());
    // The name of a file may be no text.
    let own: Vec<String> =
        own.filter_map(|word| Some(word.split('=').next()?.to_owned())).collect();
    let counted = [
        ("--nodes", common.nodes.len()),
        ("--nodes-file", 1),
        ("--user-prefix", 1),
        ("--timeout", 1),
    ];
    let is_lost = |(option, counted): &(&str, usize)| {
        own.iter().filter(|word| *word == option).count() > *counted
    };
    match counted.iter().find(|it| is_lost(it)) {
        Some((option, _)) => Err(Failure::usage(format!(
            "{option} stands before the command and behind it: use one of the places"
        ))),
        None => Ok(()),
    }
}

/// Takes the names from the words behind the first '--', if none stand before it and one begins with '-', as no
/// command does: `run -- -x -- CMD`.
fn take_names(run: &mut Run) -> Result<(), Failure> {
    let is_name = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let end = run.command.iter().position(|word| word == "--");
    if let Some(end) = end.filter(|_| run.names.is_empty() && is_name(&run.command[0])) {
        for word in run.command.drain(..=end).take(end) {
            let word = word.to_str().ok_or_else(|| Failure::usage(NOT_UTF8))?;
            let wrong =
                |reason| Failure::usage(format!("{} is wrong for a name: {reason}", shown(word)));
            run.names.push(name(word).map_err(wrong)?);
        }
    }
    Ok(())
}

fn check_run(run: &Run) -> Result<(), Failure> {
    let Some(name) = run.names.first() else {
        return Err(Failure::usage(
            "run needs the name of a lock, as in: quorlock run NAME -- CMD ARG...",
        ));
    };
    if run.command.is_empty() {
        return Err(Failure::usage(format!(
            "run needs a command behind '--', as in: quorlock run {} -- CMD ARG...",
            shell_word(name)
        )));
    }
    let mut owner = run.owner.iter().enumerate();
    let twice = owner.find(|(index, (name, _))| run.owner[..*index].iter().any(|it| it.0 == *name));
    match twice {
        Some((_, (name, _))) => Err(Failure::usage(format!("--owner says twice what {name:?} is"))),
        None => Ok(()),
    }
}

/// The failure behind an error of the parser. Help and the version are printed, and end well.
fn of_clap(mut error: clap::Error, words: &[OsString]) -> Failure {
    let ends_well = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    if ends_well {
        crate::output::write(|| error.print());
        return Failure::new(code::DONE, "");
    }
    if error.kind() == ErrorKind::InvalidUtf8 {
        return Failure::usage(NOT_UTF8);
    }
    if let (ErrorKind::ValueValidation, Some(ContextValue::String(value))) =
        (error.kind(), error.get(ContextKind::InvalidValue))
    {
        let reason =
            std::error::Error::source(&error).map_or_else(String::new, ToString::to_string);
        let option = match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(option)) => option.as_str(),
            _ => "an argument",
        };
        return Failure::usage(format!("{} is wrong for {option}: {reason}", shown(value)));
    }
    // The tip to write it behind '--' is wrong here: it would be a word of the command.
    error.remove(ContextKind::Suggested);
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    // Its line breaks are the parser's, and not those of a word.
    let broken = words.iter().map(|word| word.to_string_lossy()).filter(|it| it.contains('\n'));
    let text = broken.fold(text.to_owned(), |text, word| text.replace(&*word, &plain_line(&word)));
    Failure::in_lines(code::USAGE, text)
}

/// A value in a message, without most of a long one.
fn shown(value: &str) -> String {
    let start: String = value.chars().take(LONGEST_SHOWN).collect();
    let rest = if start.len() < value.len() { "..." } else { "" };
    format!("{start:?}{rest}")
}

/// A time such as `10s`, `500ms` or `1h30m`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text)
        .map_err(|_| "a time is a number and a unit, such as 500ms, 10s, 5m or 1h30m".to_owned())?;
    if time > LONGEST { Err("a time is 36500 days at most".to_owned()) } else { Ok(time) }
}

/// A time to wait for nodes: without any, none could answer.
pub(super) fn patience(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be longer than that, or no node can answer".to_owned()),
        time => Ok(time),
    }
}

/// The beginning of all keys.
pub(super) fn prefix(text: &str) -> Result<String, String> {
    without_controls("a prefix", text).map(str::to_owned)
}

fn without_controls<'a>(what: &str, text: &'a str) -> Result<&'a str, String> {
    match text.chars().find(|letter| letter.is_control()) {
        Some(odd) => Err(format!("{what} must not hold the control character {odd:?}")),
        None => Ok(text),
    }
}

/// The name of a lock.
pub(super) fn name(text: &str) -> Result<String, String> {
    let text = without_controls("a lock's name", text)?;
    // What npx puts in the place of bytes that it cannot read: other names would be the same lock.
    if text.contains(char::REPLACEMENT_CHARACTER) && is_under_npx() {
        return Err("npx has replaced a byte that is not UTF-8".to_owned());
    }
    Resource::new(text).map(|name| name.as_str().to_owned()).map_err(|error| error.to_string())
}

/// A word about the holder of a lock: `NAME=VALUE`, or a value alone, which names the service.
pub(super) fn word(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or(("service", text));
    if name.is_empty() || value.is_empty() {
        return Err("it must be a name and a value, such as service=billing".to_owned());
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// A positive number of seconds, up to an hour.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| *number > 0.0 && *number <= 3600.0);
    number.ok_or_else(|| "it must be a number of seconds above 0, and 3600 at most".to_owned())
}

/// Whether npm has started the command, as `npx quorlock ...`.
pub(crate) fn is_under_npx() -> bool {
    env::var_os("npm_lifecycle_event").is_some_and(|it| it == "npx")
}

const NOT_UTF8: &str = "an argument is not UTF-8: names and options must be";
/// How many letters of a wrong value a message repeats.
const LONGEST_SHOWN: usize = 200;
/// What the clocks of all systems can add to now.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);
