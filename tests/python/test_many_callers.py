"""Tests many callers of one process that wait for the same lock: one at a time asks the nodes."""

from __future__ import annotations

import asyncio
import functools
import re
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from quorlock import LockError, LockNotAcquired, Redlock
from quorlock.aio import Redlock as AsyncRedlock
from tests.support.cluster import Cluster
from tests.support.wait import eventually

WAITERS = 500


def grants(cluster: Cluster) -> int:
    """How many commands that may take a lock the servers have seen."""
    told = [str(server.command("INFO", "commandstats")) for server in cluster]
    calls = re.compile(r"cmdstat_(?:set|evalsha|eval):calls=(\d+)")
    return sum(int(count) for text in told for count in calls.findall(text))


def run(test: Callable[..., Any]) -> Callable[..., None]:
    @functools.wraps(test)
    def on_a_loop(**fixtures: Any) -> None:
        asyncio.run(test(**fixtures))

    return on_a_loop


async def _join(locks: AsyncRedlock, order: list[int], number: int) -> None:
    async with locks.lock("r"):
        order.append(number)


def _inversions(order: list[int]) -> int:
    return sum(1 for one, two in pairwise(order) if one > two)


@run
async def test_they_have_it_one_after_another_in_the_order_of_coming(
    servers: Callable[..., Cluster],
) -> None:
    async with AsyncRedlock(servers(3).urls) as locks:
        order: list[int] = []
        async with locks.lock("r"):
            waiting = []
            for number in range(WAITERS):
                waiting.append(asyncio.create_task(_join(locks, order, number)))
                await asyncio.sleep(0)
            waiting[7].cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert sorted(order) == [number for number in range(WAITERS) if number != 7]
        # The first try of each goes through the event loop: those of one moment may change places.
        assert _inversions(order) <= WAITERS / 50


@run
async def test_they_keep_their_places_while_a_new_manager_connects(
    servers: Callable[..., Cluster],
) -> None:
    async with AsyncRedlock(servers(3).urls) as locks:
        order: list[int] = []
        await asyncio.gather(*(_join(locks, order, number) for number in range(WAITERS)))
        inversions = _inversions(order)
        # As above; but none is put off behind hundreds that came later.
        assert inversions <= WAITERS / 50
        assert max(abs(place - number) for place, number in enumerate(order)) <= WAITERS / 50


@run
async def test_they_cost_the_servers_next_to_nothing_and_leave_in_time(
    servers: Callable[..., Cluster],
) -> None:
    cluster = servers(3)
    async with AsyncRedlock(cluster.urls) as holders, AsyncRedlock(cluster.urls) as locks:
        async with locks.lock("other"):
            pass
        async with holders.lock("r", ttl=30):
            before, begun = grants(cluster), time.monotonic()
            waiting = [locks.lock("r", timeout=1).acquire() for _ in range(WAITERS)]
            together = asyncio.gather(*waiting, return_exceptions=True)
            await asyncio.sleep(0.2)  # grants within a fixed time are what is counted
            # Another lock is not behind them.
            async with locks.lock("other", timeout=1):
                pass
            got = await together
            assert time.monotonic() - begun < 3
            assert [it for it in got if it and not isinstance(it, LockNotAcquired)] == []
            # One of them tried, a few times.
            assert grants(cluster) - before < WAITERS


def test_a_waiting_thread_is_not_told_of_trouble_that_is_none(
    servers: Callable[..., Cluster],
) -> None:
    with Redlock(servers(3).urls) as locks:
        with locks.lock("r"):
            first = threading.Thread(target=locks.lock("r", timeout=30).acquire)
            first.start()
            eventually(lambda: not locks.lock("r", blocking=False).acquire())
            with pytest.raises(LockNotAcquired, match="'r'"), locks.lock("r", timeout=0.3):
                pass
        first.join()


def test_a_cluster_that_cannot_be_reached_is_told_to_all(servers: Callable[..., Cluster]) -> None:
    cluster = servers(3)
    with Redlock(cluster.urls) as locks:
        with locks.lock("r"):
            pass
        for server in cluster:
            server.kill()
        eventually(lambda: all(node.state == "down" for node in locks.nodes))
        told: list[str] = []

        def wait() -> None:
            try:
                locks.lock("r", timeout=1).acquire()
            except LockError as error:
                told.append(type(error).__name__)

        threads = [threading.Thread(target=wait) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert told == ["QuorumUnreachable"] * 5
