"""Measures how long nodes that may have forgotten locks make clients wait.

Judged by test_waits.py, told by figures.py. All figures are seconds; the locks that are waited for
have a ttl of ten.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from quorlock import QuorumUnreachable, Redlock
from tests.guards.testbed import Testbed, gets_in, quarantine_left, restart_empty, sleep_until
from tests.support.cluster import Cluster
from tests.support.servers import Server
from tests.support.wait import eventually

#: After this many seconds nobody waits any more.
LIMIT = 30.0
#: For how long no client was there, where a schedule says that none was.
QUIET = 38.0
MONTH = 30 * 86_400.0
#: An orderly end saves what the server holds, and its next start loads it.
SAVES: dict[str, Any] = {"flags": ("--save", "3600 1")}


def until_held(locks: Redlock) -> float:
    """Until a lock is given."""
    begun = time.monotonic()
    if not gets_in(locks, "x", patience=LIMIT):
        return LIMIT
    return time.monotonic() - begun


def until_healthy(locks: Redlock, node: int) -> float:
    """Until a node's votes count."""
    begun = time.monotonic()
    eventually(lambda: locks.nodes[node].state == "healthy", LIMIT)
    return time.monotonic() - begun


def restart(*servers: Server) -> None:
    for server in servers:
        restart_empty(server)


def released(testbed: Testbed, ttl: float = 600, *, leaves: bool = False) -> float:
    """One long lock was released at once; two nodes restart right after."""
    cluster = testbed.servers()
    one, other = testbed.warm(cluster.urls), testbed.warm(cluster.urls)
    testbed.touch(one, "long", ttl=ttl)
    if leaves:
        one.close()
    restart(*cluster[:2])
    return until_held(other)


def released_and_nobody_there(testbed: Testbed) -> float:
    """The same; nobody was there when the nodes restarted. From the first look of a newcomer."""
    cluster = testbed.servers()
    with Testbed() as before:
        before.touch(before.warm(cluster.urls), "long", ttl=600)
    restart(*cluster[:2])
    return until_held(testbed.client(cluster.urls))


def held(testbed: Testbed, ttl: float) -> tuple[float, bool]:
    """For how long two nodes that restart are held back for the sake of a long lock whose holder is
    cut off; whether somebody else is given it in the seconds after."""
    cluster = testbed.servers()
    proxies = [testbed.proxy(server) for server in cluster]
    other = testbed.warm(cluster.urls)
    testbed.hold(testbed.warm([proxy.url for proxy in proxies]), "r", ttl=ttl)
    for proxy in proxies:
        proxy.refuse()
    restart(*cluster[:2])
    second = gets_in(other, patience=14) or gets_in(testbed.client(cluster.urls))
    return min(quarantine_left(other)[:2]), second


def nobody_there(testbed: Testbed, restarted: int, **options: Any) -> float:
    """Some nodes restart while no client runs, and a newcomer comes later than the longest lock.

    Until all of them count again."""
    cluster = testbed.servers(**options)
    with Testbed() as before:
        before.warm(cluster.urls)
    restart(*cluster[:restarted])
    time.sleep(QUIET)
    new = testbed.client(cluster.urls)
    begun = time.monotonic()
    gets_in(new, "x", patience=LIMIT)
    for node in range(restarted):
        until_healthy(new, node)
    return time.monotonic() - begun


def redeployed(testbed: Testbed, apart: float, **options: Any) -> float:
    """The nodes restart one by one while a client takes locks: its longest wait."""
    cluster = testbed.servers(**options)
    locks = testbed.warm(cluster.urls)
    waits: list[float] = []
    done = threading.Event()

    def work() -> None:
        while not done.is_set():
            waits.append(until_held(locks))
            done.wait(0.05)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        one_by_one(cluster, apart, lambda: len(waits))
    finally:
        done.set()
        worker.join()
    return max(waits)


def one_by_one(cluster: Cluster, apart: float, turns: Callable[[], int]) -> None:
    begun = time.monotonic()
    for number, server in enumerate(cluster):
        sleep_until(begun + number * apart)
        restart_empty(server)
    sleep_until(begun + len(cluster) * apart)
    before = turns()
    # Somebody who waits is counted, too.
    eventually(lambda: turns() > before, LIMIT)


def jobs_skipped(testbed: Testbed) -> int:
    """Nodes restart one by one, 16 s apart. A job that never waits begins every 4 s, each time in a
    process of its own: how often it does not get its lock."""
    cluster = testbed.servers()
    begun = time.monotonic()
    skipped = 0
    for turn in range(14):
        sleep_until(begun + turn * 4)
        if turn % 4 == 1 and turn // 4 < len(cluster):
            restart_empty(cluster[turn // 4])
        with Testbed() as life:
            skipped += not runs_at_once(life.client(cluster.urls))
    return skipped


def all_redeployed_quietly(testbed: Testbed) -> bool:
    """All nodes restart with nothing while no client runs: whether the next job gets its lock."""
    cluster = testbed.servers()
    with Testbed() as before:
        before.warm(cluster.urls)
    restart(*cluster)
    return runs_at_once(testbed.client(cluster.urls))


def runs_at_once(locks: Redlock) -> bool:
    """Whether a job that does not wait for its lock gets it."""
    lock = locks.lock("job", blocking=False)
    try:
        got = lock.acquire()
    except QuorumUnreachable:
        return False
    if got:
        lock.release()
    return got


def durable(testbed: Testbed) -> float:
    """A majority of nodes that write everything down before they answer is killed."""
    cluster = testbed.servers(appendonly=True)
    old = testbed.warm(cluster.urls)
    for server in cluster[:2]:
        server.restart()
    new = testbed.client(cluster.urls)
    return max(
        until_held(locks) + max(until_healthy(locks, 0), until_healthy(locks, 1))
        for locks in (old, new)
    )
