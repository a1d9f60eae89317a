"""Tests servers that go back to older data although run, canary and connections stay.

Such a server has forgotten what came since, and no client may get a lock that is held.

Two of three nodes go back; without the guards they are a quorum for a second holder.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from quorlock import Redlock
from tests.guards.side_by_side import Case, Schedule, side_by_side
from tests.guards.testbed import (
    UNGUARDED,
    Testbed,
    assert_kept_out,
    assert_let_in,
    gets_in,
    sleep_until,
)
from tests.support.cluster import Cluster
from tests.support.old_data import Failback, OldData, OldLog, Reload, Swap

pytestmark = pytest.mark.slow

#: Seconds; of the lock that is held.
TTL = 60.0
#: Seconds after which clients that are there have looked at each node twice (they do so every ten),
#: and have left with the other nodes what they saw. What is younger is told by other signs.
AGED = 24.0


def goes_back(kind: type[OldData], who: str, after: float, testbed: Testbed) -> None:
    cluster = testbed.servers(**kind.OPTIONS)
    if kind is Reload and not after and who != "unguarded" and not tells_what_it_loaded(cluster):
        pytest.skip("before Redis 7.0 nothing tells of it: see SAFETY.md")
    holders, old = testbed.warm(cluster.urls), testbed.warm(cluster.urls)
    before = [testbed.old_data(kind, server) for server in cluster[:2]]
    begun = time.monotonic()
    lock = testbed.hold(holders, "r", ttl=TTL)
    sleep_until(begun + after)
    for data in before:
        if isinstance(data, Failback) and who == "refused":
            data.become_replica()
        else:
            data.bring_back()
    if who == "refused":
        assert not gets_in(old, "free"), "two of three take no writes"
        for data in before:
            assert isinstance(data, Failback)
            data.be_promoted()
    assert cluster.values("r") == [None, None, lock.lease and lock.lease.token]
    if who == "cut":
        for server in cluster[:2]:
            server.cut_connections()
    play(testbed, cluster, who, partial(assert_kept_out, lock), old)


def tells_what_it_loaded(cluster: Cluster) -> bool:
    return "rdb_last_load_keys_loaded" in cluster[0].command("INFO", "persistence")


def goes_aside(who: str, testbed: Testbed) -> None:
    """The keys are put aside, another lock is taken meanwhile, and they come back."""
    cluster = testbed.servers()
    old = testbed.warm(cluster.urls)
    for server in cluster[:2]:
        server.command("SWAPDB", 0, 1)
    lock = testbed.hold(old, "r")
    for server in cluster[:2]:
        server.command("SWAPDB", 0, 1)
    assert cluster.values("r") == [None, None, lock.lease and lock.lease.token]
    play(testbed, cluster, who, partial(assert_kept_out, lock), old)


def play(
    testbed: Testbed, cluster: Cluster, who: str, kept_out: Callable[[Redlock], None], old: Redlock
) -> None:
    if who == "unguarded":
        assert_let_in(testbed.client(cluster.urls, **UNGUARDED))
    elif who in ("new", "strict"):
        guard = "strict" if who == "strict" else "auto"
        kept_out(testbed.client(cluster.urls, restart_guard=guard))
    else:
        kept_out(old)


def named(kind: type[OldData], who: str, after: float) -> tuple[str, Schedule]:
    age = "old" if after else "fresh"
    return f"{age} {kind.__name__.lower()}, {who} client", partial(goes_back, kind, who, after)


@side_by_side(
    dict(
        [
            *(named(Failback, who, AGED) for who in ("new", "strict", "connected", "refused")),
            *(named(Failback, who, 0) for who in ("new", "strict", "cut", "unguarded")),
            *(named(Reload, who, AGED) for who in ("new", "connected")),
            *(named(Reload, who, 0) for who in ("new", "cut", "unguarded")),
            *(named(Swap, who, AGED) for who in ("new", "strict", "connected", "cut")),
            named(Swap, "unguarded", 0),
            *(named(OldLog, who, AGED) for who in ("new", "strict", "connected")),
            named(OldLog, "unguarded", 0),
        ]
    )
)
def test_nobody_is_given_what_it_has_forgotten(case: Case) -> None:
    case.end()


@side_by_side(
    {
        f"{who} client": partial(goes_aside, who)
        for who in ("new", "strict", "connected", "unguarded")
    }
)
def test_a_memory_that_was_put_aside_is_not_believed_again(case: Case) -> None:
    case.end()
