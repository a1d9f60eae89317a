"""Measures many locks at once from one process, each on its own resource: pairs per second."""

from __future__ import annotations

from bench.entrants import FLOOR
from bench.measure import Run
from bench.nodes import ports, servers

NAME = "flight"
NODES = (1, 5)
IN_FLIGHT = (1, 16, 64, 256)
MOST_THREADS = 64


def run(run: Run) -> None:
    """Who can run several at once; blocking code does it with threads."""
    with servers(max(NODES)) as cluster:
        for count in NODES:
            entrants = [
                entrant
                for entrant in run.entrants
                if entrant.flight and entrant.role != FLOOR and (count == 1 or not entrant.lone)
            ]
            cluster.reset()
            with run.workers(NAME, {"nodes": count}, entrants, ports(cluster[:count])) as workers:
                for number in IN_FLIGHT:
                    run.tell(f"  {count} nodes, {number} in flight")
                    going = [
                        worker
                        for worker in workers
                        if number <= MOST_THREADS or worker.entrant.style != "sync"
                    ]
                    case = {"nodes": count, "in_flight": number}
                    run.take_turns(NAME, case, going, {"in_flight": number})
