//! A lease in one short text: `resource@token`. Owns how it is written and read; `record` keeps
//! beside the locks what it takes to verify one, and `verify` asks for it.

mod record;
mod verify;

pub use self::record::Record;

use std::fmt::{self, Write as _};
use std::str::FromStr;

use quorlock_protocol::{ConfigError, Resources};

/// The names of the locked resources and the fencing token of one lease, as one text that a holder
/// can hand to others: `invoice:42@1764000000000000`.
///
/// Several names are joined by `,`. In a name, `%`, `,`, `@` and bytes outside of printable ASCII
/// are written as `%XX`, with two hexadecimal digits. A program that has the text can ask whether that
/// lease is still the one that is held: [`Redlock::verify`](crate::Redlock::verify).
///
/// ```
/// use quorlock::Sequencer;
///
/// let sequencer: Sequencer = "stock%40berlin,stock%40paris@17".parse()?;
/// assert_eq!(sequencer.resources(), ["stock@berlin", "stock@paris"]);
/// assert_eq!(sequencer.token(), 17);
/// assert_eq!(sequencer.to_string(), "stock%40berlin,stock%40paris@17");
/// # Ok::<(), quorlock::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sequencer {
    resources: Vec<String>,
    token: u64,
}

impl Sequencer {
    /// The sequencer of a lease on `resources` with the fencing token `token`.
    ///
    /// # Errors
    /// [`ConfigError`] if a name is not valid, named twice, or there is none.
    pub fn new<S: AsRef<str>>(
        resources: impl IntoIterator<Item = S>,
        token: u64,
    ) -> Result<Self, ConfigError> {
        let resources = Resources::new(resources)?;
        Ok(Self { resources: resources.names().map(str::to_owned).collect(), token })
    }

    /// The names of the resources.
    pub fn resources(&self) -> &[String] {
        &self.resources
    }

    /// The fencing token.
    pub const fn token(&self) -> u64 {
        self.token
    }
}

impl fmt::Display for Sequencer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.resources.iter().enumerate() {
            if index > 0 {
                formatter.write_char(',')?;
            }
            for byte in name.bytes() {
                if byte.is_ascii_graphic() && !b"%,@".contains(&byte) {
                    formatter.write_char(char::from(byte))?;
                } else {
                    write!(formatter, "%{byte:02X}")?;
                }
            }
        }
        write!(formatter, "@{}", self.token)
    }
}

impl FromStr for Sequencer {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let wrong = |problem: &str| {
            let begin: String = text.chars().take(LONGEST_QUOTE).collect();
            let more = if begin.len() == text.len() { "" } else { "..." };
            ConfigError::new(format!(
                "{begin:?}{more} is no sequencer, which looks like invoice:42@1764000000000000: {problem}"
            ))
        };
        let (names, token) = text.rsplit_once('@').ok_or_else(|| wrong("it has no '@'"))?;
        let is_number = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit());
        let token = token.parse().ok().filter(|_| is_number);
        let token = token.ok_or_else(|| wrong("behind the '@' there must be a fencing token"))?;
        if names.contains('@') {
            return Err(wrong("an '@' in a name is written %40"));
        }
        let names: Vec<String> =
            names.split(',').map(unescape).collect::<Option<_>>().ok_or_else(|| {
                wrong("a name has a '%' without two hexadecimal digits, or is not UTF-8")
            })?;
        Self::new(names, token).map_err(|error| wrong(&error.to_string()))
    }
}

/// The most of a wrong text that an error repeats, in characters.
const LONGEST_QUOTE: usize = 100;

fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        if byte != b'%' {
            bytes.push(byte);
            rest = tail;
            continue;
        }
        let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = &tail[2..];
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_sequencer_is_told_with_the_reason() {
        for (text, reason) in [
            ("", "no '@'"),
            ("invoice:42", "no '@'"),
            ("invoice:42@", "fencing token"),
            ("invoice:42@+7", "fencing token"),
            ("invoice:42@99999999999999999999", "fencing token"),
            ("@7", "empty"),
            ("a,@7", "empty"),
            ("a,a@7", "twice"),
            ("a@b@7", "%40"),
            ("a%4@7", "hexadecimal"),
            ("a%+1@7", "hexadecimal"),
            ("a%FF@7", "UTF-8"),
        ] {
            let error = text.parse::<Sequencer>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn a_long_text_is_not_repeated_whole() {
        let error = "é".repeat(10_000).parse::<Sequencer>().unwrap_err().to_string();
        assert!(error.len() < 400 && error.contains("é\"... is no sequencer"), "{error}");
    }

    proptest! {
        #[test]
        fn it_is_read_as_it_was_written(
            names in prop::collection::hash_set("(?s).{1,20}", 1..4),
            token: u64,
        ) {
            let sequencer = Sequencer::new(names, token).unwrap();
            let text = sequencer.to_string();
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{}", text);
            prop_assert_eq!(text.parse::<Sequencer>().unwrap(), sequencer);
        }
    }
}
