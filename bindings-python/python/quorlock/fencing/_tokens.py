"""What a fence is given, and what it says of a token that is not the newest."""

from __future__ import annotations

from quorlock._errors import ConfigError, ConfigTypeError, LockError


class StaleToken(LockError):
    """A later holder has written: this write was refused, and nothing was changed.

    The caller's lease is over. Stop, and undo or check what was done since; do not try again.

    >>> from quorlock.fencing import StaleToken
    >>> error = StaleToken.of("invoice:42", token=17, highest=18)
    >>> error.resource, error.token, error.highest
    ('invoice:42', 17, 18)
    """

    code = "STALE_TOKEN"

    token: int
    """The fencing token of the write."""
    highest: int
    """The highest fencing token that was seen."""

    def __init__(
        self, message: str = "", *, resource: str = "", token: int = 0, highest: int = 0
    ) -> None:
        super().__init__(message, resources=(resource,) if resource else ())
        self.token = token
        self.highest = highest

    @classmethod
    def of(cls, resource: str, *, token: int, highest: int) -> StaleToken:
        """The error of a write to `resource`."""
        message = (
            f"the write to {resource!r} with the fencing token {token} was refused: a later holder "
            f"has written with {highest}; this lease is over, so stop"
        )
        return cls(message, resource=resource, token=token, highest=highest)


def checked_token(token: object, limit: int = 2**64) -> int:
    """The token, if it can be one."""
    if token is None:
        raise ConfigTypeError(
            "there is no fencing token: the lock has fencing=False, or the lease was taken over "
            "and not yet confirmed by check()"
        )
    if isinstance(token, bool) or not isinstance(token, int):
        raise ConfigTypeError(
            f"a fencing token must be an int, as of lease.fencing_token, not {type(token).__name__}"
        )
    if not 0 <= token < limit:
        raise ConfigError(f"a fencing token must be from 0 to {limit - 1}, not {token}")
    return token


def checked_name(what: str, name: object) -> str:
    """The name, if it is a text that names something."""
    if not isinstance(name, str):
        raise ConfigTypeError(f"{what} must be a str, not {type(name).__name__}")
    if not name:
        raise ConfigError(f"{what} is empty")
    return name
