"""Runs golden schedules with one library: all at the same time, then failed ones again, slower.

What was only the machine's load does not come again; what is a fault does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass

from tests.conformance import guards
from tests.conformance.clients import LIBRARIES, Library, Process
from tests.conformance.judge import Judge
from tests.conformance.player import Failed, Player
from tests.conformance.schedule import Case, Line

#: Milliseconds here for one of the file: at the first, and at further tries.
SCALES = (4, 10, 25)
#: Where the machine's own times matter: the library takes a node for hung after 250 ms without an
#: answer, and in these cases more is sent to nodes that have been silent for longer than that.
_QUICK = {"one-failed-renewal-does-not-end-renewal": (2, 2, 2)}
#: Seconds between the beginnings of two cases.
_APART = 0.05
#: What a file may need that is there.
_OFFERS = {"virtual-time", "tickets", "hold", "guards"}


@dataclass(frozen=True)
class Result:
    """What became of a case: it held, or a sentence on why it failed or was left out."""

    name: str
    status: str  # held, failed or left out
    reason: str = ""
    tries: int = 1


def why_not(case: Case, library: Library) -> str | None:
    """Why a case cannot be run with a library, if so."""
    if missing := case.needs - _OFFERS:
        return f"needs {', '.join(sorted(missing))}"
    if "virtual-time" in case.needs and not any(line.words == ("asleep",) for line in case.lines):
        return "needs time that jumps"
    begun = ""
    for line in case.lines:
        if line.at is not None and line.words[0] in {"acquire", "extend", "release"}:
            begun = line.words[0]
        lacked = library.lacks.get(f"{line.words[0]} {begun}") if line.at is not None else None
        if lacked:
            return lacked
    return None


async def run_all(library: Library, cases: Iterable[Case], tries: int) -> list[Result]:
    """Runs every case that can be; results in the order of the cases."""
    results: dict[str, Result] = {}
    able: list[Case] = []
    for case in cases:
        reason = why_not(case, library)
        results[case.name] = Result(case.name, "left out" if reason else "", reason or "")
        if reason is None:
            able.append(case)
    async with _processes(library, shared=True) as shared:
        for attempt in range(tries):
            ran = await asyncio.gather(*(run(case, library, attempt, shared, place * _APART)
                                         for place, case in enumerate(able)))  # fmt: skip
            results.update((result.name, result) for result in ran)
            able = [case for case in able if results[case.name].status == "failed"]
            for case in able:
                told = f"try {attempt + 1} of {case.name}: {results[case.name].reason}"
                print(told, file=sys.stderr, flush=True)
    await asyncio.sleep(_APART)  # for the last connections to be closed
    return list(results.values())


async def run(
    case: Case, library: Library, attempt: int, shared: list[Process], delay: float
) -> Result:
    """Runs one case once, in a while."""
    await asyncio.sleep(delay)
    scale = _QUICK.get(case.name, SCALES)[attempt]
    alone = any(line.words[0] in {"asleep", "still"} for line in case.lines)
    player = Player(case, library, scale)
    async with _processes(library, shared=not alone and not shared) as own:

        async def enter(name: str) -> None:
            if alone:
                own.append(await Process.start(library))
            await player.open(name, (own or shared)[-1])

        try:
            # With the guards it matters what a client has seen: it comes with its first line.
            for name in case.clients[: 1 if case.settings.guards else None]:
                await enter(name)
            await _play(player, enter)
        except Failed as problem:
            reason = str(problem)
        except Exception as problem:  # noqa: BLE001 - one case must not end all others
            reason = repr(problem)
        else:
            return Result(case.name, "held", tries=attempt + 1)
        finally:
            await player.close()
    return Result(case.name, "failed", f"{reason}{player.trace()}", attempt + 1)


async def _play(player: Player, enter: Callable[[str], Awaitable[None]]) -> None:
    judge, lines = Judge(player), player.case.lines
    waiting: list[Line] = []
    player.began = asyncio.get_running_loop().time()
    for place, line in enumerate(lines):
        rest = lines[place + 1 :]
        player.next = next((later for later in rest if later.at is not None), None)
        if line.client not in player.actors:
            await enter(line.client)
        if line.at is None and guards.must_wait(player, line):
            waiting.append(line)
            continue
        await _step(player, judge, line)
        if line.at is not None:
            for earlier in waiting:
                await _step(player, judge, earlier)
            waiting.clear()
        await player.doze(line.client, rest)


async def _step(player: Player, judge: Judge, line: Line) -> None:
    try:
        if line.at is None:
            player.awake(line.client)
            await judge.expect(line)
        elif guards.is_theirs(line):
            await guards.happen(player, line)
        else:
            await guards.prepare(player, line)
            await player.happen(line)
    except Failed as problem:
        raise Failed(f"line {line.number}: {line.text}: {problem}") from None


@contextlib.asynccontextmanager
async def _processes(library: Library, *, shared: bool) -> AsyncIterator[list[Process]]:
    """A list of processes, which end with the block; one of them at once if it is to be shared."""
    processes = [await Process.start(library)] if shared else []
    try:
        yield processes
    finally:
        await asyncio.gather(*(process.close() for process in processes))


def run_library(name: str, cases: Iterable[Case], tries: int = len(SCALES)) -> list[Result]:
    """The results of the library of this name."""
    # A client that hangs up on a node that it takes for hung is what is wanted.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    return asyncio.run(run_all(LIBRARIES[name], cases, tries))
