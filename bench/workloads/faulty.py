"""Five nodes of which one hangs or dies: the calls while it is found out, and those after."""

from __future__ import annotations

from bench.entrants import FLOOR
from bench.measure import Run, summary
from bench.nodes import ports, restart, servers
from bench.worker import Failed, Worker
from tests.support.servers import Cluster

NAME = "faulty"
#: Who does not answer for so long is noted as hanging, and left out of further rounds.
PATIENCE = 8.0
#: The calls that count as finding out.
FIRST = 5


def run(run: Run) -> None:
    """Healthy, then with the fault, by turns."""
    entrants = [one for one in run.entrants if not one.lone and one.role != FLOOR]
    with servers(5) as cluster:
        for fault in ("hung", "dead"):
            run.tell(f"  one of five {fault}")
            going = list(entrants)
            for number in range(run.effort.rounds):
                for entrant in list(going):
                    try:
                        with Worker(entrant, ports(cluster)) as worker:
                            run.versions[entrant.name] = worker.version
                            _turn(run, cluster, worker, fault, number)
                    except Failed as problem:
                        run.failed(NAME, {"case": fault}, entrant.name, problem)
                        going.remove(entrant)
                    restart(cluster[0])
                    cluster.reset()


def _turn(run: Run, cluster: Cluster, worker: Worker, fault: str, number: int) -> None:
    name, seconds = worker.entrant.name, run.effort.seconds
    pairs = {"do": "pairs", "seconds": seconds}
    worker.ask({**pairs, "seconds": seconds / 2})
    healthy = summary(worker.ask(pairs))
    if fault == "hung":
        cluster[0].pause()
    else:
        cluster[0].kill()
    first = summary(worker.ask({**pairs, "seconds": PATIENCE, "most": FIRST}, PATIENCE))
    after = summary(worker.ask({**pairs, "seconds": 2 * seconds}, PATIENCE))
    for phase, figures in (("healthy", healthy), ("first", first), ("after", after)):
        run.add(NAME, {"case": fault, "phase": phase}, name, round=number, **figures)
