"""Tests that cancelled tasks and Ctrl-C end a wait and leave no key behind."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest
import uvloop

from quorlock import Redlock, _async, _sync, aio
from tests.python.apis import Api, NoReaders, async_apis, close_during_a_wait
from tests.python.programs import Program, interrupt_the_wait, is_prompt, run
from tests.support.cluster import Cluster

WAITS = {
    "acquire": "lock.acquire()",
    "with": "lock.__enter__()",
    "locked": "lock.locked()",
    "check": "lease.check()",
    "extend": "lease.extend()",
    "release": "lease.release()",
}


@async_apis
async def test_a_task_cancelled_at_any_moment_leaves_no_key(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", ttl=20)
    assert await lock.acquire()
    await lock.release()
    won = 0
    for step in range(150):
        task = asyncio.create_task(lock.acquire())
        moment = time.monotonic() + step * 20e-6
        while time.monotonic() < moment:  # noqa: ASYNC110 - a moment, not an event
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
            won += 1
            assert lock.owned()
            await lock.release()
        except asyncio.CancelledError:
            assert not lock.owned()
    await api.until(lambda: cluster3.values("r") == [None] * 3)
    assert won < 150, "nothing was cancelled"


@async_apis
async def test_the_keys_of_a_cancelled_task_are_gone_a_moment_later(
    api: Api, cluster3: Cluster
) -> None:
    """It does not wait for the nodes, which are asked at once."""
    lock = api.Redlock(cluster3.urls).lock("r", ttl=20)
    assert await lock.acquire()
    await lock.release()
    for step in range(30):
        task = asyncio.create_task(lock.acquire())
        await asyncio.sleep(step * 50e-6)
        task.cancel()
        try:
            await task
            await lock.release()
        except asyncio.CancelledError:
            await api.until(lambda: cluster3.values("r") == [None] * 3, within=0.5)


@async_apis
async def test_cancelling_a_waiter_leaves_the_holder_alone(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls)
    async with locks.lock("r") as lease:
        waiters = [asyncio.create_task(locks.lock("r").acquire()) for _ in range(10)]
        await asyncio.sleep(random.uniform(0.01, 0.2))
        for waiter in waiters:
            waiter.cancel()
        results = await asyncio.gather(*waiters, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        assert cluster3.values("r") == [lease.token] * 3


@async_apis
async def test_wait_for_around_acquire_leaves_no_key(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls)
    async with locks.lock("r"):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(locks.lock("r").acquire(), 0.1)
    await api.until(lambda: cluster3.values("r") == [None] * 3)


@async_apis
async def test_a_cancelled_release_still_gives_the_lock_back(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", ttl=20)
    assert await lock.acquire()
    lease: Any = lock.lease
    task = asyncio.create_task(lock.release())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    await api.until(lambda: cluster3.values("r") == [None] * 3)
    assert not lease.is_valid


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop, NoReaders])
def test_a_loop_that_is_closed_during_a_wait_leaves_no_key(cluster3: Cluster, make: Any) -> None:
    """Also if the task that waited is referred to."""
    lock = aio.Redlock(cluster3.urls).lock("r", ttl=20, timeout=60)
    with Redlock(cluster3.urls).lock("r", ttl=60):
        task = close_during_a_wait(make(), lock, 0.1)
    time.sleep(0.3)  # time in which it could be won
    until_free(cluster3, within=5)
    assert not task.done()


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_loop_that_is_closed_as_a_wait_begins_leaves_no_key(cluster3: Cluster, make: Any) -> None:
    lock = aio.Redlock(cluster3.urls).lock("r", ttl=20)
    for _ in range(10):
        task = close_during_a_wait(make(), lock, 0)
        if task.done():
            # It has ended in that one turn.
            asyncio.run(task.result().release())
        time.sleep(0.02)  # time in which it could be won
        until_free(cluster3, within=5)


@pytest.mark.parametrize("make", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_ctrl_c_cannot_cut_short_what_a_closed_loop_cancels(
    cluster3: Cluster, monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    """A signal's handler runs at the first step of a Python function: here of the next one."""
    lost: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lost.append)
    lock = aio.Redlock(cluster3.urls).lock("r", ttl=20, timeout=60)
    with Redlock(cluster3.urls).lock("r", ttl=60):
        task = close_during_a_wait(make(), lock, 0.1, closing=ctrl_c_in_the_first_step)
    time.sleep(0.3)  # time in which it could be won
    until_free(cluster3, within=5)
    assert not task.done()
    assert not lost, "the exception of the Ctrl-C was lost"


