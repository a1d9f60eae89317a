"""Runs the slow tests of one module at the same time, since they mostly wait.

    @side_by_side({"a new client": schedule, ...})
    def test_nobody_else_gets_in(case: Case) -> None:
        case.end()

Each schedule has servers and clients of its own, and a thread. Owns their begin and end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.guards.testbed import Testbed

Schedule = Callable[[Testbed], Any]
#: At one time: more would keep a small machine from its timers.
AT_ONCE = 12


class Case:
    """One schedule."""

    def __init__(self, name: str, schedule: Schedule) -> None:
        self._name = name
        self._schedule = schedule
        self._running: Future[Any] | None = None

    def begin(self, pool: ThreadPoolExecutor) -> None:
        """In a thread of the pool, once one is free."""
        self._running = pool.submit(self.run)

    def end(self) -> Any:
        """Waits for it; returns what it returns, or raises what it raises."""
        assert self._running is not None
        return self._running.result()

    def run(self) -> Any:
        """Here and now."""
        with Testbed() as testbed:
            return self._schedule(testbed)

    def __repr__(self) -> str:
        return self._name


def side_by_side(schedules: Mapping[str, Schedule]) -> pytest.MarkDecorator:
    """A test of one `case` for each."""
    cases = [Case(name, schedule) for name, schedule in schedules.items()]
    return pytest.mark.parametrize("case", cases, ids=repr)
