//! What can go wrong, as one list that every language shares. Owns the kinds and their codes.

use std::fmt;

/// The kinds of error that users meet, in every language under the same code.
///
/// Deliberately exhaustive: each binding matches it without a wildcard, so that a new kind does not
/// compile until every language has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// Another holds the resource, and the caller did not want to wait (or to try again).
    NotAcquired,
    /// Another held the resource until the caller's timeout ran out.
    AcquireTimedOut,
    /// Too many nodes broke for any verdict.
    QuorumUnreachable,
    /// The lease is over or taken by another; what ran under it may have overlapped another holder.
    LeaseLost,
    /// There is no lease to release, extend or check.
    LockNotHeld,
    /// A setting or argument is wrong.
    Config,
    /// The caller gave the operation up.
    Cancelled,
    /// The manager was closed.
    Closed,
}

impl ErrorKind {
    /// Every kind, in a fixed order.
    pub const ALL: [Self; 8] = [
        Self::NotAcquired,
        Self::AcquireTimedOut,
        Self::QuorumUnreachable,
        Self::LeaseLost,
        Self::LockNotHeld,
        Self::Config,
        Self::Cancelled,
        Self::Closed,
    ];

    /// A stable name for programs, for example `LEASE_LOST`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotAcquired => "LOCK_NOT_ACQUIRED",
            Self::AcquireTimedOut => "ACQUIRE_TIMED_OUT",
            Self::QuorumUnreachable => "QUORUM_UNREACHABLE",
            Self::LeaseLost => "LEASE_LOST",
            Self::LockNotHeld => "LOCK_NOT_HELD",
            Self::Config => "CONFIG",
            Self::Cancelled => "CANCELLED",
            Self::Closed => "CLOSED",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.code())
    }
}

/// A setting or argument that is wrong, in a sentence that says what is wrong with it.
///
/// ```
/// let error = quorlock_protocol::Ttl::from_millis(0).unwrap_err();
/// assert_eq!(error.to_string(), "ttl must be at least 1 ms and below 2^53 ms, not 0 ms");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ConfigError {
    message: String,
}

impl ConfigError {
    /// An error with this sentence.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