@contextlib.contextmanager
def ctrl_c_in_the_first_step() -> Iterator[None]:
    """The first step of the library's Python code is interrupted."""

    def strike(frame: FrameType, *_: object) -> None:
        if "/quorlock/_" in frame.f_code.co_filename:
            raise KeyboardInterrupt

    sys.setprofile(strike)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("hung", [False, True], ids=["contended", "hung"])
@pytest.mark.parametrize("wait", ["acquire", "with"])
def test_ctrl_c_ends_a_wait_and_leaves_no_key(cluster3: Cluster, wait: str, hung: bool) -> None:
    code = f"""
        import time, quorlock
        lock = quorlock.redlock("r", ttl=30)
        quorlock.redlock("warm").locked()
        print("ready", flush=True)
        input()
        print("waiting", flush=True)
        try:
            {WAITS[wait]}
        except KeyboardInterrupt:
            print(time.monotonic(), lock.lease, flush=True)
    """
    held = None if hung else "somebody else"

    def interrupt() -> float:
        if held:
            for server in cluster3:
                server.command("SET", "r", held, "PX", 60_000)
        with Program(code, nodes=cluster3.urls) as program:
            sent = interrupt_the_wait(program, cluster3, hung=hung)
            came, lease = program.line().split()
            assert lease == "None"
            status, _, errors = program.end(20)
            assert (status, errors) == (0, "")
        cluster3.heal()
        assert cluster3.values("r") == [held] * 3
        return float(came) - sent

    is_prompt(interrupt, within=0.1)


@pytest.mark.parametrize("wait", ["locked", "check", "extend", "release"])
def test_ctrl_c_ends_a_call_on_hung_nodes(cluster3: Cluster, wait: str) -> None:
    code = f"""
        import time, quorlock
        lock = quorlock.redlock("r", ttl=30, node_timeout=10, unreachable_timeout=10)
        lock.acquire()
        lease = lock.lease
        print("ready", flush=True)
        input()
        print("waiting", flush=True)
        try:
            {WAITS[wait]}
        except KeyboardInterrupt:
            print(time.monotonic(), flush=True)
    """

    def interrupt() -> float:
        with Program(code, nodes=cluster3.urls) as program:
            sent = interrupt_the_wait(program, cluster3, hung=True)
            came = float(program.line())
            assert program.end(20)[0] == 0
        cluster3.heal()
        for server in cluster3:
            server.flush()
        return came - sent

    is_prompt(interrupt, within=0.1)


def test_ctrl_c_at_any_moment_of_an_acquisition_leaves_no_key(cluster3: Cluster) -> None:
    code = """
        import os, random, signal, sys, threading, time, quorlock
        locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","))
        lock = locks.lock("r", ttl=30)
        interrupted = 0
        with lock: pass
        for round in range(150):
            delay = random.uniform(0, 0.002)
            sender = threading.Thread(
                target=lambda: (time.sleep(delay), os.kill(os.getpid(), signal.SIGINT)))
            try:
                sender.start()
                with lock:
                    pass
                sender.join()
                time.sleep(0.05)  # a signal that was sent last is handled here
            except KeyboardInterrupt:
                interrupted += 1
            sender.join()
            assert lock.lease is None, lock
        assert interrupted == 150, interrupted
        deadline = time.monotonic() + 20
        while lock.locked():
            assert time.monotonic() < deadline, "a key was left behind"
    """
    with Program(code, nodes=cluster3.urls) as program:
        status, _, errors = program.end(60)
    assert status == 0, errors


