"""Whether a lock costs the same for one resource and for ten thousand, and after ten minutes."""

from __future__ import annotations

import time

from bench.entrants import OURS
from bench.measure import Run, summary
from bench.nodes import ports, servers

NAME = "flat"
RESOURCES = (1, 10_000)
#: Turns into which the time is divided.
TURNS = 20


def run(run: Run) -> None:
    """Ours with its defaults: one and many resources by turns, then on and on."""
    entrants = [one for one in run.entrants if one.role == OURS and one.variant == ""]
    with servers(5) as cluster:
        nodes = ports(cluster)
        with run.workers(NAME, {}, entrants, nodes) as workers:
            run.tell("  one resource and many")
            for number in range(run.effort.rounds):
                for worker in workers:
                    # What is compared follows close upon each other, and each comes first in turn.
                    for resources in RESOURCES[:: -1 if number % 2 else 1]:
                        case = {"case": "resources", "resources": resources}
                        answer = worker.ask(_pairs(2 * run.effort.seconds, resources))
                        if number:  # the first serves to get warm
                            figures = summary(answer)
                            run.add(NAME, case, worker.entrant.name, round=number, **figures)
            run.tell(f"  {run.effort.lasting:.0f} s long")
            start, turn = time.monotonic(), run.effort.lasting / TURNS
            for number in range(TURNS):
                for worker in workers:
                    answer = worker.ask(_pairs(turn / len(workers), RESOURCES[-1]))
                    minute = (time.monotonic() - start) / 60
                    case = {"case": "time", "turn": number, "minute": minute}
                    memory = worker.memory()
                    run.add(NAME, case, worker.entrant.name, memory=memory, **summary(answer))


def _pairs(seconds: float, resources: int) -> dict[str, object]:
    most = 1_000_000
    return {"do": "pairs", "seconds": seconds, "resources": resources, "most": most}
