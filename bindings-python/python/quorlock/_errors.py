"""The exception classes and their fields. The core decides when they are raised.

All derive from `LockError`, carry the same fields, and survive pickling and copying.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

from ._hints import evaluated
from ._native import ERROR_CODES


@evaluated
class Vote(NamedTuple):
    """What one node did in one round."""

    address: str
    """Where the node is, without a password."""
    outcome: str
    """`granted`, `refused` (held by another), `failed` (it broke) or `missing` (no answer yet)."""
    latency: float
    """Seconds from the start of the round to the answer; 0.0 while it is missing."""
    detail: Optional[str]
    """What broke, or when the other's lock ends; `None` where there is nothing to say."""


class LockError(RuntimeError):
    """The base of all errors of this package.

    >>> from quorlock import LockError, QuorumUnreachable
    >>> issubclass(QuorumUnreachable, LockError) and issubclass(QuorumUnreachable, ConnectionError)
    True
    """

    code: str = "LOCK_ERROR"
    """A stable name of the kind of error, the same in every language: for example `LEASE_LOST`."""

    message: str
    resources: tuple[str, ...]
    """The names that the operation was about; empty for an error of configuration."""
    elapsed: float
    """How many seconds the operation took."""
    attempts: int
    """How many rounds were begun."""
    votes: list[Vote]
    """What every node did in the last round."""

    def __init__(
        self,
        message: str = "",
        *,
        resources: tuple[str, ...] = (),
        elapsed: float = 0.0,
        attempts: int = 0,
        votes: Optional[list[Vote]] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.resources = tuple(resources)
        self.elapsed = elapsed
        self.attempts = attempts
        self.votes = list(votes or ())

    @property
    def resource(self) -> Optional[str]:
        """The name that the operation was about; the first of several."""
        return self.resources[0] if self.resources else None

    @property
    def faults(self) -> dict[str, str]:
        """The faults of nodes that failed, by the node's address."""
        return {vote.address: vote.detail or "" for vote in self.votes if vote.outcome == "failed"}


class LockNotAcquired(LockError):
    """Another holds the lock, and the caller did not want to wait (or to try again)."""

    code = ERROR_CODES["LockNotAcquired"]


class LockTimeout(LockNotAcquired, TimeoutError):
    """Another held the lock until the caller's `timeout` ran out. Also a `TimeoutError`."""

    code = ERROR_CODES["LockTimeout"]


class QuorumUnreachable(LockError, ConnectionError):
    """Too many nodes failed to decide; `faults` says what is wrong with each.

    Also a `ConnectionError`.
    """

    code = ERROR_CODES["QuorumUnreachable"]


class LeaseLost(LockError):
    """The lease is over, or taken by another: work done under it may overlap another holder's.

    `votes` has the nodes' answers to the release; if no node was asked, because the loss was known
    before, what the nodes did in the last round.
    """

    code = ERROR_CODES["LeaseLost"]


class LockNotHeld(LockError):
    """There is no lease to release, extend or check."""

    code = ERROR_CODES["LockNotHeld"]


class ConfigError(LockError, ValueError):
    """A setting or argument is wrong. Also a `ValueError`."""

    code = ERROR_CODES["ConfigError"]


class ConfigTypeError(ConfigError, TypeError):
    """A setting or argument has a wrong type. Also a `TypeError`."""


class LockCancelled(LockError):
    """The operation was cancelled before it had a result."""

    code = ERROR_CODES["LockCancelled"]


class LocksClosed(LockError):
    """The `Redlock` was closed."""

    code = ERROR_CODES["LocksClosed"]
