"""Tests nodes that forget locks or free them early: only the guards keep other clients out."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple

import pytest

import quorlock.aio
from quorlock import ConfigError, LockError, QuorumUnreachable
from tests.python.apis import Api, both_apis
from tests.support.cluster import Cluster
from tests.support.proxy import FaultProxy

#: Seconds; of locks that must outlast a schedule, however slow the machine is.
TTL = 20.0
#: Of locks whose end is waited for.
SHORT = 4.0
#: How long a second client tries to get in.
PATIENCE = 1.5

needs_clocks = pytest.mark.skipif(
    sys.platform != "linux", reason="clocks can be set on Linux alone"
)


class Scene(NamedTuple):
    """A lock that is held on A and C of three; B is out of its holder's reach, and free."""

    cluster: Cluster
    holder: Any
    #: Connected since before.
    old: Any
    to_a: FaultProxy


@contextlib.asynccontextmanager
async def scene(
    api: Api, cluster: Cluster, fault_proxy: Callable[..., FaultProxy], **guards: Any
) -> AsyncIterator[Scene]:
    to_a, to_b = fault_proxy(cluster[0]), fault_proxy(cluster[1])
    holders = api.Redlock([cluster[0].url, to_b.url, cluster[2].url])
    others = api.Redlock(cluster.urls, **guards)
    for locks in (holders, others):
        await warm_up(api, locks)
    to_b.refuse()
    await api.until(lambda: holders.nodes[1].state == "down")
    lock = holders.lock("r", ttl=TTL)
    assert await api(lock.acquire())
    assert cluster.values("r")[1] is None
    try:
        yield Scene(cluster, lock, others, to_a)
    finally:
        for locks in (holders, others):
            await api(locks.close())


async def warm_up(api: Api, locks: Any, ttl: float = TTL) -> None:
    async with api.block(locks.lock("warm", ttl=ttl)):
        pass
    await api.until(lambda: {node.state for node in locks.nodes} == {"healthy"})


async def client(api: Api, scene: Scene, which: str, **guards: Any) -> Any:
    if which == "old":
        return scene.old
    if which == "one-sided":
        scene.to_a.refuse()
        return api.Redlock([scene.to_a.url, *scene.cluster.urls[1:]], **guards)
    return api.Redlock(scene.cluster.urls, **guards)


async def try_to_get_in(api: Api, scene: Scene, locks: Any) -> None:
    try:
        async with api.block(locks.lock("r", ttl=TTL, timeout=PATIENCE)):
            pass
    finally:
        assert scene.holder.owned(), "the schedule took too long to mean anything"


def forget(cluster: Cluster, how: str) -> None:
    """C forgets the lock that it has a part in."""
    if how == "restart":
        cluster[2].restart()
    elif how == "flush":
        cluster[2].flush()
    elif how == "step":
        cluster[2].set_clock(40)
    else:
        raise ValueError(how)


QUARANTINED = (
    "may have forgotten locks|locks among them|clock was set forward|locks may have ended early"
)


@pytest.mark.parametrize("which", ["old", "new", "one-sided"])
@both_apis
async def test_the_crash_recovery_schedule_ends_in_a_refusal(
    api: Api, servers: Callable[..., Cluster], fault_proxy: Callable[..., FaultProxy], which: str
) -> None:
    async with scene(api, servers(3), fault_proxy) as it:
        forget(it.cluster, "restart")
        locks = await client(api, it, which)
        with pytest.raises(LockError, match=QUARANTINED):
            await try_to_get_in(api, it, locks)
        await api(locks.close())


@both_apis
async def test_a_node_that_is_flushed_under_a_held_lock_is_quarantined(
    api: Api, servers: Callable[..., Cluster], fault_proxy: Callable[..., FaultProxy]
) -> None:
    async with scene(api, servers(3), fault_proxy) as it:
        forget(it.cluster, "flush")
        with pytest.raises(LockError, match=QUARANTINED):
            await try_to_get_in(api, it, it.old)
        # Its key on A is no quorum, and nobody pretends otherwise.
        with pytest.raises(QuorumUnreachable, match="2 of 3 nodes are needed"):
            await api(it.holder.lease.extend(TTL))


@both_apis
async def test_a_holder_gives_a_flushed_node_its_key_again(
    api: Api, servers: Callable[..., Cluster]
) -> None:
    cluster = servers(3)
    locks, others = api.Redlock(cluster.urls), api.Redlock(cluster.urls)
    for each in (locks, others):
        await warm_up(api, each)
    async with api.block(locks.lock("r", ttl=5)) as lease:
        cluster[2].flush()
        assert not await api(others.lock("r", blocking=False).acquire())
        await api.until(lambda: cluster.values("r") == [lease.token] * 3)
        assert not await api(others.lock("r", blocking=False).acquire())
        assert lease.is_valid
    for each in (locks, others):
        await api(each.close())


