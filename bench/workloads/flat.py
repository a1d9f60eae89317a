"""Measures whether a lock costs the same for many resources, and after ten minutes."""

from __future__ import annotations

import time

from bench.entrants import OURS
from bench.measure import Run, by_turns, summary
from bench.nodes import ports, servers
from bench.worker import Worker

NAME = "flat"
RESOURCES = (1, 10_000)
#: Times at which who has been at work all along is held against who begins.
TIMES = 20
#: Turns that each of two has that are compared, one after the other.
TURNS = 4


def run(run: Run) -> None:
    """Ours with its defaults: one and many resources by turns, then on and on."""
    entrants = [one for one in run.entrants if one.role == OURS and one.variant == ""]
    with servers(5) as cluster, run.workers(NAME, {}, entrants, ports(cluster)) as workers:
        run.tell("  one resource and many")
        for number in range(run.effort.rounds):
            for worker in workers:
                _resources(run, worker, number)
        run.tell(f"  {run.effort.lasting:.0f} s long")
        start, part = time.monotonic(), run.effort.lasting / TIMES
        for turn in range(TIMES):
            minute = (time.monotonic() - start) / 60
            with servers(5) as fresh:
                for worker in workers:
                    case = {"case": "time", "minute": minute, "quarter": 4 * turn // TIMES}
                    _age(run, worker, ports(fresh), part / len(workers), turn, case)


def _resources(run: Run, worker: Worker, number: int) -> None:
    seconds = 2 * run.effort.seconds / TURNS
    answers = by_turns(RESOURCES, lambda count: worker.ask(_pairs(seconds, count)), TURNS)
    for resources, answer in answers.items():
        if number:  # the first serves to get warm
            case = {"case": "resources", "resources": resources}
            run.add(NAME, case, worker.entrant.name, round=number, **summary(answer))


def _age(
    run: Run, old: Worker, nodes: list[int], seconds: float, turn: int, case: dict[str, object]
) -> None:
    """The machine is quicker in one minute than in another: all that is new tells by how much."""
    with Worker(old.entrant, nodes) as new:
        new.ask(_pairs(run.effort.seconds, RESOURCES[-1]))
        request = _pairs(seconds / TURNS / 2, RESOURCES[-1])
        workers = {"old": old, "new": new}
        answers = by_turns(workers, lambda age: workers[age].ask(request), TURNS)
        for age, answer in answers.items():
            values = {"round": turn, "memory": workers[age].memory(), **summary(answer)}
            run.add(NAME, {**case, "age": age}, old.entrant.name, **values)


def _pairs(seconds: float, resources: int) -> dict[str, object]:
    most = 1_000_000
    return {"do": "pairs", "seconds": seconds, "resources": resources, "most": most}
