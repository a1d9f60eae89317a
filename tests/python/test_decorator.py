"""Tests locks as decorators: every call acquires the lock for itself."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quorlock import ConfigTypeError, LockNotAcquired, Redlock, aio
from tests.python.apis import memory_nodes


def test_a_function_runs_under_the_lock() -> None:
    locks = Redlock(memory_nodes("function"), retry_delay=0.005, retry_jitter=0.004)
    lock = locks.lock("r", timeout=10)
    inside: list[int] = []

    @lock
    def work(number: int, *, twice: bool = False) -> int:
        """What it does."""
        inside.append(number)
        assert len(inside) == 1
        assert lock.owned()
        inside.pop()
        return number * (2 if twice else 1)

    with ThreadPoolExecutor(5) as pool:
        assert list(pool.map(lambda n: work(n, twice=True), range(15))) == [*range(0, 30, 2)]
    assert (work.__name__, work.__doc__) == ("work", "What it does.")
    assert list(inspect.signature(work).parameters) == ["number", "twice"]
    assert not lock.locked()


@pytest.mark.parametrize("kind", [Redlock, aio.Redlock])
def test_a_coroutine_function_runs_under_the_lock(kind: Any) -> None:
    locks = kind(memory_nodes("coroutine"), retry_delay=0.005, retry_jitter=0.004)
    lock = locks.lock("r", timeout=10)
    inside: list[int] = []

    @lock  # type: ignore[untyped-decorator]
    async def work(number: int) -> int:
        inside.append(number)
        await asyncio.sleep(0.001)
        assert len(inside) == 1
        assert lock.owned()
        inside.pop()
        return number

    assert inspect.iscoroutinefunction(work)

    async def main() -> list[int]:
        return list(await asyncio.gather(*(work(number) for number in range(10))))

    assert asyncio.run(main()) == list(range(10))


def test_a_call_that_does_not_get_the_lock_raises() -> None:
    locks = Redlock(memory_nodes("refused"))
    called = threading.Event()
    work = locks.lock("r", blocking=False)(called.set)
    with locks.lock("r"), pytest.raises(LockNotAcquired):
        work()
    assert not called.is_set()
    work()
    assert called.is_set()


def test_the_error_of_the_function_comes_out() -> None:
    locks = Redlock(memory_nodes("raises"))

    @locks.lock("r")
    def work() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        work()
    assert not locks.lock("r").locked()


def test_generators_and_classes_are_refused() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    for locks in (Redlock(memory_nodes("a")), aio.Redlock(memory_nodes("b"))):
        for wrong, text in [
            (generator, "generator"),
            (async_generator, "generator"),
            (int, "decorates functions"),
            (5, "decorates functions"),
        ]:
            with pytest.raises(ConfigTypeError, match=text):
                locks.lock("r")(wrong)  # type: ignore[type-var]
    with pytest.raises(ConfigTypeError, match="coroutine function"):
        aio.Redlock(memory_nodes("c")).lock("r")(lambda: None)
