"""Tests that a quorum decides at once: with a node down, hung or slow, and with an even number."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from quorlock import LockNotAcquired, QuorumUnreachable, Redlock
from tests.python.apis import Api, both_apis
from tests.support.cluster import Cluster
from tests.support.proxy import FaultProxy
from tests.support.wait import eventually

Proxies = Callable[..., FaultProxy]


@pytest.mark.parametrize("trouble", ["kill", "pause"])
@both_apis
async def test_two_of_three_are_enough_from_the_start(
    api: Api, cluster3: Cluster, trouble: str
) -> None:
    # A cluster that nobody has used yet is set up only once every node was tried.
    async with api.block(api.Redlock(cluster3.urls).lock("r")):
        await api.until(lambda: all(cluster3.values("quorlock:{node}:canary")))
    getattr(cluster3[0], trouble)()
    # One timeout of one node would show in any of them.
    lock = api.Redlock(cluster3.urls, node_timeout=3).lock("r", ttl=10)
    times = []
    for _ in range(20):
        start = time.monotonic()
        async with api.block(lock) as lease:
            assert [vote.outcome for vote in lease.votes[1:]] == ["granted"] * 2
        times.append(time.monotonic() - start)
    assert max(times) < 3, times
    cluster3.heal()
    await api.until(lambda: cluster3.values("r") == [None] * 3)


@pytest.mark.parametrize("count", [2, 4])
@both_apis
async def test_a_split_vote_is_lost_and_settles(api: Api, cluster5: Cluster, count: int) -> None:
    nodes = cluster5[:count]
    for server in nodes[: count // 2]:
        server.command("SET", "r", "somebody else", "PX", 60_000)
    locks = api.Redlock([server.url for server in nodes])
    start = time.monotonic()
    with pytest.raises(LockNotAcquired) as refused:
        async with api.block(locks.lock("r", blocking=False)):
            pytest.fail("the body ran without the lock")
    assert time.monotonic() - start < 5
    assert refused.value.attempts == 1
    half = ["somebody else"] * (count // 2)
    await api.until(lambda: cluster5.values("r")[:count] == half + [None] * (count // 2))


@both_apis
async def test_a_held_lock_is_told_from_trouble_with_nodes(
    api: Api, cluster3: Cluster, fault_proxy: Proxies
) -> None:
    slow = fault_proxy(cluster3[2])
    locks = api.Redlock([*cluster3.urls[:2], slow.url], unreachable_timeout=0.2, node_timeout=2)
    holder = api.Redlock(cluster3.urls).lock("r", ttl=6)
    assert await api(holder.acquire())
    cluster3[0].kill()
    async with api.block(locks.lock("warm")):
        pass
    # The refusal of the slow node always comes after the verdict.
    slow.delay(0.02)
    for _ in range(10):
        assert await api(locks.lock("r").acquire(blocking=False)) is False
    # Waiting without a limit outlasts the patience that is for broken nodes.
    assert await api(locks.lock("r", ttl=5).acquire())
    assert not holder.owned()


@both_apis
async def test_a_round_that_took_too_long_is_no_lease(
    api: Api, cluster3: Cluster, fault_proxy: Proxies
) -> None:
    proxies = [fault_proxy(server) for server in cluster3]
    locks = api.Redlock([proxy.url for proxy in proxies], node_timeout=5)
    async with api.block(locks.lock("warm", ttl=10)):
        pass
    for proxy in proxies:
        proxy.delay(0.15, "to_client")
    # Every node grants, and answers when the time is over.
    lock: Any = locks.lock("r", ttl=0.2, blocking=False)
    with pytest.raises(QuorumUnreachable):
        await api(lock.acquire())
    assert lock.lease is None
    for proxy in proxies:
        proxy.delay(0)
    lock = locks.lock("r", ttl=30, timeout=20)
    assert await api(lock.acquire())
    assert lock.lease.validity > 20


def test_failed_tries_do_not_stand_in_the_way_of_the_next(cluster3: Cluster) -> None:
    contenders = [Redlock(cluster3.urls).lock("r", ttl=60, blocking=False) for _ in range(3)]
    for server in cluster3[:2]:
        server.command("SET", "r", "somebody else")
    for lock in contenders * 3:
        assert not lock.acquire()
    for server in cluster3[:2]:
        server.command("DEL", "r")
    # The third node had granted each of them.
    eventually(lambda: cluster3.values("r") == [None] * 3)
    assert contenders[0].acquire()
