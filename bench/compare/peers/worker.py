"""Drives a Python library: `python -m bench.compare.peers.worker LIBRARY HOST:PORT[/DB]...`.

Answers lines of JSON as the contestants of the bench do. `block`, `hold` and `loss` say `inside`
before their last answer; `block` and `cancel` then wait for one more line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

from bench.compare.peers.libraries import LIBRARIES, Library
from bench.contestants.python.wire import Json, say


class BodyError(Exception):
    """What the body of a block raises."""


class Actions:
    """Each public method is a request."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._held: dict[str, Any] = {}

    def acquire(self, resource: str, ttl: int = 20_000, once: bool = False) -> Json:
        start = time.monotonic()
        held, raised = None, None
        try:
            held = self._library.acquire(resource, ttl, once)
        except Exception as error:  # noqa: BLE001 - which one is what is asked
            raised = type(error).__name__
        answer: Json = {"held": held is not None, "raised": raised}
        if held is not None:
            self._held[resource] = held
            answer["valid_for"] = self._library.valid_for(held)
        return {**answer, "seconds": time.monotonic() - start}

    def release(self, resource: str) -> Json:
        start = time.monotonic()
        told, raised = None, None
        try:
            told = repr(self._library.release(self._held.pop(resource)))
        except Exception as error:  # noqa: BLE001 - which one is what is asked
            raised = type(error).__name__
        return {"told": told, "raised": raised, "seconds": time.monotonic() - start}

    def idle(self, resource: str, seconds: float) -> Json:  # noqa: ARG002
        self._library.rest(seconds)
        return {}

    def hold(self, resource: str, ttl: int, seconds: float, blocked: bool) -> Json:
        self._held[resource] = self._library.renewed(resource, ttl)
        say({"inside": True})
        (time.sleep if blocked else self._library.rest)(seconds)
        return {}

    def loss(self, resource: str, ttl: int, seconds: float) -> Json:
        start = time.monotonic()
        held = self._library.renewed(resource, ttl)
        say({"inside": True})
        while not self._library.lost(held):
            if time.monotonic() > start + seconds:
                return {"after": None}
            self._library.rest(0.005)
        return {"after": time.monotonic() - start - ttl / 1000}

    def block(self, resource: str, ttl: int, fails: bool) -> Json:
        try:
            with self._library.block(resource, ttl):
                say({"inside": True})
                sys.stdin.readline()
                if fails:
                    raise BodyError
        except Exception as error:  # noqa: BLE001 - which one is what is asked
            return {"came_out": type(error).__name__}
        return {"came_out": None}

    def fork(self, resource: str, ttl: int) -> Json:
        block = self._library.block(resource, ttl)
        block.__enter__()
        child = os.fork()
        if child == 0:
            try:
                block.__exit__(None, None, None)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        self._held[resource] = block
        return {}

    def cancel(self, resource: str, ttl: int) -> Json:
        async def work() -> None:
            task = asyncio.ensure_future(self._library.acquiring(resource, ttl))
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
            task.cancel()
            await asyncio.wait([task])

        self._library.run(work())
        return {}


def main() -> None:
    """The command line."""
    name, *nodes = sys.argv[1:]
    actions = Actions(LIBRARIES[name](nodes))
    say({"version": ""})
    for line in iter(sys.stdin.readline, ""):
        request = json.loads(line)
        try:
            say(getattr(actions, request.pop("do"))(**request))
        except Exception as error:  # noqa: BLE001 - whatever it is, the other side is told
            say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
