"""Tests that a loss is reported within 50 ms of the end of the validity, whatever nodes do."""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from quorlock import LeaseLost, Redlock
from tests.python.apis import ASYNCIO, Api, async_apis, both_apis, every_api, memory_nodes
from tests.support.cluster import Cluster
from tests.support.wait import eventually

#: Seconds between the end of the validity and the telling.
PROMPT = 0.05


@every_api
async def test_a_loss_on_hung_nodes_is_told_within_50_ms(api: Api, cluster3: Cluster) -> None:
    told: list[tuple[float, LeaseLost]] = []
    locks = api.Redlock(cluster3.urls)
    lock = locks.lock(
        "r", ttl=1, auto_extend=True, on_lost=lambda error: told.append((time.monotonic(), error))
    )

    async def lose() -> float:
        told.clear()
        assert await api(lock.acquire())
        lease = lock.lease
        for server in cluster3:
            server.pause()
        over = time.monotonic()
        while lease.is_valid:
            over = time.monotonic() + lease.validity
            await api.sleep(0.002)
        await api.until(lambda: told)
        assert isinstance(told[0][1], LeaseLost)
        assert told[0][1].resource == "r"
        await api.sleep(0.05)  # time in which a second call could come
        assert len(told) == 1
        return told[0][0] - over

    await is_prompt(lose, cluster3)


@async_apis
async def test_the_task_in_the_block_is_cancelled_within_50_ms(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls)

    async def lose() -> float:
        over = late = 0.0
        start = time.monotonic()
        with pytest.raises(LeaseLost):
            async with locks.lock("r", ttl=1) as lease:
                for server in cluster3:
                    server.pause()
                try:
                    while True:
                        over = max(over, time.monotonic() + lease.validity)
                        await asyncio.sleep(0.002)
                finally:
                    late = time.monotonic() - over
        assert time.monotonic() - start < 5, "the end of the block waited for the nodes"
        return late

    await is_prompt(lose, cluster3)


@both_apis
async def test_a_lease_taken_away_is_told_before_its_validity_ends(
    api: Api, cluster3: Cluster
) -> None:
    told = threading.Event()
    lock = api.Redlock(cluster3.urls).lock("r", ttl=6, auto_extend=True, on_lost=told.set)
    assert await api(lock.acquire())
    lease = lock.lease
    for server in cluster3:
        server.command("SET", "r", "somebody else", "PX", 60_000)
    took = await api.until(told.is_set)
    assert took < 5, "it waited for the end of the validity"
    assert lease.validity == 0.0


@both_apis
async def test_a_callback_may_take_the_error_or_nothing(api: Api) -> None:
    locks = api.Redlock(memory_nodes("callbacks"))
    told: list[Any] = []
    event = threading.Event()
    callbacks = [event.set, lambda: told.append("nothing"), told.append, print]
    held = [locks.lock(f"r{n}", ttl=0.1, on_lost=one) for n, one in enumerate(callbacks)]
    for lock in held:
        assert await api(lock.acquire())
    await api.until(lambda: event.is_set() and len(told) == 2)
    assert "nothing" in told


@both_apis
async def test_a_failing_callback_harms_no_other(
    api: Api, caplog: pytest.LogCaptureFixture
) -> None:
    locks = api.Redlock(memory_nodes("failing"))

    def fail() -> None:
        raise KeyError("mine")

    told = threading.Event()
    for number, callback in enumerate([fail, fail, told.set]):
        lock = locks.lock(f"r{number}", ttl=0.1 + number / 20, on_lost=callback)
        assert await api(lock.acquire())
        locks.__dict__.setdefault("kept", []).append(lock)
    await api.until(told.is_set)
    assert sum("mine" in (record.exc_text or "") for record in caplog.records) == 2


@async_apis
async def test_a_callback_may_be_a_coroutine_function(api: Api) -> None:
    told: list[Any] = []

    async def on_lost(error: LeaseLost) -> None:
        await asyncio.sleep(0.01)  # it may wait
        told.append((error, threading.current_thread()))

    lock = api.Redlock(memory_nodes("coroutine")).lock("r", ttl=0.1, on_lost=on_lost)
    assert await lock.acquire()
    await api.until(lambda: told)
    assert told[0][1] is threading.current_thread()


@both_apis
async def test_nobody_is_told_of_a_released_or_forgotten_lease(api: Api) -> None:
    told: list[Any] = []
    locks = api.Redlock(memory_nodes("forgotten"), ttl=1.5, on_lost=told.append)
    released, forgotten, kept = locks.lock("a"), locks.lock("b"), locks.lock("c")
    for lock in (released, forgotten, kept):
        assert await api(lock.acquire())
    await api(released.release())
    del forgotten, lock
    gc.collect()
    await api.until(lambda: told)
    await api.sleep(0.05)  # time in which another loss could be told wrongly
    assert [error.resource for error in told] == ["c"]
    assert not kept.owned()


@both_apis
async def test_a_forgotten_lease_is_no_longer_renewed(api: Api) -> None:
    locks = api.Redlock(memory_nodes("gc"))
    lock = locks.lock("r", ttl=1.5, auto_extend=True)
    assert await api(lock.acquire())
    await api.sleep(2)  # longer than its ttl
    assert await api(locks.lock("r").locked())
    del lock
    gc.collect()
    assert await api(locks.lock("r").acquire(timeout=20))


@both_apis
async def test_renewal_ends_at_max_hold(api: Api) -> None:
    told: list[Any] = []
    locks = api.Redlock(memory_nodes("max-hold"))
    lock = locks.lock("r", ttl=1.5, auto_extend=True, max_hold=2, on_lost=told.append)
    assert await api(lock.acquire())
    took = await api.until(lambda: told)
    assert 1.5 < took < 10
    assert "max_hold" in str(told[0])


def test_a_loss_during_a_blocked_loop_is_told_when_it_runs_again(cluster3: Cluster) -> None:
    async def main() -> None:
        async with ASYNCIO.Redlock(cluster3.urls).lock("r", ttl=0.5) as lease:
            for server in cluster3:
                server.command("SET", "r", "somebody else", "PX", 60_000)
            time.sleep(0.8)  # blocks the loop for longer than the ttl
            assert not lease.is_valid
            await asyncio.sleep(30)

    start = time.monotonic()
    with pytest.raises(LeaseLost):
        asyncio.run(main())
    assert time.monotonic() - start < 15


async def is_prompt(lose: Callable[[], Awaitable[float]], cluster: Cluster) -> None:
    """A loss is told within 50 ms; several chances, for a machine that does other things too."""
    late: list[float] = []
    while not late or late[-1] > PROMPT:
        assert len(late) < 5, f"told {late} seconds late"
        late.append(await lose())
        cluster.heal()


def test_what_logging_raises_hides_no_later_loss(
    cluster3: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def filter_of_the_user(_: logging.LogRecord) -> bool:
        raise error

    def lose(name: str) -> None:
        def note(_: LeaseLost) -> None:
            told.append(name)
            if name == "first":
                raise RuntimeError("a slip of the callback")

        lock = locks.lock(name, ttl=1, on_lost=note)
        assert lock.acquire()
        for server in cluster3:
            server.command("DEL", name)
        eventually(lambda: name in told)

    error = ValueError("a slip of the filter")
    told: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    locks = Redlock(cluster3.urls)
    logger = logging.getLogger("quorlock")
    logger.addFilter(filter_of_the_user)
    try:
        lose("first")
        lose("second")
    finally:
        logger.removeFilter(filter_of_the_user)
    locks.close()