@needs_clocks
@pytest.mark.parametrize("which", ["old", "new", "one-sided"])
@both_apis
async def test_the_clock_jump_schedule_ends_in_a_refusal(
    api: Api, servers: Callable[..., Cluster], fault_proxy: Callable[..., FaultProxy], which: str
) -> None:
    async with scene(api, servers(3, clock=True), fault_proxy) as it:
        forget(it.cluster, "step")
        locks = await client(api, it, which)
        with pytest.raises(LockError, match=QUARANTINED):
            await try_to_get_in(api, it, locks)
        await api(locks.close())


@pytest.mark.parametrize("how", ["restart", "flush", pytest.param("step", marks=needs_clocks)])
@both_apis
async def test_without_the_guards_there_are_two_holders(
    api: Api, servers: Callable[..., Cluster], fault_proxy: Callable[..., FaultProxy], how: str
) -> None:
    off = {"restart_guard": "off", "clock_guard": False}
    async with scene(api, servers(3, clock=how == "step"), fault_proxy, **off) as it:
        forget(it.cluster, how)
        await try_to_get_in(api, it, it.old)


@both_apis
async def test_a_restarted_majority_is_told_with_the_time_left(
    api: Api, servers: Callable[..., Cluster]
) -> None:
    cluster = servers(3)
    locks = api.Redlock(cluster.urls, max_ttl=SHORT, ttl=1)
    await warm_up(api, locks, ttl=1)
    begun = time.monotonic()
    cluster[0].restart()
    cluster[1].restart()
    await api.until(lambda: [it.state for it in locks.nodes[:2]] == ["quarantined"] * 2)
    node = locks.nodes[0]
    assert 0 < node.quarantine <= SHORT * 1.01 + 0.01
    assert "restarted" in node.detail
    with pytest.raises(QuorumUnreachable) as refused:
        await api(locks.lock("r", blocking=False).acquire())
    told = re.search(r"2 of 3 nodes in quarantine, ([\d.]+) (m?s) left", str(refused.value))
    assert told, refused.value
    left = float(told[1]) / (1000 if told[2] == "ms" else 1)
    assert left <= SHORT * 1.01 + 0.01
    # A waiting caller gets the lock when the quarantine ends, without a limit of its own.
    async with api.block(locks.lock("r")):
        assert time.monotonic() - begun >= SHORT
    await api(locks.close())


@both_apis
async def test_a_longer_lock_than_the_longest_is_refused(api: Api) -> None:
    locks = api.Redlock(["memory://a"], max_ttl=TTL, ttl=1)
    with pytest.raises(ConfigError, match="max_ttl"):
        locks.lock("r", ttl=TTL + 1)
    async with api.block(locks.lock("r")) as lease:
        with pytest.raises(ConfigError, match="max_ttl"):
            await api(lease.extend(TTL + 1))


def test_locks_go_round_while_every_node_is_restarted_in_turn(
    servers: Callable[..., Cluster],
) -> None:
    asyncio.run(roll(servers(5)))


async def roll(cluster: Cluster) -> None:
    ttl = 1.5
    managers = [quorlock.aio.Redlock(cluster.urls) for _ in range(3)]
    inside: list[int] = []
    turns: list[float] = []
    tokens: list[int] = []
    done = asyncio.Event()

    async def contend(number: int) -> None:
        while not done.is_set():
            async with managers[number % 3].lock("r", ttl=ttl, raise_on_lost=False) as lease:
                if not lease.is_valid:
                    continue
                inside.append(number)
                assert inside == [number], "two at once"
                assert lease.fencing_token is not None
                tokens.append(lease.fencing_token)
                turns.append(time.monotonic())
                await asyncio.sleep(0.002)
                inside.remove(number)

    tasks = [asyncio.create_task(contend(number)) for number in range(9)]
    for server in cluster:
        before = len(turns)
        await asyncio.to_thread(server.restart)
        # The next one goes only when this one is back: a rolling restart.
        while len(turns) == before or any(node.state != "healthy" for node in managers[0].nodes):
            assert not any(task.done() for task in tasks), tasks
            await asyncio.sleep(0.01)
    done.set()
    await asyncio.gather(*tasks)
    assert tokens == sorted(set(tokens))
    assert max(later - sooner for sooner, later in itertools.pairwise(turns)) < 15
    for locks in managers:
        await locks.close()
