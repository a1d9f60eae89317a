"""Tests nodes that restart one after another without their data, while a long lock is held.

None of the remaining nodes ever held the lock's key together with a quorum: what clients have read
of it keeps it closed.
"""

from __future__ import annotations

import time
from functools import partial

import pytest

from tests.guards.side_by_side import Case, side_by_side
from tests.guards.testbed import (
    UNGUARDED,
    Testbed,
    assert_let_in,
    gets_in,
    quarantine_left,
    restart_empty,
)
from tests.support.cluster import Cluster

pytestmark = pytest.mark.slow

#: How many seconds the lock must stay closed.
KEPT = 600.0
#: Seconds between two restarts.
APART = 3.0
#: Seconds after the last restart for which clients go on trying: longer than the wait for locks
#: that nobody has noted.
PATIENCE = 13.0


def roll(testbed: Testbed, how: str, watch: str) -> None:
    cluster = testbed.servers()
    guards = UNGUARDED if watch == "unguarded" else {}
    old = testbed.warm(cluster.urls, **guards)
    close(testbed, cluster, how)
    begun = time.monotonic()
    for number in (0, 1, 2, 0):
        restart_empty(cluster[number])
        if watch == "busy":
            assert not gets_in(old, patience=APART), since(begun)
        elif watch == "idle":
            time.sleep(APART)
    new = testbed.client(cluster.urls, **guards)
    if watch == "unguarded":
        assert_let_in(old)
        return
    for locks in (old, new):
        assert not gets_in(locks, patience=PATIENCE / 2), since(begun)
        # A majority is in quarantine until the lock ends, so that nobody gets it before.
        left = sorted(quarantine_left(locks))[1]
        assert left > KEPT - 60, f"held back for {left:.1f} s only, {since(begun)}"


def close(testbed: Testbed, cluster: Cluster, how: str) -> None:
    """The lock is closed to others, and the client that closed it has gone."""
    if how == "held":
        proxies = [testbed.proxy(server) for server in cluster]
        holder = testbed.warm([proxy.url for proxy in proxies])
        testbed.hold(holder, "r", ttl=KEPT)
        for proxy in proxies:
            proxy.refuse()
    else:
        job = testbed.warm(cluster.urls)
        testbed.touch(job, "r", min_hold=KEPT)
        job.close()
    assert all(server.keys("r")["r"] > (KEPT - 30) * 1000 for server in cluster)


def since(begun: float) -> str:
    return f"{time.monotonic() - begun:.1f} s after the first restart"


@side_by_side(
    {
        f"{how}, {watch} clients": partial(roll, how=how, watch=watch)
        for how in ("held", "least hold")
        for watch in ("busy", "idle", "unguarded")
    }
)
def test_a_long_lock_stays_closed(case: Case) -> None:
    case.end()
