"""Tests that asyncio's `release()` begins at the call, and is taken for a coroutine function."""

from __future__ import annotations

import asyncio
import gc
import inspect
import warnings
from typing import Any
from unittest import mock

import pytest

from quorlock import LockNotHeld, aio
from tests.python.apis import Api, async_apis
from tests.support.cluster import Cluster


def _never_awaited(release: Any) -> object:
    return release


async def _cancelled_before_it_began(release: Any) -> object:
    task = asyncio.create_task(release)
    task.cancel()
    return await asyncio.gather(task, return_exceptions=True)


async def _out_of_time(release: Any) -> object:
    try:
        return await asyncio.wait_for(release, 0)
    except TimeoutError as error:
        return error


@pytest.mark.parametrize("end", [_never_awaited, _cancelled_before_it_began, _out_of_time])
@async_apis
async def test_it_is_released_also_if_nobody_awaits_it(
    api: Api, cluster3: Cluster, end: Any
) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", ttl=60, auto_extend=True)
    await lock.acquire()
    kept = end(lock.release())
    if inspect.isawaitable(kept) and end is not _never_awaited:
        kept = await kept
    await api.until(lambda: cluster3.values("r") == [None] * 3)
    if end is _never_awaited:
        assert await kept == "released"
    with pytest.raises(LockNotHeld):
        await lock.release()


def test_it_is_released_where_no_loop_runs(cluster3: Cluster) -> None:
    async def hold() -> aio.Lease:
        lock = aio.Redlock(cluster3.urls).lock("r", ttl=60)
        await lock.acquire()
        assert lock.lease is not None
        return lock.lease

    release = asyncio.run(hold()).release()
    assert asyncio.run(release) == "released"
    assert cluster3.values("r") == [None] * 3


def test_a_forgotten_await_is_told_by_its_name(cluster3: Cluster) -> None:
    async def forget() -> None:
        lock = aio.Redlock(cluster3.urls).lock("r")
        await lock.acquire()
        lock.release()  # type: ignore[unused-coroutine]
        gc.collect()

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(forget())
    assert [str(it.message) for it in told] == ["coroutine 'release' was never awaited"]


@pytest.mark.parametrize("kind", [aio.Lock, aio.Lease])
def test_mocks_of_it_can_be_awaited(kind: type[Any]) -> None:
    assert asyncio.iscoroutinefunction(kind.release)
    doubles = [mock.create_autospec(kind), mock.AsyncMock(spec=kind), mock.MagicMock(spec=kind)]
    for double in doubles:
        double.release.return_value = "released"
        assert asyncio.run(double.release()) == "released"
