"""Prints for how long clients wait when nodes forget: `python -m tests.guards.figures [WORDS]`.

With words, only the rows that contain one of them. The schedules are those of test_waits.py; they
run side by side, for about a minute.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from tests.guards import waits
from tests.guards.side_by_side import AT_ONCE, Case, Schedule


class Row(NamedTuple):
    """One figure, and how it is told."""

    what: str
    measure: Schedule
    tell: Callable[[Any], str]


def wait(seconds: float) -> str:
    """`10.1 s`."""
    return f"more than {waits.LIMIT:.0f} s" if seconds >= waits.LIMIT else f"{seconds:.1f} s"


def hold(found: tuple[float, bool]) -> str:
    """Of a lock that is held: for how long its nodes are held back, and whether it was kept."""
    left, second = found
    return "a second holder" if second else f"kept; {left:.0f} s left"


def skipped(count: int) -> str:
    """Of jobs that do not wait."""
    return f"{count} skipped"


def runs(does: bool) -> str:
    """Of one such job."""
    return "it runs" if does else "skipped"


ROWS = [
    Row("600 s lock released, two of three restart, client connected", waits.released, wait),
    Row("the same, its client closed before", partial(waits.released, leaves=True), wait),
    Row("the same, no client there at the restart", waits.released_and_nobody_there, wait),
    Row("30 d lock released, two restart", partial(waits.released, ttl=waits.MONTH), wait),
    *(
        Row(
            f"{count} restarted, no client there, newcomer {waits.QUIET:.0f} s later",
            partial(waits.nobody_there, restarted=count),
            wait,
        )
        for count in (1, 2, 3)
    ),
    Row(
        "3 restarted, the same, data kept (RDB)",
        partial(waits.nobody_there, restarted=3, **waits.SAVES),
        wait,
    ),
    *(
        Row(
            f"redeployed one by one, {apart} s apart{how}",
            partial(waits.redeployed, apart=apart, **options),
            wait,
        )
        for apart in (5, 12)
        for how, options in (("", {}), (", data kept (RDB)", waits.SAVES))
    ),
    Row("two of three killed, appendfsync always", waits.durable, wait),
    Row("600 s lock held, holder cut off, two restart", partial(waits.held, ttl=600), hold),
    Row("30 d lock held, holder cut off, two restart", partial(waits.held, ttl=waits.MONTH), hold),
    Row("14 jobs with blocking=False, redeployed 16 s apart", waits.jobs_skipped, skipped),
    Row("blocking=False after all were redeployed", waits.all_redeployed_quietly, runs),
]


def main() -> None:
    """The command line."""
    logging.getLogger("quorlock").setLevel(logging.CRITICAL)
    words = sys.argv[1:]
    rows = [row for row in ROWS if not words or any(word in row.what for word in words)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        cases = [Case(row.what, row.measure) for row in rows]
        for case in cases:
            case.begin(pool)
        print(f"{'longest time without a lock of ttl 10 s':64} seen")
        for row, case in zip(rows, cases, strict=True):
            try:
                told = row.tell(case.end())
            except Exception as error:  # noqa: BLE001 - the other figures are told all the same
                told = f"failed: {error}"
            print(f"{row.what:64} {told}", flush=True)


if __name__ == "__main__":
    main()
