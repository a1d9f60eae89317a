"""Computes figures from the rows of a run: medians over rounds, and ratios within one round."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bench.entrants import ENTRANTS, Entrant

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Failures:
    """The rounds of one entrant that failed in one case."""

    failed: int
    rounds: int
    #: The last.
    problem: str

    @property
    def share(self) -> str:
        """As one reads it."""
        return f"{self.failed} of {self.rounds}"

    @property
    def all(self) -> bool:
        """Whether there is no figure at all."""
        return self.failed == self.rounds


@dataclass(frozen=True)
class Results:
    """A finished run."""

    content: Mapping[str, Any]

    @cached_property
    def rows(self) -> list[Row]:
        """Everything that was seen."""
        return list(self.content["rows"])

    def select(self, workload: str, entrant: str | None = None, /, **case: object) -> list[Row]:
        """The rows of one case that succeeded, in the order in which they came about."""
        wanted = {"workload": workload, **case}
        if entrant is not None:
            wanted["entrant"] = entrant
        return [row for row in self.rows if "failed" not in row and _is(row, wanted)]

    def median(self, field: str, workload: str, entrant: str, /, **case: object) -> float | None:
        """Over all rounds; None where there is nothing."""
        values = self._values(field, workload, entrant, **case)
        return statistics.median(values) if values else None

    def spread(self, field: str, workload: str, entrant: str, /, **case: object) -> float | None:
        """The middle half of the rounds, as a part of their median."""
        values = self._values(field, workload, entrant, **case)
        if len(values) < 4:
            return None
        low, middle, high = statistics.quantiles(values, n=4)
        return (high - low) / middle if middle else None

    def ratio(
        self, field: str, workload: str, above: str, below: str, /, **case: object
    ) -> float | None:
        """Of two entrants: the median over rounds of the ratio within a round.

        A machine that is slow for a while is slow for both.
        """
        rows = (self.select(workload, name, **case) for name in (above, below))
        return _ratio(field, *rows)

    def change(
        self,
        field: str,
        workload: str,
        entrant: str,
        before: Mapping[str, object],
        after: Mapping[str, object],
    ) -> float | None:
        """From one case to another: the median over rounds of the ratio within a round."""
        rows = (self.select(workload, entrant, **case) for case in (after, before))
        return _ratio(field, *rows)

    def entrants(self, workload: str, /, **case: object) -> list[Entrant]:
        """Who took part in a case and succeeded at least once, in the order of the list."""
        names = {row["entrant"] for row in self.select(workload, **case)}
        return [entrant for entrant in ENTRANTS if entrant.name in names]

    def failures(self, workload: str, /, **case: object) -> dict[str, Failures]:
        """Who failed in some round, in how many of those in which it took part, and how."""
        found: dict[str, list[str]] = {}
        for row in self.rows:
            if "failed" in row and row["workload"] == workload and _is(row, case):
                found.setdefault(row["entrant"], []).append(row["failed"])
        return {
            name: Failures(len(told), len(told) + self._rounds(workload, name, case), told[-1])
            for name, told in found.items()
        }

    def _rounds(self, workload: str, entrant: str, case: Mapping[str, object]) -> int:
        """That succeeded."""
        return len({row.get("round") for row in self.select(workload, entrant, **case)})

    def best(
        self, field: str, workload: str, among: Sequence[str], /, *, least: bool, **case: object
    ) -> str | None:
        """Who of some is ahead."""
        known = {name: self.median(field, workload, name, **case) for name in among}
        found = {name: value for name, value in known.items() if value is not None}
        if not found:
            return None
        pick = min if least else max
        return pick(found, key=lambda name: found[name])

    def _values(self, field: str, workload: str, entrant: str, /, **case: object) -> list[float]:
        rows = self.select(workload, entrant, **case)
        return [row[field] for row in rows if row.get(field) is not None]


def _is(row: Row, case: Mapping[str, object]) -> bool:
    return all(row.get(name) == it for name, it in case.items())


def _ratio(field: str, above: Iterable[Row], below: Iterable[Row]) -> float | None:
    one, two = ({row["round"]: row[field] for row in rows} for rows in (above, below))
    ratios = [one[number] / two[number] for number in one if two.get(number)]
    return statistics.median(ratios) if ratios else None


def spoken(micros: float) -> str:
    """A time as one reads it."""
    if micros < 1000:
        return f"{micros:.0f} µs"
    if micros < 1_000_000:
        return f"{micros / 1000:.3g} ms"
    return f"{micros / 1_000_000:.3g} s"
