"""Measures the time from the start of a process to its first lock, and to its end."""

from __future__ import annotations

import time

from bench.entrants import Entrant
from bench.measure import Run
from bench.nodes import ports, servers
from bench.worker import Failed, Worker

NAME = "startup"


def run(run: Run) -> None:
    """Everybody, on three nodes; the interpreter's own start is a part of it."""
    entrants = [entrant for entrant in run.entrants if not entrant.lone]
    with servers(3) as cluster:
        for number in range(run.effort.rounds):
            for entrant in entrants:
                try:
                    # The first start pays for what the one before it left behind.
                    millis = [_first_lock(entrant, ports(cluster)) for _ in range(2)][-1]
                except Failed as problem:
                    run.failed(NAME, {}, entrant.name, problem)
                    continue
                run.add(NAME, {}, entrant.name, round=number, millis=millis)


def _first_lock(entrant: Entrant, nodes: list[int]) -> float:
    """Milliseconds."""
    with Worker(entrant, nodes) as worker:
        worker.ask({"do": "pairs", "seconds": 60, "most": 1})
        return (time.monotonic() - worker.started) * 1000
