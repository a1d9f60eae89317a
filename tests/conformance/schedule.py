"""Parses golden schedules. Owns the defaults; `player.py` owns what the lines mean.

The format is told in README.md here; `tests/model` reads the same files for the machines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

CASES = Path(__file__).parent / "cases"


@dataclass(frozen=True)
class Settings:
    """The head of a case; times in the milliseconds of the file."""

    nodes: int = 3
    ttl: int = 1000
    node_timeout: int = 50
    drift_factor: float = 0.01
    retry_limit: int | None = 0
    retry_delay: int = 100
    timeout: int | None = None
    patience: int = 400
    fencing: bool = True
    max_hold: int = 86_400_000
    lock_delay: int = 0
    min_hold: int = 0
    max_ttl: int | None = None
    wall: int = 1000
    guards: bool = False

    def drift(self, ttl: int) -> float:
        """What is taken off a ttl for clocks that run apart."""
        return ttl * self.drift_factor + 2


@dataclass(frozen=True)
class Line:
    """A happening (`at` is its time) or an expectation (`at` is None)."""

    number: int
    text: str
    client: str
    at: int | None
    words: tuple[str, ...]

    @property
    def is_by_clock(self) -> bool:
        """Whether nothing but time makes it happen."""
        return self.words in {("wait",), ("asleep",)}


@dataclass
class Case:
    """One file."""

    name: str
    settings: Settings = field(default_factory=Settings)
    needs: set[str] = field(default_factory=set)
    lines: list[Line] = field(default_factory=list)

    def happenings(self, client: str) -> Iterator[Line]:
        """What happens to one client, in order."""
        return (line for line in self.lines if line.client == client and line.at is not None)

    def does(self, client: str, word: str) -> bool:
        """Whether such a thing ever happens to a client."""
        return any(word in line.words[:1] for line in self.happenings(client))

    @property
    def clients(self) -> list[str]:
        """The names of the clients, in the order in which they come."""
        return list(dict.fromkeys(line.client for line in self.lines))


class ScheduleError(ValueError):
    """A line that is no line of a schedule."""


def read(path: Path) -> Case:
    """Parses one file."""
    case, client, now = Case(path.stem), "A", 0
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        words = _words(raw)
        if not words:
            continue
        try:
            if words[0] == "client":
                client = words[1]
            elif words[0] == "at":
                if int(words[1]) < now:
                    raise ValueError("time goes backwards")
                now = int(words[1])
                case.lines.append(Line(number, raw.strip(), client, now, tuple(words[2:])))
            elif words[0] == "expect":
                case.lines.append(Line(number, raw.strip(), client, None, tuple(words[1:])))
            elif words[0] == "needs":
                case.needs.add(words[1])
            else:
                name, value = words
                case.settings = replace(case.settings, **{name: _value(name, value)})
        except (TypeError, ValueError, IndexError) as problem:
            raise ScheduleError(f"{path.name}:{number}: {raw.strip()}: {problem}") from problem
    return case


def read_all() -> list[Case]:
    """Every case, by name."""
    return [read(path) for path in sorted(CASES.glob("*.txt"))]


def _words(raw: str) -> list[str]:
    # `grant#2` is no comment: one begins the line or stands behind a blank.
    text = "" if raw.lstrip().startswith("#") else raw.split(" #", maxsplit=1)[0]
    return text.split()


def _value(name: str, value: str) -> Any:
    if name in {"fencing", "guards"}:
        return value == "on"
    if name == "drift_factor":
        return float(value)
    if value == "none" and name in {"retry_limit", "timeout", "max_ttl"}:
        return None
    return int(value)
