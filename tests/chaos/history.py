"""The events of a run as plain data. Judges nothing: that is checker.py's part.

All times are seconds of CLOCK_BOOTTIME, which every process of one machine shares and which the
library's own lease clock reads.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

READ: Literal["read"] = "read"
WRITE: Literal["write"] = "write"


def now() -> float:
    """The clock of all processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class Claim:
    """A lease as its holder saw it."""

    lease: str
    worker: str
    names: tuple[str, ...]
    token: int
    #: The winning round did not begin earlier: validity counts from its begin, so it is the first
    #: promise less the ttl, or the call itself.
    began: float
    #: When the holder was told that it holds it.
    at: float
    #: The last moment that it was ever promised.
    until: float
    #: When the holder itself began to give it back.
    ended: float | None = None
    #: By how many seconds, at the most, the holder read an earlier end than it had read before, of
    #: a lease that it still held. A loss that nodes prove is none: nothing of it is held any more.
    shortened: float = 0.0

    @property
    def over(self) -> float:
        """When the holder may no longer rely on it.

        A loss that is told early does not shorten it: what was promised may have been used.
        """
        return self.until if self.ended is None else min(self.until, self.ended)


@dataclass(frozen=True)
class Access:
    """One use of a protected counter, in the order in which the counter served it."""

    name: str
    lease: str
    token: int
    kind: Literal["read", "write"]
    #: Whether the counter's own look at the token let it pass.
    accepted: bool
    #: What was read or is to be written.
    value: int


@dataclass(frozen=True)
class Harm:
    """A time in which some nodes cannot take part."""

    kind: str
    nodes: frozenset[int]
    begin: float
    end: float


@dataclass
class History:
    """A whole run."""

    begun: float
    ended: float
    nodes: int
    claims: list[Claim] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    harms: list[Harm] = field(default_factory=list)
    #: How often what ended otherwise than well, by the name of the error.
    endings: Counter[str] = field(default_factory=Counter)
    #: What must never be: crashes, errors that nobody knows, keys left behind.
    problems: list[str] = field(default_factory=list)


def read_logs(logs: Iterable[Path], history: History) -> None:
    """Adds what the workers wrote, also those that were killed in the middle of a line."""
    for path in logs:
        claims: dict[str, dict[str, Any]] = {}
        *lines, _torn = path.read_text().split("\n")
        for line in lines:
            _read(json.loads(line), claims, history)
        history.claims += [Claim(worker=path.stem, **facts) for facts in claims.values()]


def _read(record: dict[str, Any], claims: dict[str, dict[str, Any]], history: History) -> None:
    match record["what"]:
        case "held":
            claims[record["lease"]] = {
                "lease": record["lease"],
                "names": tuple(record["names"]),
                "token": record["token"],
                "began": max(record["asked"], record["until"] - record["ttl"]),
                "at": record["at"],
                "until": record["until"],
                "shortened": 0.0,
            }
        case "still":
            claim = claims[record["lease"]]
            claim["shortened"] = max(claim["shortened"], claim["until"] - record["latest"])
            claim["until"] = max(claim["until"], record["until"])
        case "ends":
            if record["lease"] in claims:  # it was not over already when it was told
                claims[record["lease"]]["ended"] = record["at"]
        case "error":
            history.endings[record["name"]] += 1
        case "problem":
            history.problems.append(record["text"])
        case unknown:
            raise ValueError(f"a worker wrote {unknown!r}")
