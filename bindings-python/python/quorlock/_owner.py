"""Who holds a lock, in words. Owns the reading of the option `owner`; the core writes and asks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Optional

from ._errors import ConfigError, ConfigTypeError
from ._hints import evaluated


@evaluated
class Holder(NamedTuple):
    """Who holds a lock, as far as it has told. Its `str` is a phrase for people."""

    owner: dict[str, str]
    """What it says of itself: its own words, `host` and `pid`. Empty if it says nothing."""
    since: Optional[float]
    """When it acquired the lock, in seconds since 1970, by its clock; `None` if it says nothing."""
    text: str
    """For example `billing on web-3, pid 812, for 4 s`."""

    def __str__(self) -> str:
        return self.text


def owner_of(given: Any) -> Optional[dict[str, str]]:
    """The words of the option `owner`."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise ConfigTypeError(f"owner must be a dict of words, not {type(given).__name__}")
    return {_word(name): _word(value) for name, value in given.items()}


def _word(given: Any) -> str:
    if not isinstance(given, (str, int, float)):
        raise ConfigTypeError(f"a word of the owner must be a str, not {type(given).__name__}")
    word = str(given)
    if any("\ud800" <= letter <= "\udfff" for letter in word):
        raise ConfigError(f"a word of the owner is no text that can be encoded: {word!r}")
    return word


def holder_of(told: Optional[tuple[str, Optional[float], dict[str, str]]]) -> Optional[Holder]:
    """The holder, from the core's values."""
    return None if told is None else Holder(owner=told[2], since=told[1], text=told[0])
