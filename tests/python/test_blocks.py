"""Tests with and async with: the body runs only under the lock, and its error is not replaced."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from quorlock import LeaseLost, LockNotAcquired, LockTimeout, QuorumUnreachable
from tests.python.apis import Api, async_apis, both_apis, every_api, memory_nodes
from tests.support.cluster import Cluster


def take_away(cluster: Cluster, resource: str) -> None:
    """What no lock survives: somebody else has it."""
    for server in cluster:
        server.command("SET", resource, "somebody else", "PX", 60_000)


def give_back(cluster: Cluster, resource: str) -> None:
    for server in cluster:
        server.command("DEL", resource)


@every_api
async def test_the_body_never_runs_unlocked(api: Api) -> None:
    locks = api.Redlock(memory_nodes("unlocked"))
    async with api.block(locks.lock("r")):
        start = time.monotonic()
        with pytest.raises(LockTimeout) as timed_out:
            async with api.block(locks.lock("r", timeout=0.2)):
                pytest.fail("the body ran without the lock")
        assert 0.15 < time.monotonic() - start < 5
    error = timed_out.value
    assert isinstance(error, TimeoutError)
    assert isinstance(error, LockNotAcquired)
    assert error.attempts >= 1
    assert 0.15 < error.elapsed < 5
    assert [vote.outcome for vote in error.votes] == ["refused"] * 3


@both_apis
async def test_a_block_is_renewed_and_a_bare_acquire_is_not(api: Api) -> None:
    locks = api.Redlock(memory_nodes("renewal"))
    bare, renewed = locks.lock("bare", ttl=1.5), locks.lock("renewed", ttl=1.5, auto_extend=True)
    assert await api(bare.acquire())
    assert await api(renewed.acquire())
    async with api.block(locks.lock("block", ttl=1.5)) as lease:
        await api.until(lambda: not bare.owned())
        await api.until(lambda: lease.validity > 1.1)
        assert lease.is_valid
        assert renewed.owned()
        assert lease.validity < 1.5
    assert await api(renewed.release()) == "released"
    with pytest.raises(LeaseLost):
        async with api.block(locks.lock("block", ttl=0.1, auto_extend=False)):
            while await api(locks.lock("block").locked()):
                await api.sleep(0.005)


@every_api
async def test_a_loss_is_raised_at_the_end_of_the_block(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls)
    with pytest.raises(LeaseLost) as lost:
        async with api.block(locks.lock("r", ttl=0.6)) as lease:
            take_away(cluster3, "r")
            await api.until(lambda: not lease.is_valid)
            await api.sleep(0.01)  # the loss comes into the body, where there is asyncio
    assert lost.value.resource == "r"
    assert cluster3.values("r") == ["somebody else"] * 3


@both_apis
async def test_a_block_that_ends_too_late_is_lost_without_an_answer(
    api: Api, cluster3: Cluster
) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", ttl=0.3, auto_extend=False, raise_on_lost=True)
    bare = api.Redlock(cluster3.urls).lock("bare", ttl=0.3)
    assert await api(bare.acquire())
    with pytest.raises(LeaseLost):
        async with api.block(lock) as lease:
            for server in cluster3:
                server.pause()
            await api.until(lambda: not lease.is_valid)
    with pytest.raises(LeaseLost, match="expired before it was released"):
        await api(bare.release())


@both_apis
async def test_raise_on_lost_false_opts_out(api: Api, cluster3: Cluster) -> None:
    async with api.block(
        api.Redlock(cluster3.urls, raise_on_lost=False).lock("r", ttl=0.6)
    ) as lease:
        take_away(cluster3, "r")
        await api.until(lambda: not lease.is_valid)
        await api.sleep(0.01)


@both_apis
@pytest.mark.parametrize("options", [{"auto_extend": False}, {}], ids=str)
async def test_a_lost_lease_stays_lost(
    api: Api, cluster3: Cluster, options: dict[str, bool]
) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", ttl=0.3, raise_on_lost=False, **options)
    async with api.block(lock) as lease:
        if not options:
            take_away(cluster3, "r")
        await api.until(lambda: not lease.is_valid)
        assert repr(lease) == "<Lease 'r' lost>"
    assert (repr(lease), lease.is_released) == ("<Lease 'r' lost>", True)
    # As soon as the release finds that it was.
    give_back(cluster3, "r")
    async with api.block(lock) as lease:
        take_away(cluster3, "r")
        assert lease.is_valid
    assert repr(lease) == "<Lease 'r' lost>"
    give_back(cluster3, "r")
    async with api.block(lock) as lease:
        pass
    assert repr(lease) == "<Lease 'r' released>"


@both_apis
async def test_the_error_of_the_body_is_never_masked(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls, raise_on_lost=True)
    with pytest.raises(KeyError, match="mine") as raised:
        async with api.block(locks.lock("r", ttl=0.6, auto_extend=False)):
            take_away(cluster3, "r")
            raise KeyError("mine")
    notes = raised.value.__notes__
    assert len(notes) == 1
    assert "'r'" in notes[0]
    assert raised.value.__cause__ is None


@both_apis
async def test_the_error_of_the_body_survives_unreachable_nodes(
    api: Api, cluster3: Cluster
) -> None:
    locks = api.Redlock(cluster3.urls, node_timeout=0.1)
    start = time.monotonic()
    with pytest.raises(KeyError, match="mine"):
        async with api.block(locks.lock("r", ttl=20)):
            for server in cluster3:
                server.pause()
            raise KeyError("mine")
    assert time.monotonic() - start < 10


@both_apis
async def test_a_lock_may_be_released_inside_its_block(api: Api) -> None:
    locks = api.Redlock(memory_nodes("early"))
    lock = locks.lock("r")
    async with api.block(lock):
        assert await api(lock.release()) == "released"
        async with api.block(locks.lock("r", timeout=10)) as lease:
            assert lease.is_valid
    async with api.block(lock) as lease:
        assert await api(lease.release()) == "released"
    assert not await api(lock.locked())


@both_apis
async def test_a_block_can_be_entered_again_and_nested(api: Api) -> None:
    locks = api.Redlock(memory_nodes("again"))
    lock = locks.lock("r")
    for _ in range(3):
        async with api.block(lock) as outer, api.block(locks.lock("other")):
            # Not reentrant: its own holder is one like any other.
            assert not await api(lock.acquire(blocking=False))
            assert lock.lease is outer
    assert not await api(lock.locked())


@both_apis
async def test_an_unreachable_quorum_names_each_fault(api: Api, cluster3: Cluster) -> None:
    cluster3[0].kill()
    cluster3[1].kill()
    locks = api.Redlock(cluster3.urls, unreachable_timeout=0.3)
    for attempt in (locks.lock("r").acquire, lambda: locks.lock("r").acquire(blocking=False)):
        with pytest.raises(QuorumUnreachable) as unreachable:
            await api(attempt())
        error = unreachable.value
        assert isinstance(error, ConnectionError)
        assert sorted(error.faults) == sorted(cluster3.urls[:2])
        assert all("refused" in fault for fault in error.faults.values())
        assert all(url in str(error) for url in cluster3.urls[:2])
    assert cluster3[2].command("GET", "r") is None


@async_apis
async def test_the_loss_cancels_the_task_in_the_block(api: Api, cluster3: Cluster) -> None:
    start = time.monotonic()
    with pytest.raises(LeaseLost) as lost:
        async with api.Redlock(cluster3.urls).lock("r", ttl=1):
            take_away(cluster3, "r")
            await asyncio.sleep(30)
    assert time.monotonic() - start < 15
    assert isinstance(lost.value.__cause__, asyncio.CancelledError)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)  # the task goes on, uncancelled


@async_apis
async def test_cancellation_from_outside_stays_a_cancellation(api: Api, cluster3: Cluster) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with api.Redlock(cluster3.urls).lock("r", ttl=5):
            inside.set()
            await asyncio.sleep(30)

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await api.until(lambda: cluster3.values("r") == [None] * 3)


@async_apis
async def test_cancellation_from_outside_outweighs_a_loss(api: Api, cluster3: Cluster) -> None:
    async def work() -> Any:
        # Somebody else wants the task to end at the same moment.
        async with api.Redlock(cluster3.urls).lock("r", ttl=0.6, on_lost=task.cancel):
            take_away(cluster3, "r")
            await asyncio.sleep(30)

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task


@async_apis
async def test_a_timeout_around_a_block_stays_a_timeout(api: Api) -> None:
    with pytest.raises(TimeoutError) as timed_out:
        async with asyncio.timeout(0.1), api.Redlock(memory_nodes("timeout")).lock("r"):
            await asyncio.sleep(30)
    assert not isinstance(timed_out.value, LockTimeout)


def test_with_on_an_asyncio_lock_says_what_to_write() -> None:
    from quorlock import aio

    lock: Any = aio.Redlock(memory_nodes("wrong-with")).lock("r")
    with pytest.raises(TypeError, match="async with"):
        with lock:
            pytest.fail("the body ran without the lock")
