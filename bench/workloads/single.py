"""Measures one lock at a time without contention: latency and processor time."""

from __future__ import annotations

from bench.measure import Run
from bench.nodes import ports, servers

NAME = "single"
NODES = (1, 3, 5, 7)
#: Of a tenth of a second, so that who is compared is so at nearly the same time.
TURNS = 5


def run(run: Run) -> None:
    """Everybody, on 1 to 7 nodes."""
    with servers(max(NODES)) as cluster:
        for count in NODES:
            run.tell(f"  {count} nodes")
            case = {"nodes": count}
            entrants = [entrant for entrant in run.entrants if count == 1 or not entrant.lone]
            cluster.reset()
            with run.workers(NAME, case, entrants, ports(cluster[:count])) as workers:
                run.take_turns(NAME, case, workers, {}, TURNS)
