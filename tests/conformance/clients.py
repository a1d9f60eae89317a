"""Starts and calls the processes that run the library under test. Owns their pipes and sleep.

A process takes JSON lines and answers in JSON lines, each about one session (a manager with its own
nodes and at most one lease); `client.py` and `tests/node/support/conformance_client.mjs` are the
other sides:

    > {"session": 1, "do": "open", "urls": [...], "settings": {...}}
    > {"session": 1, "do": "warm"}                       < {"session": 1, "event": "warm"}
    > {"session": 1, "do": "acquire", "number": 1}
    < {"session": 1, "event": "ended", "number": 1, "word": "won", "token": 7, "at": 12.5, ...}
    > {"session": 1, "do": "look", "number": 2}          < {..., "event": "look", "until": 13.4}

`extend`, `release` and `cancel` (of what is under way) work likewise; `word` is `won`, `extended`,
an outcome of a release, or `error` with a `code`. A loss is told as {"event": "lost", "message":
...}. All times are seconds of the system's monotonic clock.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
Json = dict[str, Any]


@dataclass(frozen=True)
class Library:
    """One library under test, and what its users cannot do."""

    name: str
    command: Sequence[str]
    #: Happenings that its API has no words for, and why.
    lacks: dict[str, str] = field(default_factory=dict)


_PYTHON = [sys.executable, "-m", "tests.conformance.client"]
LIBRARIES = {
    library.name: library
    for library in (
        Library(
            "python",
            [*_PYTHON, "blocking"],
            {
                "cancel acquire": "a blocking call is given up by Ctrl-C alone",
                "cancel extend": "a blocking call is given up by Ctrl-C alone",
            },
        ),
        Library("asyncio", [*_PYTHON, "asyncio"]),
        Library(
            "node",
            ["node", "tests/node/support/conformance_client.mjs"],
            {"cancel extend": "lock.extend() takes no signal"},
        ),
    )
}


class Process:
    """One process, with any number of sessions."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        """See `start`."""
        self._child = child
        self._sessions: dict[int, Session] = {}
        self._numbers = itertools.count(1)
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def start(cls, library: Library) -> Process:
        """A process of its own."""
        pipe = asyncio.subprocess.PIPE
        child = await asyncio.create_subprocess_exec(
            *library.command, cwd=ROOT, stdin=pipe, stdout=pipe
        )
        return cls(child)

    def session(self) -> Session:
        """A new session in it."""
        number = next(self._numbers)
        self._sessions[number] = Session(self, number)
        return self._sessions[number]

    def stop(self) -> None:
        """The whole process sleeps: none of its timers goes off."""
        os.kill(self._child.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """It wakes."""
        os.kill(self._child.pid, signal.SIGCONT)

    def write(self, message: Json) -> None:
        """Sends one line."""
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps(message).encode() + b"\n")

    async def close(self) -> None:
        """It ends when its input does; if not, it is ended."""
        assert self._child.stdin is not None
        self.go_on()
        self._child.stdin.close()
        try:
            await asyncio.wait_for(self._child.wait(), 10)
        except TimeoutError:
            self._child.kill()
            await self._child.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._child.stdout is not None
        while line := await self._child.stdout.readline():
            message = json.loads(line)
            self._sessions[message["session"]].take(message)
        for session in self._sessions.values():
            session.take({"event": "gone"})


class Session:
    """One manager in a process: what was asked of it and what it told."""

    def __init__(self, process: Process, number: int) -> None:
        """See `Process.session`."""
        self.process = process
        #: Set, and made anew, whenever something is told.
        self.news = asyncio.Event()
        self.ended: Json | None = None
        self.lost: Json | None = None
        #: What `until` told last, before it was over.
        self.trusted = float("inf")
        #: The number of the operation whose end is awaited.
        self.operation = 0
        self._number = number
        self._asked = 0
        self._asking: dict[int, asyncio.Future[Json]] = {}
        self.is_warm = False
        self.is_gone = False

    def do(self, what: str, **fields: Any) -> int:
        """Asks for something; returns its number."""
        self._asked += 1
        message = {"session": self._number, "do": what, "number": self._asked, **fields}
        self.process.write(message)
        return self._asked

    def begin(self, what: str, **fields: Any) -> None:
        """Asks for an operation, whose end will be `ended`."""
        self.ended = None
        self.operation = self.do(what, **fields)

    async def until(self) -> float | None:
        """Until when the lease is trusted; None if it has ended."""
        told: float | None = (await self._ask("look"))["until"]
        self.trusted = told or self.trusted
        return told

    async def nodes(self) -> list[Json]:
        """The state of each node, and for how many seconds it is held back yet."""
        told: list[Json] = (await self._ask("nodes"))["nodes"]
        return told

    async def _ask(self, what: str) -> Json:
        future = asyncio.get_running_loop().create_future()
        self._asking[self.do(what)] = future
        return await asyncio.wait_for(future, 10)

    def take(self, message: Json) -> None:
        """The process told something."""
        event = message["event"]
        if event == "ended" and message["number"] == self.operation:
            self.ended = message
        elif event == "lost":
            self.lost = message
        elif event in {"look", "nodes"}:
            self._asking.pop(message["number"]).set_result(message)
        elif event == "warm":
            self.is_warm = True
        elif event == "gone":
            self.is_gone = True
        self.news.set()
        self.news = asyncio.Event()
