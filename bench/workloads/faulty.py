"""Five nodes of which one hangs or dies: the calls while it is found out, and those after."""

from __future__ import annotations

from bench.entrants import FLOOR, Entrant
from bench.measure import Run, by_turns, summary
from bench.nodes import ports, restart, servers
from bench.worker import Failed, Worker
from tests.support.servers import Cluster

NAME = "faulty"
#: Who does not answer for so long is noted as hanging, and left out of further rounds.
PATIENCE = 8.0
#: The calls that count as finding out.
FIRST = 5
#: By when it is known that a node hangs: ours take 0.25 s unless told otherwise.
FOUND_OUT = 0.5
#: So many turns has each of the two that are compared, one after the other.
TURNS = 4


def run(run: Run) -> None:
    """By turns: on five nodes that are well, and on four of them and the victim."""
    entrants = [one for one in run.entrants if not one.lone and one.role != FLOOR]
    with servers(6) as cluster:
        for fault in ("hung", "dead"):
            run.tell(f"  one of five {fault}")
            going = list(entrants)
            for number in range(run.effort.rounds):
                for entrant in list(going):
                    try:
                        _round(run, cluster, entrant, fault, number)
                    except Failed as problem:
                        run.failed(NAME, {"case": fault}, entrant.name, problem)
                        going.remove(entrant)
                    restart(cluster[0])
                    cluster.reset()


def _round(run: Run, cluster: Cluster, entrant: Entrant, fault: str, number: int) -> None:
    nodes, seconds = ports(cluster), run.effort.seconds
    warm_up = {"do": "pairs", "seconds": seconds / 2}
    with Worker(entrant, nodes[1:]) as well, Worker(entrant, nodes[:-1]) as stricken:
        run.versions[entrant.name] = well.version
        well.ask(warm_up)
        stricken.ask(warm_up)
        if fault == "hung":
            cluster[0].pause()
        else:
            cluster[0].kill()
        first = stricken.ask({"do": "pairs", "seconds": PATIENCE, "most": FIRST}, PATIENCE)
        stricken.ask({"do": "pairs", "seconds": FOUND_OUT}, PATIENCE)
        turns = {"healthy": well, "after": stricken}
        request = {"do": "pairs", "seconds": 2 * seconds / TURNS}
        answers = by_turns(turns, lambda phase: turns[phase].ask(request, PATIENCE), TURNS)
    for phase, answer in ({"first": first} | answers).items():
        case = {"case": fault, "phase": phase}
        run.add(NAME, case, entrant.name, round=number, **summary(answer))
