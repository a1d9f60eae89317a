//! Writes what people and programs read: JSON here, tables in `table`, messages in `messages`. Owns who reads what.

pub(crate) mod messages;
mod table;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::OnceLock;

use anstream::ColorChoice;
use anstyle::{AnsiColor, Style};
use quorlock::embed::{alters_line, plain_line};
use serde_json::Value;

pub(crate) use self::table::{Cell, Table, Tone};

/// How a command prints.
#[derive(Clone, Copy)]
pub(crate) struct Output {
    pub(crate) is_json: bool,
    pub(crate) is_quiet: bool,
}

impl Output {
    pub(crate) fn new(is_json: bool, is_quiet: bool, has_colours: bool) -> Self {
        if !has_colours {
            ColorChoice::Never.write_global();
        }
        Self { is_json, is_quiet }
    }

    /// Prints a line for people, if they want any and no program reads.
    pub(crate) fn line(self, text: &str) {
        if !self.is_quiet && !self.is_json {
            print(text);
        }
    }

    /// Prints what was asked for and no exit code tells, for people: also with --quiet.
    pub(crate) fn table(self, text: &str) {
        if !self.is_json {
            print(text);
        }
    }

    /// Prints words for people in which a name from the command line or from others may stand.
    pub(crate) fn words(self, text: &str) {
        self.line(&plain_line(text));
    }

    /// Prints `value` if a program reads.
    pub(crate) fn json(self, value: &Value) {
        if self.is_json {
            print(&plain_json(value));
        }
    }
}

/// JSON as people may see it on a terminal, too: letters that would change how the line is shown are escaped,
/// which means the same to programs.
fn plain_json(value: &Value) -> String {
    let mut text = String::new();
    for letter in value.to_string().chars() {
        if alters_line(letter) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(letter);
        }
    }
    text
}

/// Lines for people, without letters that would change how one of them is shown.
pub(crate) fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain_line).collect::<Vec<_>>().join("\n")
}

/// A name as a word of a command that people copy to a shell, which must read it as it is. Letters that would change how
/// the line is shown are written as bash and zsh read them.
pub(crate) fn shell_word(name: &str) -> String {
    let is_plain = |letter: char| letter.is_alphanumeric() || "_-@%+=:,./".contains(letter);
    let word = if name.contains(alters_line) {
        let escaped = |letter: char| match letter {
            '\'' | '\\' => format!("\\{letter}"),
            letter if alters_line(letter) => format!("\\U{:08x}", u32::from(letter)),
            letter => letter.to_string(),
        };
        format!("$'{}'", name.chars().map(escaped).collect::<String>())
    } else if name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', r"'\''"))
    };
    // Else it would be an option.
    if name.starts_with('-') { format!("-- {word}") } else { word }
}

/// A number for programs, to the millionth: no clock here tells more.
pub(crate) fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

/// Writes a message about something that went wrong to standard error, in one line.
pub(crate) fn complain(message: &str) {
    complain_in_lines(&plain_line(message));
}

/// The same for one of several lines, such as those of the parser.
pub(crate) fn complain_in_lines(message: &str) {
    let mark = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    messages::write(format!("{mark}quorlock:{mark:#} {}", plain_lines(message)));
}

/// Writes a message that tells what happens to standard error, in one line.
pub(crate) fn mention(message: &str) {
    messages::write(format!("quorlock: {}", plain_line(message)));
}

/// Writes a line to standard output; what fails, [`unwritten`] tells.
pub(crate) fn print(text: &str) {
    write(|| writeln!(anstream::stdout(), "{text}"));
}

/// Writes to standard output, unless that has failed before.
pub(crate) fn write(write: impl FnOnce() -> io::Result<()>) {
    if UNWRITTEN.get().is_none()
        && let Err(error) = write().and_then(|()| io::stdout().flush())
    {
        let _ = UNWRITTEN.set(error);
    }
}

/// Why standard output has taken no more, if so.
pub(crate) fn unwritten() -> Option<&'static io::Error> {
    UNWRITTEN.get()
}

static UNWRITTEN: OnceLock<io::Error> = OnceLock::new();

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn a_shell_reads_a_name_as_it_is() {
        for (name, word) in [
            ("invoice:42", "invoice:42"),
            ("caf\u{e9}", "caf\u{e9}"),
            ("two words", "'two words'"),
            ("a;b$c", "'a;b$c'"),
            ("it's", r"'it'\''s'"),
            ("~a", "'~a'"),
            ("-x", "-- -x"),
            ("\u{3164}it's\\", r"$'\U00003164it\'s\\'"),
        ] {
            assert_eq!(shell_word(name), word);
        }
    }
}
