//! The settings of a node's connection: how long to connect, to wait for an answer, and to wait
//! between tries. Owns their defaults.

use std::time::Duration;

/// The times that a node's connection uses.
///
/// ```
/// use quorlock::NodeSettings;
/// use std::time::Duration;
///
/// let far_away = NodeSettings { connect_timeout: Duration::from_secs(3), ..NodeSettings::default() };
/// assert_eq!(far_away.hang_after, Duration::from_millis(250));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSettings {
    /// How long connecting may take, with TLS and log-in: 1 s by default. Longer for nodes far away;
    /// shorter to learn sooner that a node is gone.
    pub connect_timeout: Duration,
    /// A node that leaves a command unanswered for this time counts as hung and gets no new grants
    /// until it answers: 250 ms by default. Longer for servers that run slow scripts; shorter to spare
    /// callers the wait.
    pub hang_after: Duration,
    /// The first delay before a lost node is tried again: 50 ms by default. It doubles each time.
    pub backoff_min: Duration,
    /// The longest such delay: 2 s by default.
    pub backoff_max: Duration,
}

impl Default for NodeSettings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(1),
            hang_after: Duration::from_millis(250),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
        }
    }
}
