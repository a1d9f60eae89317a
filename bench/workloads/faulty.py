"""Measures five nodes of which one hangs or dies: the calls until that is known, and later ones."""

from __future__ import annotations

from bench.entrants import FLOOR, Entrant
from bench.measure import Json, Run, Staying, by_turns, joined, summary
from bench.nodes import ports, restart, servers
from bench.worker import Failed, Worker
from tests.support.cluster import Cluster

NAME = "faulty"
#: Seconds for one pair. Who takes longer has failed in this round.
PATIENCE = 10.0
#: The calls that count as finding out.
FIRST = 5
#: By when it is known that a node hangs: ours take 0.25 s unless told otherwise.
FOUND_OUT = 0.5
#: Who takes longer for a pair, in seconds, has one turn: each turn is at least one pair.
SLOW = 2.0
#: The number of turns of each of the two that are compared, one after the other.
TURNS = 4


def run(run: Run) -> None:
    """By turns: on five nodes that are well, and on four of them and the victim."""
    entrants = [one for one in run.entrants if not one.lone and one.role != FLOOR]
    with servers(6) as cluster:
        for fault in ("hung", "dead"):
            run.tell(f"  one of five {fault}")
            stay = Staying(run.effort.rounds)
            for number in range(run.effort.rounds):
                for entrant in entrants:
                    if not stay.asked(entrant.name):
                        continue
                    try:
                        _round(run, cluster, entrant, fault, number)
                        stay.succeeded(entrant.name)
                    except Failed as problem:
                        stay.failed(entrant.name)
                        run.failed(NAME, {"case": fault, "round": number}, entrant.name, problem)
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
        first = _first(stricken)
        _pairs(stricken, FOUND_OUT)
        turns = {"healthy": well, "after": stricken}
        number_of_turns = TURNS if max(first["micros"]) < SLOW * 1e6 else 1
        part = 2 * seconds / number_of_turns
        answers = by_turns(turns, lambda phase: _pairs(turns[phase], part), number_of_turns)
    for phase, answer in ({"first": first} | answers).items():
        case = {"case": fault, "phase": phase}
        run.add(NAME, case, entrant.name, round=number, **summary(answer))


def _first(worker: Worker) -> Json:
    """The calls that find it out: one by one, and no more when they have taken `PATIENCE`."""
    answers: list[Json] = []
    while len(answers) < FIRST and sum(answer["seconds"] for answer in answers) < PATIENCE:
        one_pair = {"do": "pairs", "seconds": PATIENCE, "most": 1}
        answers.append(worker.ask(one_pair, PATIENCE))
    return joined(answers)


def _pairs(worker: Worker, seconds: float) -> Json:
    """Runs pairs for this time; the last one may end later."""
    return worker.ask({"do": "pairs", "seconds": seconds}, seconds + PATIENCE)
