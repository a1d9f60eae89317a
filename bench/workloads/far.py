"""Measures five nodes half a millisecond away, and five nodes of which one is slow."""

from __future__ import annotations

from bench.measure import Run
from bench.nodes import far_away, ports, servers

NAME = "far"
ROUND_TRIP = 500  # microseconds
SLOW = 20_000  # microseconds


def run(run: Run) -> None:
    """One at a time: how many round trips there are, and which node is waited for."""
    entrants = [entrant for entrant in run.entrants if not entrant.lone]
    with servers(5) as cluster:
        run.tell("  all half a millisecond away")
        with far_away(cluster, ROUND_TRIP) as there:
            case = {"case": "all far"}
            with run.workers(NAME, case, entrants, there) as workers:
                run.take_turns(NAME, case, workers, {})
        cluster.reset()
        run.tell("  one of five slow")
        with far_away(cluster[:1], SLOW) as slow:
            case = {"case": "one slow"}
            with run.workers(NAME, case, entrants, slow + ports(cluster[1:])) as workers:
                run.take_turns(NAME, case, workers, {})
