"""Cancels a task at each of its awaits in turn: no key is left, and everything still works.

A sure cancellation arrives while the task waits; a late one when what it waits for has come and it
only has not run yet, so that a result and the cancellation meet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import pytest

from quorlock import LockError, _loops
from quorlock.aio import Redlock
from tests.python.apis import Api, async_apis
from tests.support.cluster import Cluster
from tests.torture.counts import times

Body = Callable[[Redlock], Coroutine[Any, Any, object]]


async def acquire(locks: Redlock) -> None:
    lock = locks.lock("r")
    await lock.acquire()
    await lock.release()


async def acquire_contended(locks: Redlock) -> None:
    async with locks.lock("r", ttl=0.15, auto_extend=False, raise_on_lost=False):
        await acquire(locks)


async def acquire_several(locks: Redlock) -> None:
    lock = locks.lock(["r", "s"])
    await lock.acquire()
    await lock.release()


async def try_once(locks: Redlock) -> None:
    lock = locks.lock("r")
    assert await lock.acquire(blocking=False)
    await lock.release()


async def block(locks: Redlock) -> None:
    async with locks.lock("r", on_lost=print):
        await asyncio.sleep(0)


async def blocks(locks: Redlock) -> None:
    async with locks.lock("r"), locks.lock("s"):
        await asyncio.sleep(0)


async def decorated(locks: Redlock) -> None:
    @locks.lock("r")
    async def body() -> None:
        await asyncio.sleep(0)

    await body()


async def lease(locks: Redlock) -> None:
    lock = locks.lock("r", auto_extend=True)
    await lock.acquire()
    held = lock.lease
    assert held is not None
    try:
        await held.extend()
        await held.check()
        await lock.locked()
    finally:
        await held.release()


async def wait_for(locks: Redlock) -> None:
    lock = locks.lock("r")
    try:
        await asyncio.wait_for(lock.acquire(), 5)
    finally:
        if lock.owned():
            await asyncio.wait_for(lock.release(), 5)


async def gathered(locks: Redlock) -> None:
    await asyncio.gather(*(block(locks) for _ in range(3)))


BODIES: list[Body] = [
    acquire, acquire_contended, acquire_several, try_once, block, blocks, decorated, lease,
    wait_for, gathered,
]  # fmt: skip


class CancelledAt:
    """Runs a coroutine; at its await with this number its task is cancelled."""

    def __init__(self, body: Awaitable[object], number: int, *, late: bool) -> None:
        self._body = body
        self._number = number
        self._late = late
        self.awaits = 0

    def __await__(self) -> Generator[Any, Any, object]:
        task = asyncio.current_task()
        assert task is not None
        steps = self._body.__await__()
        send: Callable[[], Any] = lambda: next(steps)  # noqa: E731
        while True:
            try:
                waits_for = send()
            except StopIteration as end:
                return end.value
            if self.awaits == self._number:
                if self._late and waits_for is not None:
                    # Before the task's own callback: it is told of both when it runs next.
                    waits_for.add_done_callback(lambda _: task.cancel())
                else:
                    task.cancel()
            self.awaits += 1
            try:
                value = yield waits_for
            except BaseException as error:  # noqa: BLE001 - handed on to the body
                send = _throw(steps, error)
            else:
                send = _send(steps, value)


def _throw(steps: Generator[Any, Any, object], error: BaseException) -> Callable[[], Any]:
    return lambda: steps.throw(error)


def _send(steps: Generator[Any, Any, object], value: object) -> Callable[[], Any]:
    return lambda: steps.send(value)


@pytest.mark.parametrize("late", [False, True], ids=["sure", "late"])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@async_apis
async def test_at_each_await(api: Api, cluster3: Cluster, body: Body, late: bool) -> None:
    locks = api.Redlock(cluster3.urls, ttl=20, retry_delay=0.03, retry_jitter=0.02)
    await block(locks)  # connected
    number, cancelled = 0, 0
    while True:
        steps = CancelledAt(body(locks), number, late=late)
        cancelled += await ended_by_cancelling(asyncio.ensure_future(_run(steps)))
        await as_new(api, locks, cluster3)
        if steps.awaits <= number:
            break
        number += 1
    assert number, "it never waited"
    # Before Python 3.12, wait_for prefers a result that has come.
    assert cancelled or body is wait_for, "nothing was cancelled"


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
@async_apis
async def test_after_each_step_of_the_loop(api: Api, cluster3: Cluster, body: Body) -> None:
    locks = api.Redlock(cluster3.urls, ttl=20, retry_delay=0.03, retry_jitter=0.02)
    await block(locks)
    for count in range(times(40, 400)):
        task = asyncio.ensure_future(body(locks))
        for _ in range(count):
            await asyncio.sleep(0)
        await ended_by_cancelling(task, cancel=True)
        if count % 20 == 0:
            await as_new(api, locks, cluster3)
    await as_new(api, locks, cluster3)


async def _run(steps: CancelledAt) -> object:
    return await steps


async def ended_by_cancelling(task: asyncio.Future[object], *, cancel: bool = False) -> bool:
    if cancel:
        task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return True
    except LockError as error:
        raise AssertionError("a cancellation turned into something else") from error
    return False


async def as_new(api: Api, locks: Redlock, cluster: Cluster) -> None:
    """The cancelled locks are gone from the nodes, and no caller waits."""
    for name in ("r", "s"):
        await api.until(lambda name=name: cluster.values(name) == [None] * 3)  # type: ignore[misc]
    # The library's own book of what it waits for on this loop.
    post = _loops.router_of(asyncio.get_running_loop())
    assert isinstance(post, _loops.LoopRouter)
    assert not post._futures()
    assert not post.operations
    await block(locks)
