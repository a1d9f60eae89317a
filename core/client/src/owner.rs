//! Who holds a lock, in words: the record that a holder may write beside the lock. Owns its value; it
//! proves nothing, only keys on a quorum do.

use std::collections::BTreeMap;
use std::fmt;
use std::process;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quorlock_protocol::{ConfigError, HolderId, alters_line};

/// What a manager says of itself beside the locks that it holds: the user's words, the host and the
/// process id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// The lines of the record, but the first two.
    lines: Arc<str>,
}

impl Owner {
    /// The most that it may take, in bytes.
    const MOST: usize = 4096;

    /// # Errors
    /// [`ConfigError`] if a name is empty or has a `=`, if a name or value has a control character, such
    /// as a line break, or if it is too long.
    pub(crate) fn new<K: AsRef<str>, V: AsRef<str>>(
        words: impl IntoIterator<Item = (K, V)>,
    ) -> Result<Self, ConfigError> {
        let mut all = BTreeMap::from([("pid".to_owned(), process::id().to_string())]);
        all.extend(host().map(|host| ("host".to_owned(), host)));
        for (name, value) in words {
            let (name, value) = (name.as_ref(), value.as_ref());
            let is_odd = |text: &str| text.contains(char::is_control);
            if name.is_empty() || name.contains('=') || is_odd(name) || is_odd(value) {
                return Err(ConfigError::new(format!(
                    "owner must have names without \"=\", and names and values without control characters: {name:?}"
                )));
            }
            all.insert(name.to_owned(), value.to_owned());
        }
        let lines: Vec<String> =
            all.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let lines: Arc<str> = lines.join("\n").into();
        if lines.len() > Self::MOST {
            return Err(ConfigError::new(format!(
                "owner may take {} bytes at most, with the host and the process id, not {}",
                Self::MOST,
                lines.len()
            )));
        }
        Ok(Self { lines })
    }

    /// The value of the key, for a lease of `holder` that began at `since`.
    pub(crate) fn record(&self, holder: &HolderId, since: SystemTime) -> String {
        let since = since.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        format!("{}\n{since}\n{}", holder.as_str(), self.lines)
    }
}

/// The holder of a lock, as far as it has told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// What it says of itself, by name: its own words, `host` and `pid`. Empty if it says nothing.
    pub owner: BTreeMap<String, String>,
    /// When it acquired the lock, by the clock of its machine; `None` if it says nothing.
    pub since: Option<SystemTime>,
}

impl fmt::Display for Holder {
    /// `billing on web-3, pid 812, for 4 s`, with U+FFFD for letters that would change how a terminal or a log shows
    /// the line.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |name: &str| self.owner.get(name).map(|value| shown(value));
        let other =
            || self.owner.iter().find(|(name, _)| !["host", "pid"].contains(&name.as_str()));
        let who = word("service").or_else(|| other().map(|(_, value)| shown(value)));
        to.write_str(who.as_deref().unwrap_or("another"))?;
        word("host").map_or(Ok(()), |host| write!(to, " on {host}"))?;
        word("pid").map_or(Ok(()), |pid| write!(to, ", pid {pid}"))?;
        let held = self.since.map(|since| since.elapsed().unwrap_or_default());
        held.map_or(Ok(()), |held| write!(to, ", for {:.0} s", held.as_secs_f64()))
    }
}

impl Holder {
    /// The key of the record beside the key of a lock, which begins with the node's prefix.
    pub fn record_key(lock_key: &str) -> String {
        format!("quorlock:owner:{{{lock_key}}}")
    }

    /// Reads the value of the record's key, if it is of the holder with this id: the lock key's
    /// value. The words are exactly as they were written, so that they may hold any letter.
    pub fn parse(text: &str, holder: &str) -> Option<Self> {
        let mut lines = text.split('\n');
        if lines.next()? != holder {
            return None;
        }
        let since = Duration::from_millis(lines.next()?.parse().ok()?);
        let word =
            |line: &str| line.split_once('=').map(|(name, value)| (name.into(), value.into()));
        Some(Self { owner: lines.filter_map(word).collect(), since: Some(UNIX_EPOCH + since) })
    }
}

/// Without what would change how a terminal or a log shows it.
fn shown(text: &str) -> String {
    text.replace(alters_line, "\u{fffd}")
}

fn host() -> Option<String> {
    #[cfg(unix)]
    let name = rustix::system::uname().nodename().to_str().ok().map(str::to_owned);
    #[cfg(not(unix))]
    let name = std::env::var("COMPUTERNAME").ok();
    name.filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let owner =
            Owner::new([("service", "billing"), ("pid", "812"), ("host", "web-3")]).unwrap();
        let (me, since) = (HolderId::adopt("me").unwrap(), UNIX_EPOCH + Duration::from_millis(5));
        let text = owner.record(&me, since);
        let holder = Holder::parse(&text, "me").expect("it is of this holder");
        assert_eq!(holder.since, Some(since));
        assert!(holder.to_string().starts_with("billing on web-3, pid 812, for "), "{holder}");
        assert_eq!(Holder::parse(&text, "another"), None, "of an earlier holder");
        let odd =
            Holder::parse("me\n5\nservice=\u{1b}[31mred\u{202e}", "me").expect("another's record");
        assert!(odd.to_string().starts_with("\u{fffd}[31mred\u{fffd}"), "{odd}");
        assert_eq!(odd.owner["service"], "\u{1b}[31mred\u{202e}");
    }

    #[test]
    fn what_is_odd_or_too_large_is_refused() {
        for (name, value) in [("", "x"), ("a=b", "x"), ("a", "x\ny"), ("a\n", "x"), ("a", "\u{1b}")]
        {
            assert!(Owner::new([(name, value)]).is_err(), "{name:?} {value:?}");
        }
        let error = Owner::new([("a", "x".repeat(4096))]).unwrap_err().to_string();
        assert!(error.starts_with("owner may take 4096 bytes at most"), "{error}");
    }
}
