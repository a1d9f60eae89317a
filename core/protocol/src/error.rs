//! The list of errors that users meet, the same in every language. Owns the kinds and their codes.

use std::fmt;

/// The kinds of error that users meet, in every language under the same code.
///
/// Deliberately exhaustive: each binding matches it without a wildcard, so that a new kind does not
/// compile until every language has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ErrorKind {
    /// Another holds the resource, and the caller did not want to wait (or to try again).
    NotAcquired,
    /// Another held the resource until the caller's timeout ended.
    AcquireTimedOut,
    /// Too many nodes failed to tell whether the lock is free.
    QuorumUnreachable,
    /// The lease has ended or was taken by another; the work under it may have overlapped another
    /// holder's.
    LeaseLost,
    /// There is no lease to release, extend or check.
    LockNotHeld,
    /// A setting or argument is wrong.
    Config,
    /// The caller cancelled the operation.
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

/// The error for a wrong setting or argument; its sentence says what is wrong with the value.
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
    /// An error that shows `message`.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}
