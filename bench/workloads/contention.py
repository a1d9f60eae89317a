"""Measures how long a resource that several processes want is idle between two holders."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from bench.entrants import FLOOR, Entrant
from bench.measure import Run, quantile
from bench.nodes import ports, servers
from bench.worker import Failed, Worker

Turn = tuple[int, int, int]

NAME = "contention"
#: Processes and contenders in each.
CONTENDERS = {2: (2, 1), 20: (4, 5)}
#: Seconds that a contender holds the lock, and that it rests before it wants it again.
HOLD, REST = 0.002, 0.02
PATIENCE = 60.0  # some go on for long after the end


def run(run: Run) -> None:
    """With every library's own waiting; on three nodes, where one fault is survived."""
    seconds = max(1.0, 6 * run.effort.seconds)
    entrants = [
        one for one in run.entrants if not one.lone and one.role != FLOOR and one.flight
    ]  # fmt: skip
    with servers(3) as cluster:
        for contenders in CONTENDERS:
            run.tell(f"  {contenders} contenders")
            for number in range(max(1, run.effort.rounds // 2)):
                for entrant in entrants:
                    case = {"contenders": contenders, "round": number}
                    cluster.reset()
                    try:
                        held = _compete(entrant, ports(cluster), contenders, seconds)
                    except Failed as problem:
                        run.failed(NAME, case, entrant.name, problem)
                        continue
                    run.add(NAME, case, entrant.name, **_handoffs(held))


def _compete(
    entrant: Entrant, nodes: list[int], contenders: int, seconds: float
) -> Sequence[Sequence[Turn]]:
    """For each contender its turns: wanted, acquired, about to release; in microseconds."""
    processes, each = CONTENDERS[contenders]
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(Worker(entrant, nodes)) for _ in range(processes)]
        for worker in workers:
            worker.ask({"do": "pairs", "seconds": 0.05})
        for worker in workers:
            times = {"seconds": seconds, "hold": HOLD, "rest": REST}
            worker.begin({"do": "contend", "contenders": each, **times})
        answers = [worker.finish(seconds + PATIENCE) for worker in workers]
    return [contender for answer in answers for contender in answer["held"]]


def _handoffs(held: Sequence[Sequence[Turn]]) -> dict[str, Any]:
    # The clock is one for all processes of a machine.
    turns = sorted((turn for times in held for turn in times), key=lambda turn: turn[1])
    following = list(pairwise(turns))
    idle = sorted(
        max(0, acquired - max(released, _wanted_since(turns, acquired)))
        for (_, _, released), (_, acquired, _) in following
    )
    waits = sorted(acquired - wanted for wanted, acquired, _ in turns)
    span = (turns[-1][2] - turns[0][1]) / 1e6 if turns else 0.0
    return {
        "acquired": len(turns),
        "per_second": len(turns) / span if span else 0.0,
        "overlaps": sum(after[1] < before[2] for before, after in following),
        "least": min(map(len, held)),
        "most": max(map(len, held)),
        "longest_wait": waits[-1] if waits else None,
        "mean": sum(idle) / len(idle) if idle else None,
        **{f"p{part}": quantile(idle, part / 100) if idle else None for part in (50, 90, 99)},
    }


def _wanted_since(turns: Sequence[Turn], moment: int) -> int:
    """Since when somebody had been waiting who did not get it before that moment."""
    return min(wanted for wanted, acquired, _ in turns if wanted <= moment <= acquired)
