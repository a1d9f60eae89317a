//! The settings of the guards: what happens to nodes that may have forgotten locks. Owns their
//! names.

use std::fmt;
use std::str::FromStr;

use super::Policy;
use crate::error::ConfigError;

/// What happens to nodes that may have forgotten locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RestartGuard {
    /// Their grants do not count until every lock that they may have forgotten has ended; a cluster
    /// in which no node has a history is used at once. With one node the guard is off: a lock
    /// service that stops after every restart of its only node would help few users.
    #[default]
    Auto,
    /// The same, also for a cluster in which no node has a history, and for a single node.
    Strict,
    /// Nothing happens: their grants count.
    Off,
}

impl RestartGuard {
    /// Every choice, in a fixed order.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Strict, Self::Off];

    /// The word for it: `auto`, `strict` or `off`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Strict => "strict",
            Self::Off => "off",
        }
    }
}

impl Policy {
    /// Checks that a lock's settings equal its manager's where only the manager may set them: all
    /// of its locks share one view of the nodes.
    ///
    /// # Errors
    /// [`ConfigError`] if one of them differs.
    pub fn check_guards(&self, manager: &Self) -> Result<(), ConfigError> {
        let differing = [
            ("restart_guard", self.restart_guard != manager.restart_guard),
            ("clock_guard", self.clock_guard != manager.clock_guard),
            ("max_ttl", self.max_ttl != manager.max_ttl),
        ];
        match differing.into_iter().find(|(_, differs)| *differs) {
            None => Ok(()),
            Some((name, _)) => Err(ConfigError::new(format!(
                "{name} is one for all locks of a manager: set it where the manager is made"
            ))),
        }
    }
}

impl fmt::Display for RestartGuard {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for RestartGuard {
    type Err = ConfigError;

    fn from_str(word: &str) -> Result<Self, ConfigError> {
        Self::ALL.into_iter().find(|choice| choice.name() == word).ok_or_else(|| {
            ConfigError::new(format!(
                "the restart guard must be \"auto\", \"strict\" or \"off\", not {word:?}"
            ))
        })
    }
}
