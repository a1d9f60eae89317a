"""Tests that objects belong to no loop: several loops, threads, uvloop, loops without readers."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvloop

from quorlock import LeaseLost, LockError, Redlock, _loops, aio
from tests.python.apis import NoReaders, close_during_a_wait, memory_nodes
from tests.support.cluster import Cluster

LOOPS = [asyncio.SelectorEventLoop, uvloop.new_event_loop, NoReaders]


@pytest.mark.parametrize("make", LOOPS, ids=["asyncio", "uvloop", "without-readers"])
def test_locks_work_on_every_loop(cluster3: Cluster, make: Any) -> None:
    locks = aio.Redlock(cluster3.urls, retry_delay=0.01, retry_jitter=0.009)

    async def main() -> None:
        lock = locks.lock("r", timeout=10)
        inside = []

        async def work() -> None:
            async with lock as lease:
                inside.append(lease)
                await asyncio.sleep(0)
                assert inside == [lease]
                inside.pop()

        await asyncio.gather(*(work() for _ in range(10)))
        told = asyncio.Event()
        watched = locks.lock("watched", ttl=0.1, on_lost=told.set)
        assert await watched.acquire()
        await asyncio.wait_for(told.wait(), 20)
        with pytest.raises(LeaseLost):
            async with locks.lock("short", ttl=0.1, auto_extend=False):
                await asyncio.sleep(10)
        waiting = asyncio.ensure_future(locks.lock("r").acquire())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])

    loop = make()
    try:
        loop.run_until_complete(main())
    finally:
        loop.close()


def test_one_manager_serves_many_loops_one_after_the_other(cluster3: Cluster) -> None:
    locks = aio.Redlock(cluster3.urls)
    lock = locks.lock("r", timeout=5)
    before = len(os.listdir("/proc/self/fd"))

    async def main() -> bool:
        async with lock as lease:
            return lease.is_valid

    for number in range(20):
        run = asyncio.run if number % 2 else uvloop.run
        assert run(main())
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 6, "loops leave their queues behind"


@pytest.mark.parametrize("make", LOOPS[:2], ids=["asyncio", "uvloop"])
def test_loops_closed_during_a_wait_leave_no_descriptors(cluster3: Cluster, make: Any) -> None:
    locks = aio.Redlock(cluster3.urls)
    with Redlock(cluster3.urls).lock("r", ttl=60):
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(20):
            close_during_a_wait(make(), locks.lock("r", timeout=60), 0.01)
        gc.collect()
        assert len(os.listdir("/proc/self/fd")) <= before + 6, "they leave their queues behind"


def test_one_manager_serves_loops_in_several_threads(cluster3: Cluster) -> None:
    locks = aio.Redlock(cluster3.urls, retry_delay=0.005, retry_jitter=0.004)
    lock = locks.lock("r", timeout=30)
    inside: list[int] = []

    async def work(number: int) -> None:
        for _ in range(5):
            async with lock:
                inside.append(number)
                await asyncio.sleep(0.001)
                assert inside == [number]
                inside.pop()

    async def both(number: int) -> None:
        await asyncio.gather(work(2 * number), work(2 * number + 1))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: asyncio.run(both(number)), range(4)))


def test_many_tasks_at_once(cluster3: Cluster) -> None:
    locks = aio.Redlock(cluster3.urls)

    async def work(number: int) -> int | None:
        async with locks.lock(f"r{number}") as lease:
            return lease.fencing_token

    async def main() -> list[int | None]:
        return await asyncio.gather(*(work(number) for number in range(300)))

    assert all(asyncio.run(main()))


def test_outside_a_loop_the_error_is_clear() -> None:
    coroutine = aio.Redlock(memory_nodes("no-loop")).lock("r").acquire()
    with pytest.raises(RuntimeError, match="event loop") as refused:
        coroutine.send(None)
    assert not isinstance(refused.value, LockError)


def test_the_callback_comes_on_the_thread_of_the_loop() -> None:
    told: list[threading.Thread] = []

    async def main() -> None:
        locks = aio.Redlock(memory_nodes("thread"))
        event = asyncio.Event()

        def on_lost() -> None:
            told.append(threading.current_thread())
            event.set()

        lock = locks.lock("r", ttl=0.1, on_lost=on_lost)
        assert await lock.acquire()
        await asyncio.wait_for(event.wait(), 20)

    asyncio.run(main())
    assert told == [threading.current_thread()]


def test_closing_may_be_awaited() -> None:
    async def main() -> None:
        locks = aio.Redlock(memory_nodes("closing"))
        await locks.close()
        assert locks.is_closed
        async with aio.Redlock(memory_nodes("closing")) as locks:
            assert not locks.is_closed
        assert locks.is_closed

    asyncio.run(main())
    locks = aio.Redlock(memory_nodes("closing"))
    locks.close()
    assert locks.is_closed


class Struck(asyncio.Future[None]):
    """asyncio's own handler of a Ctrl-C cancels it as soon as anybody has looked at it."""

    def done(self) -> bool:
        was_done = super().done()
        self.cancel()
        return was_done


def test_ctrl_c_during_a_delivery_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Full:
        def take(self) -> list[tuple[int, None]]:
            return [(1, None), (2, None), (3, None)]

    async def deliver() -> None:
        loop = asyncio.get_running_loop()
        post = _loops.router_of(loop)
        assert isinstance(post, _loops.LoopRouter)
        cancelled, struck, other = loop.create_future(), Struck(loop=loop), loop.create_future()
        cancelled.cancel()
        with monkeypatch.context() as patch:
            patch.setattr(post, "queue", Full())
            patch.setattr(post._reader(), "futures", {1: cancelled, 2: struck, 3: other})
            post.deliver()
        assert struck.done()
        assert other.done()

    asyncio.run(deliver())
