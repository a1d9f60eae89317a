"""Tests the end of the interpreter with operations under way, many times: no crash and no hang."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.python.programs import Program
from tests.support.cluster import Cluster
from tests.torture.counts import times

HEAD = """
    import asyncio, os, random, signal, sys, threading, time
    import quorlock, quorlock.aio
    nodes = os.environ["QUORLOCK_NODES"].split(",")
    locks = quorlock.Redlock(nodes, retry_delay=0.002, retry_jitter=0.001)
    tasks = quorlock.aio.Redlock(nodes, retry_delay=0.002, retry_jitter=0.001)

    def busy(number):
        while True:
            with locks.lock(f"busy-{number % 3}", on_lost=print): pass

    async def busy_async(number):
        while True:
            async with tasks.lock(f"task-{number % 5}"): pass

    def loop():
        async def main(): await asyncio.gather(*(busy_async(number) for number in range(20)))
        asyncio.run(main(), debug=False)

    def losing():
        # Callbacks on the library's own thread, and tasks that are cancelled by a loss.
        while True:
            lock = locks.lock("lost", ttl=0.02, on_lost=lambda: time.sleep(0.001))
            lock.acquire(timeout=1)
            time.sleep(0.005)

    def managers():
        while True:
            with quorlock.Redlock(nodes) as own:
                own.lock("own", ttl=1).acquire(blocking=False)

    def slow_managers():
        import logging
        class Slow(logging.Handler):
            def emit(self, record): time.sleep(0.002)
        logging.getLogger("quorlock").addHandler(Slow())
        logging.getLogger("quorlock").addHandler(logging.lastResort)
        managers()

    for target in {targets}:
        threading.Thread(target=target[0], args=target[1:], daemon=True).start()
    time.sleep(random.uniform(0, 0.15))
"""
WORK = {
    "threads": "[(busy, 0), (busy, 1), (busy, 2), (busy, 3)]",
    "loops": "[(loop,), (loop,)]",
    "notices": "[(managers,), (managers,), (slow_managers,)]",
    "losses and managers": "[(losing,), (managers,), (busy, 0)]",
}
#: How the program ends, and with which status.
ENDINGS = {
    "its last line": ("", 0),
    "sys.exit": ("sys.exit(3)", 3),
    "an exception": ("raise ValueError('the end')", 1),
    "os._exit": ("os._exit(4)", 4),
    "sigterm": ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)", -signal.SIGTERM),
    "ctrl-c": ("os.kill(os.getpid(), signal.SIGINT); time.sleep(10)", -signal.SIGINT),
    "a loop of its own": ("asyncio.run(asyncio.wait_for(busy_async(9), 0.05), debug=False)", 1),
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("work", WORK)
def test_with_work_under_way(cluster3: Cluster, work: str, ending: str) -> None:
    for _ in range(times(2, 60)):
        errors = end(cluster3, work, ending)
        assert "Fatal" not in errors
        assert "panic" not in errors


@pytest.mark.parametrize("ending", ENDINGS)
def test_with_notices_coming_in(servers: Callable[..., Cluster], ending: str) -> None:
    """Each manager has a warning of each server, which a thread logs: at the end, too."""
    evicting = servers(3, flags=("--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"))
    for _ in range(times(3, 60)):
        errors = end(evicting, "notices", ending)
        for trouble in ("Fatal", "FATAL", "panic", "Exception ignored"):
            assert trouble not in errors


def end(cluster: Cluster, work: str, ending: str) -> str:
    """What a program that is at work prints as errors; its status is that of its own end."""
    last, expected = ENDINGS[ending]
    code = HEAD.replace("{targets}", WORK[work]) + f"    {last}\n"
    with Program(code, nodes=cluster.urls) as program:
        status, _, errors = program.end(30)
    assert status == expected, errors
    return errors
