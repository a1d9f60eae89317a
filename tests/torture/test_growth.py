"""Tests that memory, threads and file descriptors do not grow, however many operations there were.

Measured in a program of its own: once after a first lot of rounds, and again at the end.
"""

from __future__ import annotations

import json

import pytest

from tests.python.programs import Program
from tests.support.cluster import Cluster
from tests.torture.counts import FULL, times

HEAD = """
    import asyncio, atexit, contextlib, gc, json, os, sys, threading, time
    import quorlock, quorlock.aio
    nodes = os.environ["QUORLOCK_NODES"].split(",")
    locks = quorlock.Redlock(nodes, ttl=10, retry_delay=0.002, retry_jitter=0.001)
    tasks = quorlock.aio.Redlock(nodes, ttl=10, retry_delay=0.002, retry_jitter=0.001)

    def measured():
        gc.collect()
        with open("/proc/self/status") as status:
            facts = dict(line.split(":", 1) for line in status)
        return {
            "kilobytes": int(facts["VmRSS"].split()[0]),
            "threads": int(facts["Threads"]),
            "files": len(os.listdir("/proc/self/fd")),
            "objects": len(gc.get_objects()),
        }

    def grown(work, rounds):
        # The first lot fills what is kept on purpose: caches, pools of the allocator.
        for number in range(rounds // 4): work(number)
        before = measured()
        for number in range(rounds): work(number)
        print(json.dumps([before, measured()]))
"""

#: What is done, and how often in full.
WORKS = {
    "acquire and release": (
        """
        lock = locks.lock("r")
        def work(number):
            lock.acquire()
            lock.release()
        """,
        100_000,
    ),
    "blocks with callbacks": (
        """
        def work(number):
            with locks.lock(f"r{number % 100}", on_lost=lambda: None) as lease:
                lease.extend()
        """,
        20_000,
    ),
    "asyncio": (
        """
        loop = asyncio.new_event_loop()
        loop.set_debug(False)
        atexit.register(loop.close)
        async def one(number):
            async with tasks.lock(f"r{number}"): pass
        async def ten():
            await asyncio.gather(*(one(number) for number in range(10)))
        def work(number):
            loop.run_until_complete(ten())
        """,
        10_000,
    ),
    "cancelled tasks": (
        """
        loop = asyncio.new_event_loop()
        loop.set_debug(False)
        atexit.register(loop.close)
        held = locks.lock("r", auto_extend=True)
        held.acquire()
        async def given_up():
            task = asyncio.create_task(tasks.lock("r").acquire())
            for _ in range(3): await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        async def caught_up():
            async with tasks.lock("other"): pass
        def work(number):
            loop.run_until_complete(given_up())
            # Who never waits may be ahead of the servers: what they have to answer is no leak.
            if number % 100 == 99: loop.run_until_complete(caught_up())
        """,
        10_000,
    ),
    "refused": (
        """
        held = locks.lock("r", auto_extend=True)
        held.acquire()
        other = locks.lock("r")
        def work(number):
            with contextlib.suppress(quorlock.QuorumUnreachable):  # a busy machine
                assert not other.acquire(blocking=False)
        """,
        20_000,
    ),
    "forgotten leases": (
        """
        def work(number):
            lock = locks.lock(f"r{number}", ttl=0.05, auto_extend=True, on_lost=lambda: None)
            lock.acquire()
            del lock
        """,
        20_000,
    ),
    "managers": (
        """
        def work(number):
            own = quorlock.Redlock(nodes)
            with contextlib.suppress(quorlock.QuorumUnreachable):  # a busy machine
                own.lock("r", ttl=1).acquire(blocking=False)
            if number % 2: own.close()
        """,
        2_000,
    ),
    "loops": (
        """
        async def one():
            async with tasks.lock("r"): pass
        def work(number):
            asyncio.run(one(), debug=False)
        """,
        4_000,
    ),
    "threads": (
        """
        def one():
            with locks.lock("r", on_lost=lambda: None): pass
        def work(number):
            thread = threading.Thread(target=one)
            thread.start()
            thread.join()
        """,
        10_000,
    ),
    "dead nodes": (
        """
        import logging
        logging.disable(logging.WARNING)  # that two nodes are down
        gone = quorlock.Redlock(["redis://127.0.0.1:1", "redis://127.0.0.1:2", nodes[0]])
        def work(number):
            try:
                gone.lock("r").acquire(blocking=False)
            except quorlock.QuorumUnreachable:
                pass
        """,
        10_000,
    ),
}


@pytest.mark.parametrize("work", WORKS)
def test_nothing_grows(cluster3: Cluster, work: str) -> None:
    code, full = WORKS[work]
    rounds = times(full // 100, full)
    lines = code.replace("\n    ", "\n")
    with Program(f"{HEAD}{lines}\n    grown(work, {rounds})\n", nodes=cluster3.urls) as program:
        status, out, errors = program.end(times(120, 1200))
    assert (status, errors) == (0, "")
    before, after = json.loads(out)
    told = f"{work}: {before} -> {after} after {rounds} more rounds"
    if FULL:
        print(told)
    # A leak of one thing for each round is far above; what wavers is far below.
    assert after["threads"] <= before["threads"] + 1, told
    assert after["files"] <= before["files"] + 8, told
    assert after["objects"] <= before["objects"] + rounds // 5, told
    # Of the smallest object that could be lost, 64 bytes, in a full run; the allocator wavers.
    assert after["kilobytes"] <= before["kilobytes"] + max(3000, rounds * 64 // 1024), told
