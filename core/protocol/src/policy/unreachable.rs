//! What a caller does that can reach no quorum. Owns the choice and its words.

use std::fmt;
use std::str::FromStr;

use crate::error::ConfigError;

/// What becomes of an acquisition that can reach no quorum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnUnreachable {
    /// It fails, so that nobody works without the lock.
    #[default]
    Raise,
    /// Its caller goes on **without the lock**, with a lease that is marked as degraded: only for
    /// locks that save work and protect nothing, such as one that keeps a cache from being filled
    /// twice.
    Proceed,
}

impl OnUnreachable {
    /// Every choice, in a fixed order.
    pub const ALL: [Self; 2] = [Self::Raise, Self::Proceed];

    /// The word for it: `raise` or `proceed`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Raise => "raise",
            Self::Proceed => "proceed",
        }
    }
}

impl fmt::Display for OnUnreachable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for OnUnreachable {
    type Err = ConfigError;

    fn from_str(word: &str) -> Result<Self, ConfigError> {
        Self::ALL.into_iter().find(|choice| choice.name() == word).ok_or_else(|| {
            ConfigError::new(format!(
                "on_unreachable must be \"raise\" or \"proceed\", not {word:?}"
            ))
        })
    }
}
