"""Lets one test run with the blocking and the asyncio API. Owns what differs between them.

@every_api
async def test_something(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls).lock("r")
    assert await api(lock.acquire())
    async with api.block(lock) as lease: ...
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from typing import Any, cast

import pytest
import uvloop

import quorlock
import quorlock.aio


class Api:
    """The blocking API: nothing in it ever suspends, so the test runs without an event loop."""

    name = "blocking"
    Redlock: Any = quorlock.Redlock

    def __repr__(self) -> str:
        return self.name

    async def __call__(self, value: Any) -> Any:
        """The result of a call, whether or not it must be awaited."""
        return await value if inspect.isawaitable(value) else value

    @contextlib.asynccontextmanager
    async def block(self, lock: Any) -> AsyncIterator[Any]:
        with lock as lease:
            yield lease

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def until(self, condition: Callable[[], object], within: float = 20.0) -> float:
        """Waits for the condition; returns how long it took."""
        start = time.monotonic()
        while not condition():
            assert time.monotonic() - start < within, "it did not come true in time"
            await self.sleep(0.001)
        return time.monotonic() - start

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        with pytest.raises(StopIteration):
            test.send(None)


class AsyncioApi(Api):
    """The asyncio API, on the loop of the standard library."""

    name = "asyncio"
    Redlock = quorlock.aio.Redlock

    @contextlib.asynccontextmanager
    async def block(self, lock: Any) -> AsyncIterator[Any]:
        async with lock as lease:
            yield lease

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        asyncio.run(test)


class UvloopApi(AsyncioApi):
    """The asyncio API, on uvloop."""

    name = "uvloop"

    def run(self, test: Coroutine[Any, Any, None]) -> None:
        uvloop.run(test)


class NoReaders(asyncio.SelectorEventLoop):
    """As the Proactor loop of Windows."""

    def add_reader(self, *_: Any) -> None:  # type: ignore[override]
        raise NotImplementedError


def close_during_a_wait(
    loop: asyncio.AbstractEventLoop,
    lock: Any,
    seconds: float,
    closing: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext,
) -> Any:
    """Closes the loop this long after a task has begun to wait for the lock; returns the task."""

    async def begin() -> Any:
        task: Any = asyncio.ensure_future(lock.__aenter__())
        task._log_destroy_pending = False
        await asyncio.sleep(seconds)
        return task

    task = loop.run_until_complete(begin())
    with closing():
        loop.close()
    return task


BLOCKING, ASYNCIO, UVLOOP = Api(), AsyncioApi(), UvloopApi()


def _each(*apis: Api) -> Callable[[Callable[..., Awaitable[None]]], Callable[..., None]]:
    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @pytest.mark.parametrize("api", apis, ids=repr)
        @functools.wraps(test)
        def run(api: Api, **fixtures: Any) -> None:
            api.run(test(api, **fixtures))  # type: ignore[arg-type]

        return cast("Callable[..., None]", run)

    return decorate


every_api = _each(BLOCKING, ASYNCIO, UVLOOP)
#: Where the loop makes no difference.
both_apis = _each(BLOCKING, ASYNCIO)
async_apis = _each(ASYNCIO, UVLOOP)

MEMORY_COUNT = 3


def memory_nodes(name: str, count: int = MEMORY_COUNT) -> list[str]:
    """Nodes inside this process, of the running test's own."""
    test = hash(os.environ.get("PYTEST_CURRENT_TEST", ""))
    return [f"memory://{name}-{test:x}-{index}" for index in range(count)]
