"""Who holds a lock, in words. Owns the reading of the option `owner`; the core writes and asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ._errors import ConfigTypeError


class Holder(NamedTuple):
    """Who holds a lock, as far as it has told. Its `str` is a phrase for people."""

    owner: dict[str, str]
    """What it says of itself: its own words, `host` and `pid`. Empty if it says nothing."""
    since: float | None
    """When it acquired the lock, in seconds since 1970, by its clock; `None` if it says nothing."""
    text: str
    """For example `billing on web-3, pid 812, for 4 s`."""

    def __str__(self) -> str:
        return self.text


def owner_of(given: Any) -> dict[str, str] | None:
    """The words of the option `owner`."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ConfigTypeError(f"owner must be a dict of words, not {type(given).__name__}")
    return {str(name): str(value) for name, value in given.items()}


def holder_of(told: tuple[str, float | None, dict[str, str]] | None) -> Holder | None:
    """The holder, from the core's values."""
    return None if told is None else Holder(owner=told[2], since=told[1], text=told[0])
