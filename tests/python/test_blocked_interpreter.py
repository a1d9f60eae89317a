"""Tests that a busy interpreter or event loop loses no lock: the core's thread renews it."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import sys
import threading
import time

from quorlock import Redlock, aio
from tests.support.cluster import Cluster

TTL = 2.0
BLOCKED = 1.5 * TTL


def hold_the_gil(seconds: float) -> None:
    """A C call that does not let the interpreter go."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


def test_the_lock_is_held_while_a_c_call_holds_the_gil(cluster3: Cluster) -> None:
    with Redlock(cluster3.urls).lock("r", ttl=TTL) as lease:
        start = time.monotonic()
        hold_the_gil(BLOCKED)
        assert time.monotonic() - start > TTL
        assert lease.is_valid
        assert cluster3.values("r") == [lease.token] * 3
        assert lease.check() > 0


def test_the_lock_is_held_while_the_loop_is_blocked(cluster3: Cluster) -> None:
    async def main() -> None:
        async with aio.Redlock(cluster3.urls).lock("r", ttl=TTL) as lease:
            time.sleep(BLOCKED)
            assert lease.is_valid
            assert cluster3.values("r") == [lease.token] * 3
            assert await lease.check() > 0

    asyncio.run(main())


def test_the_lock_is_held_while_the_interpreter_is_busy(cluster3: Cluster) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)
    try:
        with Redlock(cluster3.urls).lock("r", ttl=TTL) as lease:
            end = time.monotonic() + BLOCKED
            while time.monotonic() < end:
                sum(range(1000))
            assert lease.is_valid
            assert cluster3.values("r") == [lease.token] * 3
    finally:
        sys.setswitchinterval(interval)


def test_other_threads_run_while_one_waits(cluster3: Cluster) -> None:
    # Several chances, for a machine that does other things too.
    longest = [longest_gap(Redlock(cluster3.urls))]
    while longest[-1] >= 0.25:
        assert len(longest) < 5, f"the waiting thread kept the interpreter for {longest} s"
        longest.append(longest_gap(Redlock(cluster3.urls)))


def longest_gap(locks: Redlock) -> float:
    """For how long, at most, another thread stood still during a wait of half a second."""
    ticks = []

    def tick() -> None:
        while not stop:
            ticks.append(time.monotonic())
            time.sleep(0.001)

    stop: list[bool] = []
    thread = threading.Thread(target=tick)
    with locks.lock("r"):
        thread.start()
        assert not locks.lock("r").acquire(timeout=0.5)
        stop.append(True)
        thread.join()
    return max(later - earlier for earlier, later in itertools.pairwise(ticks))
