"""Tests one lock object that threads or tasks share: every acquisition has a lease of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from quorlock import LeaseLost, Lock, LockNotHeld, Redlock, aio
from tests.python.apis import Api, async_apis, both_apis, memory_nodes
from tests.support.cluster import Cluster


def test_threads_share_a_lock_object(cluster3: Cluster) -> None:
    lock = Redlock(cluster3.urls, retry_delay=0.005, retry_jitter=0.004).lock("r", timeout=30)
    inside: list[int] = []
    fences: list[Any] = []

    def work(number: int) -> None:
        for _ in range(10):
            with lock as lease:
                inside.append(number)
                assert len(inside) == 1
                assert lock.lease is lease
                fences.append(lease.fencing_token)
                inside.pop()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert len(fences) == 80
    assert fences == sorted(set(fences))
    assert lock.lease is None


@async_apis
async def test_tasks_share_a_lock_object(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls, retry_delay=0.005, retry_jitter=0.004)
    lock = locks.lock("r", timeout=30)
    inside: list[int] = []
    fences: list[Any] = []

    async def work(number: int) -> None:
        for _ in range(5):
            async with lock as lease:
                inside.append(number)
                await asyncio.sleep(0.001)
                assert inside == [number]
                assert lock.lease is lease
                fences.append(lease.fencing_token)
                inside.pop()

    await asyncio.gather(*(work(number) for number in range(10)))
    assert len(fences) == 50
    assert fences == sorted(set(fences))


def test_a_late_release_does_not_touch_the_next_holder() -> None:
    lock = Redlock(memory_nodes("late")).lock("r", ttl=1)
    assert lock.acquire()
    expired: Any = lock.lease
    results: list[Any] = []
    go, done = threading.Event(), threading.Event()

    def other() -> None:
        assert lock.acquire(timeout=20)
        results.append(lock.lease)
        lock_lease: Any = lock.lease
        lock_lease.extend(30)
        go.set()
        done.wait(30)
        results.append(lock.release())

    thread = threading.Thread(target=other)
    thread.start()
    assert go.wait(30)
    assert lock.lease is expired
    with pytest.raises(LeaseLost):
        lock.release()  # its own, which is over
    with pytest.raises(LockNotHeld):
        lock.release()  # not the other's
    assert results[0].is_valid
    assert results[0].check() > 0
    done.set()
    thread.join()
    assert results[1] == "released"


def test_leaving_an_expired_block_does_not_end_the_next_ones() -> None:
    lock = Redlock(memory_nodes("blocks")).lock("r", ttl=1, auto_extend=False)
    entered, left = threading.Event(), threading.Event()
    outcomes: list[Any] = []

    def other() -> None:
        with lock as lease:
            lease.extend(30)
            entered.set()
            left.wait(30)
            outcomes.append(lease.check() > 0)

    thread = threading.Thread(target=other)
    with pytest.raises(LeaseLost):
        with lock:
            thread.start()
            assert entered.wait(30)
    left.set()
    thread.join()
    assert outcomes == [True]
    assert not lock.locked()


@both_apis
async def test_acquiring_again_does_not_lose_the_first_token(api: Api) -> None:
    lock = api.Redlock(memory_nodes("again")).lock("r", ttl=1)
    assert await api(lock.acquire())
    first = lock.lease
    assert await api(lock.acquire(timeout=20))
    second = lock.lease
    assert second.token != first.token
    assert second.fencing_token > first.fencing_token
    assert await api(second.extend(20)) > 10
    assert await api(lock.release()) == "released"
    assert second.is_released
    with pytest.raises(LockNotHeld):
        await api(lock.release())


def test_a_lock_may_be_released_by_another_thread() -> None:
    lock = Redlock(memory_nodes("handed")).lock("r")
    thread = threading.Thread(target=lock.acquire)
    thread.start()
    thread.join()
    assert lock.owned()
    assert lock.release() == "released"
    assert lock.acquire()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lock.release).result() == "released"


def test_the_task_of_wait_for_hands_its_lease_on() -> None:
    async def main() -> None:
        lock = aio.Redlock(memory_nodes("wait-for")).lock("r")
        for _ in range(3):
            assert await asyncio.wait_for(asyncio.ensure_future(lock.acquire()), 5)
            assert lock.owned()
            assert await lock.release() == "released"
            assert await lock.acquire()
            assert await lock.release() == "released"

    asyncio.run(main())


def test_a_generator_may_move_between_threads() -> None:
    lock = Redlock(memory_nodes("generator")).lock("r")

    def generate(lock: Lock) -> Any:
        with lock as lease:
            yield lease

    generator = generate(lock)
    lease = next(generator)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(generator.close).result()
    assert lease.is_released
    assert not lock.locked()


def test_a_lease_is_used_from_other_threads() -> None:
    with Redlock(memory_nodes("threads")).lock("r") as lease:
        with ThreadPoolExecutor(4) as pool:
            validities = list(pool.map(lambda _: lease.extend(30), range(20)))
        assert all(validity > 20 for validity in validities)


def test_waiting_threads_take_turns() -> None:
    locks = Redlock(memory_nodes("turns"), retry_delay=0.01, retry_jitter=0.009)
    start = time.monotonic()
    with ThreadPoolExecutor(20) as pool:

        def work(_: int) -> None:
            with locks.lock("r", timeout=30):
                time.sleep(0.002)

        list(pool.map(work, range(60)))
    assert time.monotonic() - start < 20


def test_a_lease_is_found_while_another_thread_releases() -> None:
    lock = Redlock(memory_nodes("moving")).lock("r", ttl=0.1, raise_on_lost=False)
    assert lock.acquire()
    mine = lock.lease

    def come_and_go() -> None:
        for _ in range(300):
            assert lock.acquire()  # the first time when the other lease is over
            lock.release()

    with ThreadPoolExecutor(1) as pool:
        going = pool.submit(come_and_go)
        while not going.done():
            assert lock.lease is mine
        going.result()
    assert lock.release() == "expired"
    with pytest.raises(LockNotHeld):
        lock.release()
