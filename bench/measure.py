"""Runs the contestants in turns, and collects the rows of every workload."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from bench.entrants import Entrant
from bench.worker import Failed, Worker

Json = dict[str, Any]
Name = TypeVar("Name", str, int)


@dataclass(frozen=True)
class Effort:
    """How long everything takes."""

    rounds: int
    #: Of one turn of one contestant.
    seconds: float
    #: For which leases are held.
    holding: float
    leases: int
    #: For which the cost over time is watched.
    lasting: float


FULL = Effort(rounds=7, seconds=0.5, holding=30.0, leases=10_000, lasting=600.0)
#: In a quarter of the time; noisier, but every figure is there.
SHORT = Effort(rounds=5, seconds=0.2, holding=20.0, leases=10_000, lasting=60.0)
QUICK = Effort(rounds=2, seconds=0.1, holding=8.0, leases=1_000, lasting=6.0)


@dataclass
class Run:
    """One run of the bench: what it may spend, who takes part, and what was seen."""

    effort: Effort
    entrants: Sequence[Entrant]
    rows: list[Json] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    def tell(self, text: str) -> None:
        """Says how far it is."""
        print(text, file=sys.stderr, flush=True)

    def add(self, workload: str, case: Json, worker: str, **values: Any) -> None:
        """Keeps one row."""
        self.rows.append({"workload": workload, **case, "entrant": worker, **values})

    def failed(self, workload: str, case: Json, worker: str, problem: Exception) -> None:
        """Keeps what went wrong: it belongs to the result."""
        self.tell(f"    {problem}")
        self.add(workload, case, worker, failed=str(problem))

    @contextlib.contextmanager
    def workers(
        self, workload: str, case: Json, entrants: Iterable[Entrant], ports: Sequence[int]
    ) -> Iterator[list[Worker]]:
        """The entrants' processes; who does not come up is noted and left out."""
        with contextlib.ExitStack() as stack:
            up = []
            for entrant in entrants:
                try:
                    worker = stack.enter_context(Worker(entrant, ports))
                except Failed as problem:
                    self.failed(workload, case, entrant.name, problem)
                    continue
                self.versions[entrant.name] = worker.version
                up.append(worker)
            yield up

    def take_turns(
        self, workload: str, case: Json, workers: Sequence[Worker], request: Json, turns: int = 1
    ) -> None:
        """Warms everybody up; then all take this number of turns in each of several rounds.

        Who fails in a round is there again in the next, in a new process if need be.
        """
        going = {worker.entrant.name: worker for worker in workers}
        stay = Staying(self.effort.rounds)
        asked = {"do": "pairs", "seconds": self.effort.seconds / turns, **request}
        warm_up = {**asked, "seconds": self.effort.seconds / 2}

        def ask(name: str, request: Json) -> Json:
            if going[name].ended:
                going[name].restart()
                going[name].ask(warm_up)
            return going[name].ask(request)

        by_turns(going, lambda name: ask(name, warm_up), 1, lambda *_: None)
        for number in range(self.effort.rounds):

            def note(name: str, problem: Failed, number: int = number) -> None:
                self.failed(workload, {**case, "round": number}, name, problem)
                stay.failed(name)

            names = [name for name in going if stay.asked(name)]
            answers = by_turns(names, lambda name: ask(name, asked), turns, note)
            for name, answer in answers.items():
                try:
                    self.add(workload, case, name, round=number, **summary(answer))
                    stay.succeeded(name)
                except Failed as problem:
                    note(name, problem)


class Staying:
    """Who is asked in further rounds: all but those that failed from the first, often enough."""

    #: Rounds without a success.
    ENOUGH = 3

    def __init__(self, rounds: int) -> None:
        self._enough = min(self.ENOUGH, rounds)
        self._failures: dict[str, int] = {}
        self._succeeded: set[str] = set()

    def failed(self, name: str) -> None:
        """One more round."""
        self._failures[name] = self._failures.get(name, 0) + 1

    def succeeded(self, name: str) -> None:
        """It can do it."""
        self._succeeded.add(name)

    def asked(self, name: str) -> bool:
        """Whether it takes part in the next round."""
        return name in self._succeeded or self._failures.get(name, 0) < self._enough


def by_turns(
    names: Iterable[Name],
    ask: Callable[[Name], Json],
    turns: int,
    on_failure: Callable[[Name, Failed], None] | None = None,
) -> dict[Name, Json]:
    """What each did in its turns, which follow close upon each other, forth and back.

    Without `on_failure` a failure is the caller's; otherwise the others go on.
    """
    answers: dict[Name, list[Json]] = {name: [] for name in names}
    for number in range(turns):
        for name in list(answers)[:: -1 if number % 2 else 1]:
            try:
                answers[name].append(ask(name))
            except Failed as problem:
                if on_failure is None:
                    raise
                on_failure(name, problem)
                del answers[name]
    return {name: joined(some) for name, some in answers.items()}


def joined(answers: Sequence[Json]) -> Json:
    """Several turns as if they were one."""
    return {
        "micros": [sample for answer in answers for sample in answer["micros"]],
        **{name: math.fsum(answer[name] for answer in answers) for name in ("seconds", "cpu")},
    }


def summary(answer: Json) -> Json:
    """One turn in a few figures; times in microseconds."""
    micros = sorted(answer["micros"])
    pairs = len(micros)
    if not pairs:
        raise Failed("no pair was finished")
    return {
        "pairs": pairs,
        "per_second": pairs / answer["seconds"],
        "cpu": answer["cpu"] / pairs * 1e6,
        "mean": math.fsum(micros) / pairs,
        **{f"p{part}": quantile(micros, part / 100) for part in (25, 50, 75, 90, 99)},
        "max": micros[-1],
    }


def quantile(ordered: Sequence[float], part: float) -> float:
    """Of an ordered list, between neighbours where need be."""
    place = part * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
