"""Runs a blocking library: one loop, or one thread for each pair in flight."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from bench.contestants.python.wire import Json, answer, say


class Locks(Protocol):
    """A library under test: waits as the library does by default."""

    def acquire(self, resource: str) -> Any:
        """A held lock, or None if the library gave up."""

    def release(self, held: Any) -> None:
        """Gives it back."""


class Renewing(Locks, Protocol):
    """One that also renews by itself."""

    def hold(self, resource: str) -> Any:
        """A lock that is renewed until it is released."""


def serve(locks: Locks, version: str) -> None:
    """Answers requests until the input ends."""
    worker = _Worker(locks)
    say({"version": version})
    for line in sys.stdin:
        answer(
            line,
            {
                "pairs": worker.pairs,
                "contend": worker.contend,
                "hold": worker.hold,
                "drop": worker.drop,
            },
        )


class _Worker:
    def __init__(self, locks: Any) -> None:
        self._locks = locks
        self._held: list[Any] = []

    def pairs(
        self, seconds: float, in_flight: int = 1, resources: int = 1, most: int = 100_000
    ) -> Json:
        start = time.perf_counter()
        cpu, end = time.process_time(), start + seconds

        def loop(number: int) -> list[float]:
            return self._loop(number, end, resources, most // in_flight)

        if in_flight == 1:
            samples = loop(0)
        else:
            with ThreadPoolExecutor(in_flight) as pool:
                samples = [one for each in pool.map(loop, range(in_flight)) for one in each]
        spent = time.perf_counter() - start
        return {
            "pairs": len(samples),
            "seconds": spent,
            "cpu": time.process_time() - cpu,
            "micros": [round(one * 1e6, 1) for one in samples],
        }

    def _loop(self, number: int, end: float, resources: int, most: int) -> list[float]:
        acquire, release, clock = self._locks.acquire, self._locks.release, time.perf_counter
        samples: list[float] = []
        now = clock()
        while now < end and len(samples) < most:
            held = acquire(f"bench:{number}:{len(samples) % resources}")
            if held is None:
                raise RuntimeError("refused, and nobody else was there")
            release(held)
            after = clock()
            samples.append(after - now)
            now = after
        return samples

    def contend(self, seconds: float, contenders: int, hold: float, rest: float) -> Json:
        end = time.monotonic() + seconds

        def loop(_: int) -> list[tuple[int, int, int]]:
            times, wanted = [], time.monotonic_ns()
            while time.monotonic() < end:
                held = self._locks.acquire("bench:contended")
                if held is None:
                    continue
                acquired = time.monotonic_ns()
                time.sleep(hold)
                times.append((wanted // 1000, acquired // 1000, time.monotonic_ns() // 1000))
                self._locks.release(held)
                time.sleep(rest)
                wanted = time.monotonic_ns()
            return times

        with ThreadPoolExecutor(contenders) as pool:
            return {"held": list(pool.map(loop, range(contenders)))}

    def hold(self, count: int) -> Json:
        for number in range(count):
            self._held.append(self._locks.hold(f"bench:held:{number}"))
        return {"held": len(self._held)}

    def drop(self) -> Json:
        while self._held:
            self._locks.release(self._held.pop())
        return {}
