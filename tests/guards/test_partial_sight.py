"""Tests clients that reach different nodes.

A node that one client trusts with good reason is not trusted by another that knows more, and one
unreachable node does not keep a new client from judging clocks.
"""

from __future__ import annotations

import signal
import sys
import time
from functools import partial
from typing import NamedTuple

import pytest

from quorlock import Lock
from tests.guards.side_by_side import Case, side_by_side
from tests.guards.testbed import UNGUARDED, Testbed, assert_kept_out, assert_let_in, restart_empty
from tests.python.programs import Program
from tests.support.cluster import Cluster
from tests.support.wait import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="clocks can be set on Linux alone"),
]

#: Seconds; of the lock that is held.
TTL = 30.0


class Known(NamedTuple):
    """A lock of three nodes, two of which have forgotten it."""

    lock: Lock
    cluster: Cluster
    #: When they had restarted.
    restarted: float


def known_to_the_third(testbed: Testbed, cluster: Cluster | None = None) -> Known:
    """Two of three nodes restart. Somebody reaches them alone, and uses them. The third still
    knows."""
    cluster = cluster or testbed.servers()
    proxies = [testbed.proxy(server) for server in cluster]
    holder = testbed.warm([proxy.url for proxy in proxies])
    lock = testbed.hold(holder, "r", ttl=TTL)
    for proxy in proxies:
        proxy.refuse()
    for server in cluster[:2]:
        restart_empty(server)
    restarted = time.monotonic()
    founder = testbed.client([*cluster.urls[:2], proxies[2].url])
    testbed.touch(founder, "other")
    return Known(lock, cluster, restarted)


def founder_that_was_cut_off(testbed: Testbed, *, unguarded: bool = False, late: float = 0) -> None:
    """The third node's first answers to a newcomer each come this late."""
    lock, cluster, restarted = known_to_the_third(testbed)
    third = testbed.proxy(cluster[2])
    third.delay(late)
    new = testbed.client([*cluster.urls[:2], third.url], **(UNGUARDED if unguarded else {}))
    if unguarded:
        assert_let_in(new)
        return
    assert_kept_out(lock, new, patience=4)
    third.heal()
    second = new.lock("r")
    assert second.acquire(timeout=2 * TTL)
    assert lock.lease is not None
    assert lock.lease.validity == 0, "a second holder"
    # The nodes are used again as soon as the lock that they may have forgotten is over.
    assert time.monotonic() - restarted < TTL * 1.01 + 4
    second.release()


def newcomers_with_little_time(testbed: Testbed) -> None:
    """The third node's first answers come later than they can wait."""
    lock, cluster, _ = known_to_the_third(testbed)
    third = testbed.proxy(cluster[2])
    third.delay(0.1)
    for patience in (0.02, 0.05, 0.1, 0.2, 0.4):
        new = testbed.client([*cluster.urls[:2], third.url], retry_delay=0.002)
        assert_kept_out(lock, new, patience=patience)


#: What an old client does before.
WARM = """
locks.lock("warm").acquire()
while any(node.state != "healthy" for node in locks.nodes):
    time.sleep(0.01)
print("been there")
sys.stdin.readline()
"""
CLIENT = """
import os, sys, time
from quorlock import LockNotAcquired, QuorumUnreachable, Redlock
locks = Redlock(os.environ["QUORLOCK_NODES"].split(","), retry_delay=0.002)
{warm}
try:
    print(locks.lock("r").acquire(timeout=4))
except (LockNotAcquired, QuorumUnreachable) as error:
    print(error.code)
"""


def third_node_refuses_at_first(testbed: Testbed) -> None:
    lock, cluster, _ = known_to_the_third(testbed)
    third = testbed.proxy(cluster[2])
    third.refuse()
    with Program(CLIENT.format(warm=""), nodes=[*cluster.urls[:2], third.url]) as newcomer:
        time.sleep(0.3)
        third.heal()
        assert_refused(newcomer, lock)


