"""Tests clients that differ: many with long locks, some with short ones, one that starts later.

Some hold long locks beside clients with short ones, and a client that starts later meets a node
whose clock was set back.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from functools import partial

import pytest

from quorlock import LockNotAcquired, QuorumUnreachable, Redlock
from tests.guards.side_by_side import Case, side_by_side
from tests.guards.testbed import UNGUARDED, Testbed, assert_kept_out, gets_in, restart_empty
from tests.support.wait import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="clocks can be set on Linux alone"),
]

#: More than a node has room for entries of their own.
MANY = 80


def many_begin_at_once(testbed: Testbed) -> None:
    """Workers of one deployment are started together, each with a lock of two minutes."""
    cluster = testbed.servers()
    managers = [testbed.client(cluster.urls) for _ in range(MANY)]
    for locks in managers:
        testbed.touch(locks)
    start = threading.Barrier(MANY)
    outcomes: Counter[str] = Counter()

    def work(number: int, locks: Redlock) -> None:
        start.wait()
        try:
            outcomes[str(locks.lock(f"job:{number}", ttl=120).acquire(timeout=20))] += 1
        except (LockNotAcquired, QuorumUnreachable) as error:
            outcomes[str(error)] += 1

    workers = [threading.Thread(target=work, args=it) for it in enumerate(managers)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert outcomes == {"True": MANY}
    # What found no room of its own is heeded all the same.
    for server in cluster[:2]:
        restart_empty(server)
    new = testbed.client(cluster.urls)
    with pytest.raises((LockNotAcquired, QuorumUnreachable)):
        new.lock("job:0").acquire(timeout=14)


def step_that_a_long_lock_would_bear(testbed: Testbed, *, unguarded: bool = False) -> None:
    """A lock of 20 s on B and C. The clock of B is set forward by less than 1 % of the ttl of
    another client."""
    cluster = testbed.servers(clock=True)
    to_a = testbed.proxy(cluster[0])
    holder = testbed.warm([to_a.url, *cluster.urls[1:]])
    other = testbed.warm(cluster.urls, ttl=2000, **(UNGUARDED if unguarded else {}))
    to_a.refuse()
    lock = testbed.hold(holder, "r", ttl=20)
    cluster[1].set_clock(15)
    if unguarded:
        eventually(lambda: gets_in(other), 15)
        assert lock.lease is not None
        assert lock.lease.validity > 0, "the schedule shows nothing"
    else:
        eventually(lambda: cluster[1].command("GET", "r") is None, 8)
        assert_kept_out(lock, other)


def clock_that_was_set_back(testbed: Testbed, *, unguarded: bool = False) -> None:
    """A long lock on A and C; A restarts. The clock of C, whose note tells of it, is set back.
    Who finds that A has forgotten does not reach C; a newcomer reaches all."""
    cluster = testbed.servers(clock=True)
    proxies = [testbed.proxy(server) for server in cluster]
    holder = testbed.warm([proxy.url for proxy in proxies])
    proxies[1].refuse()
    lock = testbed.hold(holder, "r", ttl=90)
    for proxy in proxies:
        proxy.refuse()
    cluster[2].set_clock(-60)
    restart_empty(cluster[0])
    first = testbed.client([*cluster.urls[:2], proxies[2].url])
    with pytest.raises((LockNotAcquired, QuorumUnreachable)):
        first.lock("x").acquire(timeout=5)
    first.close()
    options = UNGUARDED if unguarded else {}
    new = testbed.client(cluster.urls, **options)
    if unguarded:
        eventually(lambda: gets_in(new), 20)
    else:
        assert_kept_out(lock, new, patience=12)


@side_by_side(
    {
        "many begin at once": many_begin_at_once,
        "a step that a long lock would bear": step_that_a_long_lock_would_bear,
        "a step, unguarded": partial(step_that_a_long_lock_would_bear, unguarded=True),
        "a clock that was set back": clock_that_was_set_back,
        "a clock that was set back, unguarded": partial(clock_that_was_set_back, unguarded=True),
    }
)
def test_clients_that_differ_keep_each_other_out(case: Case) -> None:
    case.end()
