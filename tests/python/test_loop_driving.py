"""Tests that an event loop's thread drives the core for its only operation (decision 0014)."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvloop

from quorlock import Redlock, _loops, aio
from tests.python.apis import memory_nodes
from tests.python.programs import run
from tests.support.cluster import Cluster
from tests.support.wait import eventually

Run = Callable[[Coroutine[Any, Any, Any]], Any]
loops = pytest.mark.parametrize("run_loop", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])

CHANCES = 5  # for a machine that does other things too


@loops
def test_one_at_a_time_needs_no_other_thread(
    run_loop: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nodes that always answer at once, whatever else the machine does.
    locks = aio.Redlock(memory_nodes("loop-driving"))
    handed_over: list[object] = []
    hand_over = _loops.LoopRouter.expect_on_loop

    def counted(post: _loops.LoopRouter, operation: Any, future: Any) -> int:
        handed_over.append(operation)
        return hand_over(post, operation, future)

    monkeypatch.setattr(_loops.LoopRouter, "expect_on_loop", counted)

    def part(pairs: int) -> float:
        handed_over.clear()
        run_loop(one_after_the_other(locks.lock("r"), pairs))
        return len(handed_over) / (2 * pairs)

    assert any(part(200) < 0.5 for _ in range(CHANCES))


@loops
def test_a_loop_that_drove_and_is_blocked_keeps_its_lease(cluster3: Cluster, run_loop: Run) -> None:
    async def main() -> None:
        locks = aio.Redlock(cluster3.urls)
        lock = locks.lock("held", ttl=1.5, auto_extend=True)
        await one_after_the_other(locks.lock("other"), 20)
        assert await lock.acquire()
        lease: Any = lock.lease
        # The next of it is driven here, and then nothing is for two ttls.
        unfinished = Begun(locks.lock("other").acquire())
        time.sleep(3.0)
        assert lease.is_valid
        assert cluster3.values("held") == [lease.token] * 3
        unfinished.close()
        await lock.release()

    run_loop(main())


@loops
@pytest.mark.parametrize("pause", [0, 0.1], ids=["from the loop", "from the thread"])
def test_what_a_blocked_loop_has_begun_goes_on_without_it(
    cluster3: Cluster, run_loop: Run, pause: float
) -> None:
    async def main() -> None:
        lock = aio.Redlock(cluster3.urls).lock("r", ttl=60)
        await one_after_the_other(lock, 20)
        assert await lock.acquire()
        time.sleep(pause)  # long enough for the engine's thread to take over, or not
        releasing = Begun(lock.release())
        eventually(lambda: cluster3.values("r") == [None] * 3)
        assert await releasing == "released"

    run_loop(main())


@loops
def test_a_loop_never_waits_long_for_nodes_that_hang(cluster3: Cluster, run_loop: Run) -> None:
    locks = aio.Redlock(cluster3.urls)

    async def longest_gap() -> float:
        waiting = asyncio.ensure_future(locks.lock("r").acquire(timeout=0.5))
        ticks = [time.monotonic()]
        while not waiting.done():
            await asyncio.sleep(0)
            ticks.append(time.monotonic())
        await asyncio.wait([waiting])
        assert waiting.exception() is not None
        return max(later - earlier for earlier, later in itertools.pairwise(ticks))

    run_loop(one_after_the_other(locks.lock("r"), 20))
    cluster3[0].pause()
    cluster3[1].pause()
    assert any(run_loop(longest_gap()) < 0.1 for _ in range(CHANCES))


def test_operations_of_many_loops_and_threads_meet(cluster3: Cluster) -> None:
    settings: Any = {"retry_delay": 0.005, "retry_jitter": 0.004, "timeout": 30}
    blocking = Redlock(cluster3.urls).lock("shared", **settings)
    awaited = aio.Redlock(cluster3.urls)
    inside: list[int] = []
    entered: list[int] = []

    def enter(number: int) -> None:
        inside.append(number)
        assert inside == [number]
        time.sleep(0.0005)
        entered.append(inside.pop())

    async def tasks(number: int) -> None:
        for turn in range(20):
            # Alone, and then beside others.
            await one_after_the_other(awaited.lock(f"own {number}"), 3)
            async with awaited.lock("shared", **settings):
                enter(number)
            if turn % 4 == 0:
                each = (
                    one_after_the_other(awaited.lock(f"{number} {task}"), 2) for task in range(4)
                )
                await asyncio.gather(*each)

    def thread(number: int) -> None:
        for _ in range(20):
            with blocking:
                enter(number)

    runs: list[Callable[[int], None]] = [
        lambda number: asyncio.run(tasks(number)),
        lambda number: uvloop.run(tasks(number)),
        thread,
    ] * 2
    with ThreadPoolExecutor(len(runs)) as pool:
        list(pool.map(lambda run, number: run(number), runs, range(len(runs))))
    assert sorted(entered) == sorted(list(range(len(runs))) * 20)


@loops
def test_the_core_changes_hands_at_every_pace(cluster3: Cluster, run_loop: Run) -> None:
    async def main() -> None:
        locks = aio.Redlock(cluster3.urls)
        lock = locks.lock("r", ttl=20)
        for pause in (0, 0.0003, 0.002, 0.004, 0.006, 0.009, 0.012):
            for _ in range(15):
                async with lock as lease:
                    await asyncio.sleep(pause)
                    assert cluster3.values("r").count(lease.token) >= 2
                await asyncio.sleep(pause)
        several = (one_after_the_other(locks.lock(f"r{number}"), 5) for number in range(6))
        await asyncio.gather(*several)
        await one_after_the_other(lock, 20)

    run_loop(main())
    eventually(lambda: cluster3.values("r") == [None] * 3)


def test_others_on_the_loop_have_their_turn(cluster3: Cluster) -> None:
    async def main() -> int:
        locks = aio.Redlock(cluster3.urls)
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.ensure_future(other())
        await one_after_the_other(locks.lock("r"), 50)
        task.cancel()
        return turns

    assert asyncio.run(main()) >= 100  # one for each operation at least


@pytest.mark.parametrize("call", ["acquire", "release"])
def test_what_is_dropped_between_two_turns_leaves_no_key(cluster3: Cluster, call: str) -> None:
    async def main() -> None:
        lock = aio.Redlock(cluster3.urls).lock("r", ttl=60)
        await one_after_the_other(lock, 20)
        for _ in range(20):
            if call == "release":
                assert await lock.acquire()
            Begun(getattr(lock, call)()).close()
            eventually(lambda: cluster3.values("r") == [None] * 3)
            assert not lock.owned()

    asyncio.run(main())


def test_a_fork_between_two_turns_is_harmless(cluster3: Cluster) -> None:
    out = run(
        """
        import asyncio, os, warnings, quorlock.aio
        from tests.python.test_loop_driving import Begun
        warnings.simplefilter("ignore")  # newer Pythons warn of forks in threaded programs
        locks = quorlock.aio.Redlock(os.environ["QUORLOCK_NODES"].split(","))

        async def work():
            async with locks.lock("in the child", ttl=30, timeout=10) as lease:
                return lease.is_valid

        def child(acquiring):
            try:
                acquiring._coroutine.send(None)
            except quorlock.LockCancelled:
                return 0 if asyncio.run(work()) else 1
            return 2

        async def main():
            asyncio.get_running_loop().slow_callback_duration = 20
            lock, status = locks.lock("r", ttl=30), None
            while status is None:
                acquiring = Begun(lock.acquire())
                if acquiring.is_begun_on_loop:
                    pid = os.fork()
                    if pid == 0:
                        os._exit(child(acquiring))
                    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                print(status, await acquiring, await lock.release())

        asyncio.run(main())
        """,
        nodes=cluster3.urls,
    )
    assert out.splitlines()[-1] == "0 True released"


async def one_after_the_other(lock: aio.Lock, pairs: int) -> None:
    for _ in range(pairs):
        assert await lock.acquire()
        await lock.release()


class Begun:
    """A coroutine, run up to its first wait. Awaiting this continues it."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        self._awaited = coroutine.send(None)
        #: It waits for nothing but a turn of the loop.
        self.is_begun_on_loop = self._awaited is None

    def __await__(self) -> Any:
        try:
            while True:
                yield self._awaited
                self._awaited = self._coroutine.send(None)
        except StopIteration as end:
            return end.value

    def close(self) -> None:
        self._coroutine.close()
