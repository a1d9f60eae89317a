"""The list of COMPARE.md's rows that have a program, and which libraries each one is run for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bench.compare.trial import Trial

Play = Callable[[Trial], str]


@dataclass(frozen=True)
class Row:
    """One row: its title in the table, and the program that gives a cell."""

    title: str
    play: Play
    #: The libraries that can be asked.
    libraries: Sequence[str]


OURS, REDLOCK_PY, AIOREDLOCK, POTTERY = "quorlock", "redlock-py", "aioredlock", "pottery"
REDIS_PY, NODE_REDLOCK, UNIVERSAL = "redis-py `Lock`", "node-redlock 5", "redlock-universal"
ALL = (OURS, REDLOCK_PY, AIOREDLOCK, POTTERY, REDIS_PY, NODE_REDLOCK, UNIVERSAL)
#: Who locks on several nodes.
SEVERAL = tuple(name for name in ALL if name != REDIS_PY)
#: Who renews by itself.
RENEWING = (OURS, AIOREDLOCK, NODE_REDLOCK, UNIVERSAL)
#: Who has a `with`, an `async with` or a `using`.
BLOCKS = tuple(name for name in ALL if name != REDLOCK_PY)

ROWS: list[Row] = []


def row(title: str, libraries: Sequence[str] = ALL) -> Callable[[Play], Play]:
    """Makes a function the program of a row."""

    def add(play: Play) -> Play:
        ROWS.append(Row(title, play, libraries))
        return play

    return add
