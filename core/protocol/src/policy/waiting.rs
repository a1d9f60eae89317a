//! The settings of waiting: how a caller learns that a lock is free, and in which order callers get it. Owns their
//! names.

use std::fmt;
use std::str::FromStr;

use super::Policy;
use crate::error::ConfigError;
use crate::identity::Resources;

/// How a caller that waits learns that the lock is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum WaitMode {
    /// It takes a place in a queue on every node, and is told by them. Nodes that cannot tell are polled.
    #[default]
    Push,
    /// It tries again after each delay, and takes no place.
    Poll,
}

impl WaitMode {
    /// Every choice, in a fixed order.
    pub const ALL: [Self; 2] = [Self::Push, Self::Poll];

    /// The word for it: `push` or `poll`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Poll => "poll",
        }
    }
}

impl Policy {
    /// How a caller that waits learns that the lock is free.
    pub const fn wait(&self) -> WaitMode {
        self.wait
    }

    /// Whether callers get the lock in the order in which they came, over all processes.
    pub const fn fair(&self) -> bool {
        self.fair
    }

    /// Checks that the settings fit what is to be locked.
    ///
    /// # Errors
    /// [`ConfigError`] for several resources in fair mode: each queue would have to wait for the others.
    pub fn check_resources(&self, resources: &Resources) -> Result<(), ConfigError> {
        match resources.as_slice().len() {
            2.. if self.fair => Err(ConfigError::new(format!(
                "fair is for one resource: {resources} would each have a queue of its own; lock them without it"
            ))),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for WaitMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for WaitMode {
    type Err = ConfigError;

    fn from_str(word: &str) -> Result<Self, ConfigError> {
        Self::ALL.into_iter().find(|choice| choice.name() == word).ok_or_else(|| {
            ConfigError::new(format!("wait must be \"push\" or \"poll\", not {word:?}"))
        })
    }
}