def newcomer_that_is_paused_briefly(testbed: Testbed) -> None:
    """The pause is a little longer than connecting may take."""
    lock, cluster, _ = known_to_the_third(testbed)
    third = testbed.proxy(cluster[2])
    third.delay(0.1)
    with Program(CLIENT.format(warm=""), nodes=[*cluster.urls[:2], third.url]) as newcomer:
        eventually(lambda: third.connections)
        newcomer.signal(signal.SIGSTOP)
        time.sleep(1.1)
        newcomer.signal(signal.SIGCONT)
        assert_refused(newcomer, lock)


def newcomer_that_is_paused(testbed: Testbed) -> None:
    """It stands still while it connects to the third node, for longer than that may take."""
    lock, cluster, _ = known_to_the_third(testbed)
    third = testbed.proxy(cluster[2])
    third.stall()
    with Program(CLIENT.format(warm=""), nodes=[*cluster.urls[:2], third.url]) as newcomer:
        eventually(lambda: third.connections)
        time.sleep(0.3)  # for what the other two answer
        newcomer.signal(signal.SIGSTOP)
        third.heal()
        time.sleep(1.5)
        newcomer.signal(signal.SIGCONT)
        assert_refused(newcomer, lock)


def old_client_that_was_paused(testbed: Testbed) -> None:
    """It could not reach the third node when it was paused, and does not know that it can now."""
    cluster = testbed.servers()
    third = testbed.proxy(cluster[2])
    with Program(CLIENT.format(warm=WARM), nodes=[*cluster.urls[:2], third.url]) as client:
        assert client.line() == "been there"
        third.refuse()
        time.sleep(2.5)  # until it tries every two seconds
        client.signal(signal.SIGSTOP)
        lock, _, _ = known_to_the_third(testbed, cluster)
        third.heal()
        third.delay(0.1)
        client.write("\n")
        client.signal(signal.SIGCONT)
        assert_refused(client, lock)


def assert_refused(client: Program, lock: Lock) -> None:
    told = client.line()
    assert lock.lease is not None
    assert lock.lease.validity > 0, "the schedule took too long to mean anything"
    assert told in ("False", "QUORUM_UNREACHABLE"), told


def newcomer_with_a_node_missing(testbed: Testbed, who: str) -> None:
    """A lock on A and C of three. Others never reach A, nobody reaches all; C's clock is set."""
    cluster = testbed.servers(clock=True)
    to_a, to_b = testbed.proxy(cluster[0]), testbed.proxy(cluster[1])
    to_a.refuse()
    to_b.refuse()
    holder = testbed.client([cluster[0].url, to_b.url, cluster[2].url])
    testbed.touch(holder)
    seen = testbed.client([to_a.url, *cluster.urls[1:]])
    testbed.touch(seen)
    # Longer than a client lets pass before it looks again: it has noted what it sees.
    time.sleep(11)
    testbed.touch(seen)
    lock = testbed.hold(holder, "r", ttl=TTL)
    seen.close()
    assert cluster.values("r")[1] is None
    cluster[2].set_clock(TTL + 10)
    eventually(lambda: cluster[2].command("GET", "r") is None)
    if who == "unguarded":
        assert_let_in(testbed.client([to_a.url, *cluster.urls[1:]], **UNGUARDED))
        return
    new = testbed.client([to_a.url, *cluster.urls[1:]], restart_guard=who)
    assert_kept_out(lock, new, patience=4)


@side_by_side(
    {
        "founder that was cut off": founder_that_was_cut_off,
        "founder that was cut off, third node is slow": partial(founder_that_was_cut_off, late=0.1),
        "founder that was cut off, newcomers with little time": newcomers_with_little_time,
        "founder that was cut off, third node refuses at first": third_node_refuses_at_first,
        "founder that was cut off, newcomer is paused": newcomer_that_is_paused,
        "founder that was cut off, newcomer is paused briefly": newcomer_that_is_paused_briefly,
        "founder that was cut off, old client was paused": old_client_that_was_paused,
        "founder that was cut off, unguarded": partial(founder_that_was_cut_off, unguarded=True),
        **{
            f"newcomer with a node missing, {who}": partial(newcomer_with_a_node_missing, who=who)
            for who in ("auto", "strict", "unguarded")
        },
    }
)
def test_nobody_is_given_what_others_hold(case: Case) -> None:
    case.end()
