"""Runs an asyncio library: one task, or one for each pair in flight."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from bench.contestants.python.wire import Json, answer, say


class Locks(Protocol):
    """A library under test: waits as the library does by default."""

    async def acquire(self, resource: str) -> Any:
        """A held lock, or None if the library gave up."""

    async def release(self, held: Any) -> None:
        """Gives it back."""


class Renewing(Locks, Protocol):
    """One that also renews by itself."""

    async def hold(self, resource: str) -> Any:
        """A lock that is renewed until it is released."""


def serve(build: Callable[[], Awaitable[Locks]], version: str) -> None:
    """Answers requests until the input ends; `build` runs on the loop that everything runs on."""
    with asyncio.Runner() as runner:

        async def made() -> Locks:
            return await build()

        worker = _Worker(runner.run(made()))

        def on_loop(action: Callable[..., Coroutine[Any, Any, Json]]) -> Callable[..., Json]:
            return lambda **request: runner.run(action(**request))

        actions = {
            "pairs": on_loop(worker.pairs),
            "contend": on_loop(worker.contend),
            "hold": on_loop(worker.hold),
            "drop": on_loop(worker.drop),
            "idle": on_loop(worker.idle),
        }
        say({"version": version})
        for line in sys.stdin:
            answer(line, actions)


class _Worker:
    def __init__(self, locks: Any) -> None:
        self._locks = locks
        self._held: list[Any] = []

    async def pairs(
        self, seconds: float, in_flight: int = 1, resources: int = 1, most: int = 100_000
    ) -> Json:
        start = time.perf_counter()
        cpu, end = time.process_time(), start + seconds
        loops = [self._loop(n, end, resources, most // in_flight) for n in range(in_flight)]
        samples = [one for each in await asyncio.gather(*loops) for one in each]
        return {
            "pairs": len(samples),
            "seconds": time.perf_counter() - start,
            "cpu": time.process_time() - cpu,
            "micros": [round(one * 1e6, 1) for one in samples],
        }

    async def _loop(self, number: int, end: float, resources: int, most: int) -> list[float]:
        acquire, release, clock = self._locks.acquire, self._locks.release, time.perf_counter
        samples: list[float] = []
        now = clock()
        while now < end and len(samples) < most:
            held = await acquire(f"bench:{number}:{len(samples) % resources}")
            if held is None:
                raise RuntimeError("refused, and nobody else was there")
            await release(held)
            after = clock()
            samples.append(after - now)
            now = after
        return samples

    async def contend(self, seconds: float, contenders: int, hold: float, rest: float) -> Json:
        end = time.monotonic() + seconds

        async def loop() -> list[tuple[int, int, int]]:
            times, wanted = [], time.monotonic_ns()
            while time.monotonic() < end:
                held = await self._locks.acquire("bench:contended")
                if held is None:
                    continue
                acquired = time.monotonic_ns()
                await asyncio.sleep(hold)
                times.append((wanted // 1000, acquired // 1000, time.monotonic_ns() // 1000))
                await self._locks.release(held)
                await asyncio.sleep(rest)
                wanted = time.monotonic_ns()
            return times

        return {"held": await asyncio.gather(*(loop() for _ in range(contenders)))}

    async def hold(self, count: int) -> Json:
        for start in range(0, count, _AT_ONCE):
            names = (f"bench:held:{n}" for n in range(start, min(count, start + _AT_ONCE)))
            self._held += await asyncio.gather(*(self._locks.hold(name) for name in names))
        return {"held": len(self._held)}

    async def idle(self, seconds: float) -> Json:
        """Lets the loop run: what holds leases on it needs it."""
        await asyncio.sleep(seconds)
        return {}

    async def drop(self) -> Json:
        while self._held:
            last, self._held = self._held[-_AT_ONCE:], self._held[:-_AT_ONCE]
            await asyncio.gather(*(self._locks.release(held) for held in last))
        return {}


_AT_ONCE = 64
