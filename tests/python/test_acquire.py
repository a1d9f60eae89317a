"""Tests acquire(), release(), locked() and owned(): they behave as the standard library's locks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from quorlock import (
    ConfigError,
    LeaseLost,
    LockNotAcquired,
    LockNotHeld,
    LocksClosed,
    LockTimeout,
)
from tests.python.apis import Api, async_apis, both_apis, every_api, memory_nodes
from tests.support.cluster import Cluster
from tests.support.proxy import FaultProxy


@every_api
async def test_a_lock_is_acquired_on_every_node_and_released(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", ttl=50)
    assert not lock.owned()
    assert await api(lock.acquire()) is True
    lease = lock.lease
    await api.until(lambda: cluster3.values("r") == [lease.token] * 3)
    assert lock.owned()
    assert await api(lock.locked()) is True
    assert 40 < lease.validity < 50
    assert await api(lock.release()) == "released"
    await api.until(lambda: cluster3.values("r") == [None] * 3)
    assert await api(lock.locked()) is False
    assert not lock.owned()
    assert lock.lease is None
    assert (lease.validity, lease.is_valid) == (0.0, False)


@both_apis
async def test_a_lock_held_by_another_is_not_acquired(api: Api) -> None:
    locks = api.Redlock(memory_nodes("held"))
    holder, other = locks.lock("r"), locks.lock("r")
    assert await api(holder.acquire())
    assert await api(other.acquire(blocking=False)) is False
    assert await api(other.acquire(False)) is False
    start = time.monotonic()
    assert await api(other.acquire(timeout=0.2)) is False
    assert await api(other.acquire(True, timedelta(milliseconds=200))) is False
    assert 0.4 <= time.monotonic() - start < 5
    assert await api(other.acquire(timeout=0)) is False
    assert not other.owned()
    assert await api(other.locked())
    assert holder.owned()
    assert await api(holder.release()) == "released"
    assert await api(other.acquire(blocking=False)) is True


@both_apis
async def test_the_timeout_of_the_lock_is_the_default_wait(api: Api) -> None:
    locks = api.Redlock(memory_nodes("default-wait"))
    assert await api(locks.lock("r").acquire())
    start = time.monotonic()
    assert await api(locks.lock("r", timeout=0.15).acquire()) is False
    assert 0.15 <= time.monotonic() - start < 5


@both_apis
async def test_a_timeout_shorter_than_the_retry_delay_tries_once(api: Api) -> None:
    locks = api.Redlock(memory_nodes("short"), retry_delay=20)
    assert await api(locks.lock("a").acquire(timeout=2))
    assert await api(locks.lock("b", timeout=2).acquire())
    start = time.monotonic()
    assert not await api(locks.lock("a").acquire(timeout=0.05))
    assert time.monotonic() - start < 5


@both_apis
async def test_a_timeout_for_a_call_that_does_not_wait_is_refused(api: Api) -> None:
    lock = api.Redlock(memory_nodes("parity")).lock("r")
    arguments: Any
    for arguments in [{"blocking": False, "timeout": 5}, {"timeout": -2}, {"timeout": "1"}]:
        with pytest.raises(ValueError, match="timeout"):
            await api(lock.acquire(**arguments))
    assert not await api(lock.locked())


@both_apis
async def test_a_wait_without_limit_ends_when_the_holder_releases(api: Api) -> None:
    locks = api.Redlock(memory_nodes("turn"), retry_delay=0.01, retry_jitter=0)
    holder = api.Redlock(memory_nodes("turn")).lock("r", ttl=0.3)
    assert await api(holder.acquire())
    waiting = locks.lock("r")
    assert await api(waiting.acquire(timeout=None)) is True  # the holder's lease ran out
    assert await api(waiting.release()) == "released"


@both_apis
async def test_release_without_a_lease_raises(api: Api) -> None:
    lock = api.Redlock(memory_nodes("unheld")).lock("r")
    with pytest.raises(LockNotHeld) as never:
        await api(lock.release())
    assert (never.value.resource, never.value.code) == ("r", "LOCK_NOT_HELD")
    assert await api(lock.acquire())
    lease = lock.lease
    await api(lock.release())
    for again in (lock.release, lease.release, lease.extend, lease.check):
        with pytest.raises(LockNotHeld):
            await api(again())


@both_apis
async def test_releasing_an_expired_lease_is_told_at_once(api: Api) -> None:
    locks = api.Redlock(memory_nodes("expired"))
    lock, quiet = locks.lock("a", ttl=0.05), locks.lock("b", ttl=0.05, raise_on_lost=False)
    for one in (lock, quiet):
        assert await api(one.acquire())
    # The nodes keep it a little longer than it may be trusted.
    while await api(lock.locked()) or await api(quiet.locked()):
        await api.sleep(0.005)
    start = time.monotonic()
    with pytest.raises(LeaseLost):
        await api(lock.release())
    assert await api(quiet.release()) == "expired"
    assert time.monotonic() - start < 2
    with pytest.raises(LockNotHeld):
        await api(lock.release())


@both_apis
async def test_several_resources_are_locked_all_or_nothing(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls)
    async with api.block(locks.lock(["a", "b"], ttl=5)) as lease:
        assert lease.resources == ("a", "b")
        assert await api(locks.lock("b").locked())
        assert not await api(locks.lock(["b", "c"]).acquire(blocking=False))
        assert not await api(locks.lock("c").locked())
    async with api.block(locks.lock("a", resources=["b"])) as lease:
        assert lease.resources == ("a", "b")
    async with api.block(locks.lock(resources=["x", "y"])) as lease:
        assert lease.resources == ("x", "y")
    await api.until(lambda: all(not server.keys("[abxy]") for server in cluster3))


@both_apis
async def test_tokens_grow_and_are_unpredictable(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls).lock("r")
    fences, holders = [], set()
    for _ in range(20):
        async with api.block(lock) as lease:
            fences.append(lease.fencing_token)
            holders.add(lease.token)
    assert fences == sorted(set(fences))
    assert len(holders) == 20
    # 20 random bytes each: any two share hardly more than every sixteenth digit by chance.
    first, *others = holders
    for other in others:
        assert len(other) == 40
        assert sum(a == b for a, b in zip(first, other, strict=True)) < 20


@both_apis
async def test_fractions_of_a_second_are_kept(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls)
    for ttl, millis in [(5.75, 5750), (timedelta(milliseconds=6234), 6234), (7, 7000)]:
        start = time.monotonic()
        async with api.block(locks.lock("r", ttl=ttl, auto_extend=False)) as lease:
            # Two of three are enough for the lease: the third may be later.
            await api.until(lambda: None not in cluster3.values("r"))
            left = [server.command("PTTL", "r") for server in cluster3]
            passed = (time.monotonic() - start) * 1000 + 2
            assert all(isinstance(one, int) and millis - passed <= one <= millis for one in left)
            assert lease.ttl == millis / 1000
            assert 0 < lease.validity < lease.ttl


@both_apis
async def test_extend_gives_a_new_validity(api: Api, cluster3: Cluster) -> None:
    async with api.block(api.Redlock(cluster3.urls).lock("r", ttl=20, auto_extend=False)) as lease:
        token = lease.fencing_token
        assert await api(lease.extend(60)) > 50
        assert 50 < lease.validity < 60
        assert lease.ttl == 60
        assert await api(lease.extend()) > 50
        assert lease.fencing_token == token
        assert 50 < await api(lease.check()) < 60
        for wrong in (0, -1, "3", True, float("nan")):
            with pytest.raises(ConfigError, match="ttl"):
                await api(lease.extend(wrong))
        assert lease.is_valid


@both_apis
async def test_check_and_extend_tell_that_the_lease_is_gone(api: Api, cluster3: Cluster) -> None:
    for ask in ("check", "extend"):
        lock = api.Redlock(cluster3.urls).lock("r", ttl=30)
        assert await api(lock.acquire())
        lease = lock.lease
        for server in cluster3:
            server.command("SET", "r", "somebody else", "PX", 60_000)
        with pytest.raises(LeaseLost):
            await api(getattr(lease, ask)())
        assert not lease.is_valid
        assert cluster3.values("r") == ["somebody else"] * 3
        cluster3.reset()


@both_apis
async def test_a_closed_redlock_refuses_to_work(api: Api) -> None:
    locks = api.Redlock(memory_nodes("closed"))
    lock = locks.lock("r")
    await api(locks.close())
    await api(locks.close())
    assert locks.is_closed
    for call in (lock.acquire, lock.locked):
        with pytest.raises(LocksClosed) as closed:
            await api(call())
        assert closed.value.resource == "r"


@async_apis
async def test_a_close_during_acquisitions_leaves_no_key(
    api: Api, cluster3: Cluster, fault_proxy: Callable[..., FaultProxy]
) -> None:
    proxies = [fault_proxy(server) for server in cluster3]
    for it in proxies:
        it.delay(0.01)
    ended = []
    for moment in range(0, 24, 4):
        locks = api.Redlock([it.url for it in proxies], node_timeout=5)
        async with locks.lock("warm"):
            pass
        names = [f"r{moment}-{number}" for number in range(20)]
        tasks = [asyncio.ensure_future(locks.lock(name, ttl=60).acquire()) for name in names]
        await asyncio.sleep(moment / 1000)
        locks.close()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        both = zip(names, results, strict=True)
        ended += [name for name, result in both if isinstance(result, LocksClosed)]
    assert ended, "all were quicker"
    await asyncio.sleep(0.1)  # what was sent to the nodes has arrived
    await api.until(lambda: all(cluster3.values(name) == [None] * 3 for name in ended), within=5)


@async_apis
async def test_a_release_just_before_a_close_leaves_no_key(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls)
    shared = locks.lock("shared", ttl=60)
    assert await shared.acquire()
    async with locks.lock("r", ttl=60) as lease:
        releasing = [asyncio.ensure_future(it.release()) for it in (shared, lease)]
        locks.close()
        assert await asyncio.gather(*releasing) == ["released"] * 2
    free = [None] * 3
    await api.until(lambda: cluster3.values("r") == cluster3.values("shared") == free, within=5)


@async_apis
async def test_a_release_that_is_cancelled_before_it_runs(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", ttl=60)
    assert await lock.acquire()
    asyncio.ensure_future(lock.release()).cancel()
    await api.until(lambda: cluster3.values("r") == [None] * 3, within=5)


@both_apis
async def test_blocking_false_may_belong_to_the_lock(api: Api) -> None:
    locks = api.Redlock(memory_nodes("nonblocking"), timeout=30)
    async with api.block(locks.lock("r")):
        with pytest.raises(LockNotAcquired) as refused:
            async with api.block(locks.lock("r", blocking=False)):
                pytest.fail("the body ran without the lock")
    assert refused.value.attempts == 1
    assert not isinstance(refused.value, LockTimeout)


@both_apis
async def test_what_is_held_is_shown(api: Api) -> None:
    locks: Any = api.Redlock(memory_nodes("shown"))
    lock = locks.lock("invoice:42")
    assert repr(lock) == "<Lock 'invoice:42' not held>"
    assert await api(lock.acquire())
    assert repr(lock) == "<Lock 'invoice:42' held 9.9s left 3/3 nodes>"
    assert repr(lock.lease) == "<Lease 'invoice:42' held 9.9s left 3/3 nodes>"
    lease = lock.lease
    await api(lock.release())
    assert repr(lease) == "<Lease 'invoice:42' released>"
    assert repr(locks).startswith("<Redlock memory://shown-")
    assert repr(locks.lock(["a", "b"])) == "<Lock 'a', 'b' not held>"
