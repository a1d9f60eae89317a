"""Tests that nobody waits for longer than a lock may last that can still be held.

Nobody waits at all where nothing can have been forgotten. `python -m tests.guards.figures` prints
the figures.
"""

from __future__ import annotations

from functools import partial

import pytest

from tests.guards import waits
from tests.guards.side_by_side import Case, Schedule, side_by_side
from tests.guards.testbed import Testbed

pytestmark = pytest.mark.slow

#: Seconds: ten that locks may last which nobody has noted, with what clocks may be off, and a
#: second until it is looked at again.
UNNOTED = 12.0
#: Seconds that a busy machine may add.
SLACK = 2.0


def at_most(bound: float, measure: Schedule) -> Schedule:
    def judge(testbed: Testbed) -> None:
        figure = measure(testbed)
        assert figure <= bound + SLACK, f"{figure:.1f} s, at most {bound:.1f} s were to be"

    return judge


@side_by_side(
    {
        "a long lock was released": at_most(UNNOTED, waits.released),
        "its client has gone": at_most(UNNOTED, partial(waits.released, leaves=True)),
        "no client was there": at_most(UNNOTED, waits.released_and_nobody_there),
        "a lock of a month": at_most(UNNOTED, partial(waits.released, ttl=waits.MONTH)),
        "two restarted, nobody was there": at_most(
            UNNOTED, partial(waits.nobody_there, restarted=2)
        ),
        "all restarted with their data, nobody was there": at_most(
            UNNOTED, partial(waits.nobody_there, restarted=3, **waits.SAVES)
        ),
        "redeployed 5 s apart": at_most(UNNOTED, partial(waits.redeployed, apart=5)),
    }
)
def test_locks_that_are_over_are_waited_for_briefly(case: Case) -> None:
    case.end()


@side_by_side(
    {
        "one restarted, nobody was there": at_most(0, partial(waits.nobody_there, restarted=1)),
        "redeployed": at_most(0, partial(waits.redeployed, apart=12)),
        "redeployed with its data": at_most(0, partial(waits.redeployed, apart=12, **waits.SAVES)),
        "everything on disk": at_most(0, waits.durable),
    }
)
def test_there_is_nothing_to_wait_for(case: Case) -> None:
    case.end()


def stays_closed(testbed: Testbed, ttl: float, least: float, most: float) -> None:
    left, second = waits.held(testbed, ttl)
    assert not second, "a second holder"
    assert least < left <= most, left


@side_by_side(
    {
        "600 s": partial(stays_closed, ttl=600, least=540, most=610),
        # Longer than an hour only where everybody says so, by max_ttl.
        "a month": partial(stays_closed, ttl=waits.MONTH, least=3000, most=3700),
    }
)
def test_a_long_lock_is_waited_for_while_it_is_held(case: Case) -> None:
    case.end()


def no_job_is_skipped(testbed: Testbed) -> None:
    assert waits.jobs_skipped(testbed) == 0


def the_next_job_runs(testbed: Testbed) -> None:
    assert waits.all_redeployed_quietly(testbed)


@side_by_side(
    {"one by one, jobs in between": no_job_is_skipped, "all, and then a job": the_next_job_runs}
)
def test_a_redeployment_skips_no_job_that_does_not_wait(case: Case) -> None:
    case.end()