@pytest.mark.parametrize("call", ["acquire", "__enter__"])
def test_ctrl_c_just_after_the_lock_was_won_leaves_no_key(
    cluster3: Cluster, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(_sync, "callbacks", interrupt)  # the last step of an acquisition
    lock = Redlock(cluster3.urls).lock("r", ttl=30, on_lost=print)
    with pytest.raises(KeyboardInterrupt):
        getattr(lock, call)()
    until_free(cluster3)
    assert lock.lease is None
    assert len(lock._acquisitions) == 0


@pytest.mark.parametrize("call", ["acquire", "__aenter__"])
def test_a_cancellation_just_after_winning_leaves_no_key(
    cluster3: Cluster, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(_async, "watch_loss", interrupt)  # the last step of an acquisition
    lock = aio.Redlock(cluster3.urls).lock("r", ttl=30, on_lost=print)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(getattr(lock, call)())
    until_free(cluster3)
    assert lock.lease is None
    assert len(lock._acquisitions) == 0


def test_a_signal_handler_that_returns_does_not_end_the_wait(cluster3: Cluster) -> None:
    code = """
        import signal, time, quorlock
        quorlock.redlock("r", ttl=0.6).acquire()
        calls = []
        signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
        signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
        acquired = quorlock.redlock("r").acquire()
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(acquired, len(calls) > 3)
    """
    assert run(code, nodes=cluster3.urls) == "True True"


def test_a_signal_in_the_first_moments_of_a_wait_ends_it(cluster3: Cluster) -> None:
    code = """
        import os, signal, quorlock
        locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","))
        locks.lock("r", ttl=30).acquire()
        def stop(*_): raise ZeroDivisionError
        signal.signal(signal.SIGALRM, stop)
        for millis in range(2, 60, 2):
            signal.setitimer(signal.ITIMER_REAL, millis / 1000)
            try:
                locks.lock("r", timeout=10).acquire()
                print("lost after", millis)
            except ZeroDivisionError:
                pass
        print("done")
    """
    assert run(code, nodes=cluster3.urls, within=60) == "done"


def test_a_signal_handler_that_raises_ends_the_wait(cluster3: Cluster) -> None:
    code = """
        import signal, sys, quorlock
        quorlock.redlock("r", ttl=30).acquire()
        def stop(*_): raise ZeroDivisionError
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        try:
            with quorlock.redlock("r"): pass
        except ZeroDivisionError:
            print("stopped")
    """
    assert run(code, nodes=cluster3.urls) == "stopped"


def test_garbage_collection_of_a_waiting_task_leaves_no_key(cluster3: Cluster) -> None:
    async def begin() -> None:
        waiting = aio.Redlock(cluster3.urls).lock("r", ttl=20).acquire()
        waiting.send(None)
        waiting.close()

    asyncio.run(begin())
    until_free(cluster3)


@pytest.mark.parametrize("where", ["outside", "in another loop"])
def test_a_block_that_outlives_its_loop_leaves_no_key(cluster3: Cluster, where: str) -> None:
    inside = asyncio.Event()

    async def hold() -> None:
        async with aio.Redlock(cluster3.urls).lock("r", ttl=20):
            inside.set()
            await asyncio.Event().wait()

    async def begin() -> None:
        task = asyncio.create_task(body)
        await inside.wait()
        task._log_destroy_pending = False  # type: ignore[attr-defined]

    async def close() -> None:
        body.close()

    body = hold()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    loop.close()
    if where == "outside":
        body.close()
    else:
        asyncio.run(close())
    until_free(cluster3)


def until_free(cluster: Cluster, within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while cluster.values("r") != [None] * 3:
        assert time.monotonic() < deadline, "a key was left behind"
        time.sleep(0.005)
