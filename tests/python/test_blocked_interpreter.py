"""Tests that a busy interpreter or event loop loses no lock, since the core's thread renews it, and
that a process that was stopped takes its own standstill for no fault of a node."""

from __future__ import annotations

import asyncio
import ctypes
import itertools
import signal
import sys
import threading
import time

import pytest

from quorlock import Redlock, aio
from tests.python.programs import NodeProgram, Program
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


TRIES_ONCE = """
    import os, signal, quorlock
    is_ended = []
    signal.signal(signal.SIGTERM, lambda *_: is_ended.append(True))
    with quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(",")) as locks:
        lock = locks.lock("r", blocking=False)
        assert lock.acquire()
        print("begun")
        while not is_ended:
            lock.release()
            assert lock.acquire()
        lock.release()
"""
TRIES_ONCE_IN_NODE = """
    import { Redlock } from 'quorlock'
    const nodes = process.env.QUORLOCK_NODES.split(',')
    const redlock = new Redlock(nodes, { retryCount: 0 })
    let isEnded = false
    process.on('SIGTERM', () => (isEnded = true))
    let lock = await redlock.acquire('r', 10_000)
    console.log('begun')
    while (!isEnded) {
      await lock.release()
      lock = await redlock.acquire('r', 10_000)
    }
    await lock.release()
    await redlock.close()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="nothing stops a process there")
@pytest.mark.parametrize(
    ("kind", "code"),
    [(Program, TRIES_ONCE), (NodeProgram, TRIES_ONCE_IN_NODE)],
    ids=["python", "node"],
)
def test_a_process_that_is_stopped_during_its_only_try_gets_the_lock(
    cluster3: Cluster, kind: type[Program], code: str
) -> None:
    """What was not sent in time is sent again; nobody else wants the lock."""
    with kind(code, nodes=cluster3.urls) as program:
        assert program.line() == "begun"
        for _ in range(8):
            program.signal(signal.SIGSTOP)
            time.sleep(0.5)  # longer than nodes are waited for
            program.signal(signal.SIGCONT)
            time.sleep(0.1)  # it is within another of its tries
        program.signal(signal.SIGTERM)
        status, out, errors = program.end()
    assert (status, out, errors) == (0, "", "")
