"""Tests what Python callers see of lost replies, and of hung and dead nodes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest

from quorlock import LockTimeout, QuorumUnreachable
from tests.python.apis import Api, both_apis
from tests.support.cluster import Cluster
from tests.support.proxy import FaultProxy

Proxies = Callable[..., FaultProxy]


@both_apis
async def test_a_lost_reply_to_a_grant_does_not_refuse_itself(
    api: Api, cluster3: Cluster, fault_proxy: Proxies
) -> None:
    proxies = [fault_proxy(server) for server in cluster3]
    lock = api.Redlock([proxy.url for proxy in proxies], node_timeout=10).lock("r", ttl=30)
    assert await api(lock.acquire())
    await api(lock.release())
    lost = [proxy.swallow_reply("\r\nSET\r\n") for proxy in proxies]
    start = time.monotonic()
    assert await api(lock.acquire(timeout=20))
    assert time.monotonic() - start < 10
    for one in lost:
        one.wait()
    token = lock.lease.token
    await api.until(lambda: cluster3.values("r") == [token] * 3)
    assert await api(lock.release()) == "released"
    await api.until(lambda: cluster3.values("r") == [None] * 3)


@both_apis
async def test_an_extension_that_arrives_late_shortens_no_key(
    api: Api, cluster3: Cluster, fault_proxy: Proxies
) -> None:
    proxies = [fault_proxy(server) for server in cluster3]
    locks = api.Redlock([proxy.url for proxy in proxies], unreachable_timeout=0.1)
    lock = locks.lock("r", ttl=30)
    assert await api(lock.acquire())
    before = {proxy: proxy.connections for proxy in proxies}
    for proxy in proxies:
        proxy.strand()
    with pytest.raises(QuorumUnreachable):
        await api(lock.lease.extend(1))
    assert lock.lease.validity > 20, "no server has confirmed the second"
    # The old connections have ended for the client; what it sent over them has not arrived.
    await api.until(lambda: all(it.connections > before[it] for it in proxies))
    assert await api(lock.lease.extend(60)) > 50
    for proxy in proxies:
        proxy.arrive()
    assert all(server.command("PTTL", "r") > 40_000 for server in cluster3)
    assert await api(lock.lease.check()) > 40
    assert await api(lock.release()) == "released"


@both_apis
async def test_one_dead_and_one_hung_node_of_five_cost_nothing(api: Api, cluster5: Cluster) -> None:
    # Long enough that waiting for the slow node would show, and no other is given up.
    locks = api.Redlock(cluster5.urls, node_timeout=2)
    lock = locks.lock("r", ttl=5)

    async def median() -> float:
        times = []
        for _ in range(60):
            start = time.perf_counter()
            async with api.block(lock):
                pass
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    await median()
    healthy = await median()
    cluster5[0].pause()
    cluster5[1].kill()
    await median()
    # Several chances, for a machine that does other things too; a wait would be a thousand times.
    broken = [await median()]
    while broken[-1] >= 3 * healthy + 0.001:
        assert len(broken) < 5, (healthy, broken)
        broken.append(await median())
    cluster5.heal()
    async with api.block(locks.lock("r", ttl=5)) as lease:
        # They take part again by themselves.
        await api.until(lambda: {node.state for node in locks.nodes} == {"healthy"})
        await api.until(lambda: cluster5.values("r") == [lease.token] * 5)


@both_apis
async def test_a_hung_quorum_is_told_within_the_timeout(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", ttl=10)
    async with api.block(lock):
        pass
    for server in cluster3[:2]:
        server.pause()
    start = time.monotonic()
    with pytest.raises(QuorumUnreachable) as unreachable:
        await api(lock.acquire(timeout=0.5))
    took = time.monotonic() - start
    assert took < 8
    assert unreachable.value.elapsed <= took
    assert set(unreachable.value.faults) <= set(cluster3.urls[:2])


@both_apis
async def test_a_release_on_hung_nodes_is_unknown_and_soon(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", ttl=10)
    assert await api(lock.acquire())
    for server in cluster3:
        server.pause()
    start = time.monotonic()
    assert await api(lock.release()) == "unknown"
    assert time.monotonic() - start < 8
    for server in cluster3:
        server.resume()
    await api.until(lambda: cluster3.values("r") == [None] * 3)


@both_apis
async def test_a_wrong_password_is_told_without_it(api: Api, servers: Any) -> None:
    cluster = servers(1, password="correct")
    url = f"redis://:hunter2@{cluster[0].address}"
    locks = api.Redlock([url], unreachable_timeout=0.3)
    with pytest.raises(QuorumUnreachable) as refused:
        await api(locks.lock("r").acquire())
    text = str(refused.value) + repr(refused.value) + repr(refused.value.votes) + repr(locks)
    assert "hunter2" not in text
    assert "password" in str(refused.value)


@pytest.mark.parametrize("fencing", [True, False])
@both_apis
async def test_a_key_that_will_not_expire_is_told(
    api: Api, cluster3: Cluster, fencing: bool
) -> None:
    for server in cluster3:
        server.command("SET", "r", "left by another program")
    locks = api.Redlock(cluster3.urls, fencing=fencing)
    with pytest.raises(LockTimeout, match="no ttl") as refused:
        async with api.block(locks.lock("r", timeout=0.4)):
            pytest.fail("the body ran without the lock")
    details = [vote.detail for vote in refused.value.votes if vote.outcome == "refused"]
    assert len(details) >= 2  # the third may not have answered when it was certain
    assert all("without a ttl" in (detail or "") for detail in details)
    assert cluster3.values("r") == ["left by another program"] * 3


@pytest.mark.parametrize("fencing", [True, False])
@both_apis
async def test_a_key_of_another_type_is_told(api: Api, cluster3: Cluster, fencing: bool) -> None:
    for server in cluster3:
        server.command("LPUSH", "r", "x")
    locks = api.Redlock(cluster3.urls, unreachable_timeout=0.2, fencing=fencing)
    with pytest.raises(QuorumUnreachable, match="type"):
        await api(locks.lock("r").acquire())
    assert all(server.command("LLEN", "r") == 1 for server in cluster3)


@both_apis
async def test_nodes_tell_their_state(api: Api, cluster3: Cluster) -> None:
    cluster3[2].kill()
    locks = api.Redlock(cluster3.urls)
    assert [node.state for node in locks.nodes] == ["connecting"] * 3
    async with api.block(locks.lock("r")):
        await api.until(lambda: locks.nodes[2].state == "down")
    assert [node.state for node in locks.nodes[:2]] == ["healthy"] * 2
    assert [node.address for node in locks.nodes] == cluster3.urls
    assert "refused" in locks.nodes[2].detail
