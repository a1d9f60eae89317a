"""A client in Python: takes locks in every way that users do, and increments counters under them.

Writes down what it was promised before it relies on it, so that a kill loses no promise, and that
it gives a lock back before it does. Judges nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import socket
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Sequence
from typing import Any

import quorlock
import quorlock.aio

#: How often which: name, weight.
HABITS = {
    "block": 8,  # `with`, renewed
    "bare": 8,  # acquire and release, not renewed
    "renewed": 4,  # acquire with auto_extend
    "extended": 4,  # extended by hand
    "at once": 6,  # blocking=False
    "impatient": 4,  # a short timeout
    "cancelled": 4,  # a task that is cancelled while it waits
    "careless": 1,  # goes on after the end, and writes what it read before
    "forgotten": 1,  # neither released nor renewed: left to its ttl
}
EXPECTED = (quorlock.LockNotAcquired, quorlock.QuorumUnreachable, quorlock.LeaseLost)


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Blocking:
    """The blocking API, in the words of the other; nothing in it ever suspends."""

    Redlock: Any = quorlock.Redlock
    habits = tuple(habit for habit in HABITS if habit != "cancelled")

    async def call(self, value: Any) -> Any:
        return value

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    @contextlib.asynccontextmanager
    async def block(self, lock: Any) -> AsyncIterator[Any]:
        with lock as lease:
            yield lease

    def run(self, workers: Sequence[Worker | Bystander]) -> None:
        threads = [threading.Thread(target=self._run, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _run(self, worker: Worker | Bystander) -> None:
        try:
            worker.work().send(None)
        except StopIteration:
            return
        raise AssertionError("the blocking API suspended")


class Asyncio:
    """The asyncio API."""

    Redlock = quorlock.aio.Redlock
    habits = tuple(HABITS)

    async def call(self, value: Any) -> Any:
        return await value

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    @contextlib.asynccontextmanager
    async def block(self, lock: Any) -> AsyncIterator[Any]:
        async with lock as lease:
            yield lease

    def run(self, workers: Sequence[Worker | Bystander]) -> None:
        async def main() -> None:
            await asyncio.gather(*(worker.work() for worker in workers))

        # Not debug: its warnings of slow steps would tell of every SIGSTOP.
        asyncio.run(main(), debug=False)


class Counter:
    """One connection to the protected counters: see counter.py."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._answers = self._socket.makefile("r")

    def ask(self, **request: Any) -> Any:
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(self._answers.readline())

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


class Worker:
    """One task or thread."""

    def __init__(self, orders: dict[str, Any], number: int, api: Any, locks: Any, log: int) -> None:
        self._ttl: float = orders["ttl"]
        self._names: list[str] = orders["names"]
        self._id = f"{orders['name']}/{number}"
        self._dice = random.Random(f"{orders['seed']}/{number}/{os.getpid()}")
        self._api = api
        self._locks = locks
        self._log = log
        self._counter = Counter(orders["counter"])
        self._turns = 0

    async def work(self) -> None:
        while not STOPPING.is_set():
            self._turns += 1
            try:
                await self._turn()
            except EXPECTED as error:
                self._say(what="error", name=type(error).__name__)
            except TimeoutError:
                self._say(what="error", name="cancelled")
            except BaseException:
                self._say(what="problem", text=f"{self._id}: {traceback.format_exc()}")
                raise
            await self._api.sleep(self._dice.expovariate(1 / 0.03))
        self._counter.close()

    async def _turn(self) -> None:
        habits = self._api.habits
        habit = self._dice.choices(habits, [HABITS[name] for name in habits])[0]
        first, second = self._names
        names = self._dice.choices([[first], [second], [first, second]], [3, 1, 1])[0]
        wait = self._dice.uniform(0, 0.3) if habit == "impatient" else 4.0
        renewed = True if habit == "renewed" else None
        fair = len(names) == 1 and self._dice.random() < 0.3
        lock = self._locks.lock(names, ttl=self._ttl, timeout=wait, auto_extend=renewed, fair=fair)
        asked = now()
        if habit == "block":
            async with self._api.block(lock) as lease:
                try:
                    await self._hold(habit, asked, lease)
                finally:
                    self._ends()
        elif await self._acquire(habit, lock):
            try:
                await self._hold(habit, asked, lock.lease)
            finally:
                self._ends()
                if habit != "forgotten":
                    await self._api.call(lock.release())
        else:
            self._say(what="error", name="not acquired")

    async def _acquire(self, habit: str, lock: Any) -> bool:
        taking = lock.acquire(blocking=habit != "at once")
        if habit == "cancelled":
            taking = asyncio.wait_for(taking, self._dice.uniform(0, 0.2))
        return bool(await self._api.call(taking))

    async def _hold(self, habit: str, asked: float, lease: Any) -> None:
        if not self._held(asked, lease):
            return
        end = now() + self._length(habit)
        while True:
            read = self._read(lease)
            if read is None:
                return
            if habit == "careless":
                await self._api.sleep(lease.validity + self._dice.uniform(0.02, 0.4))
            else:
                await self._api.sleep(self._dice.expovariate(1 / 0.005))
                if not self._still(lease):
                    return
            self._write(lease, read)
            if now() > end or habit == "careless" or STOPPING.is_set():
                return
            await self._api.sleep(min(0.1, max(0.0, end - now())))
            if habit == "extended":
                await self._api.call(lease.extend())
            if not self._still(lease):
                return

    def _length(self, habit: str) -> float:
        """Mostly short, so that many come to their turn; some longer than the ttl."""
        if self._dice.random() < 0.9:
            return self._dice.expovariate(1 / 0.02)
        longest = 2.5 if habit in ("block", "renewed", "extended") else 0.9
        return self._dice.uniform(0.3, longest) * self._ttl

    # -- the counters --------------------------------------------------------------------------

    def _read(self, lease: Any) -> dict[str, dict[str, Any]] | None:
        found = {}
        for name in lease.resources:
            found[name] = self._counter.ask(
                do="read", name=name, lease=self._lease, token=lease.fencing_token
            )
        if all(answer["accepted"] for answer in found.values()):
            return found
        self._say(what="error", name="turned away by the counter")
        return None

    def _write(self, lease: Any, read: dict[str, dict[str, Any]]) -> None:
        for name, answer in read.items():
            self._counter.ask(
                do="write", name=name, lease=self._lease, token=lease.fencing_token,
                value=answer["value"] + 1, careless=answer["careless"] + 1,
            )  # fmt: skip

    # -- the log -------------------------------------------------------------------------------

    @property
    def _lease(self) -> str:
        return f"{self._id}#{self._turns}"

    def _held(self, asked: float, lease: Any) -> bool:
        # The clock is read first: what is written is never later than what was promised.
        at, validity = now(), lease.validity if lease is not None else 0.0
        if validity <= 0:
            self._say(what="error", name="over when it was told")
            return False
        self._say(
            what="held", lease=self._lease, names=list(lease.resources), token=lease.fencing_token,
            asked=asked, at=at, until=at + validity, ttl=self._ttl,
        )  # fmt: skip
        return True

    def _still(self, lease: Any) -> bool:
        at, validity = now(), lease.validity
        if validity > 0:
            # The end lies between the two: the process may have been stopped in the middle.
            latest = now() + validity
            self._say(what="still", lease=self._lease, until=at + validity, latest=latest)
        return bool(validity > 0)

    def _ends(self) -> None:
        self._say(what="ends", lease=self._lease, at=now())

    def _say(self, **record: Any) -> None:
        os.write(self._log, json.dumps(record).encode() + b"\n")


class Bystander:
    """Takes locks of another cluster, with a manager of its own. Nobody judges them."""

    def __init__(self, api: Any, locks: Any) -> None:
        self._api = api
        self._locks = locks

    async def work(self) -> None:
        while not STOPPING.is_set():
            with contextlib.suppress(*EXPECTED):
                async with self._api.block(self._locks.lock("elsewhere", ttl=1, timeout=0.5)):
                    await self._api.sleep(0.02)
            await self._api.sleep(0.05)


STOPPING = threading.Event()


def main() -> None:
    orders = json.loads(sys.argv[1])
    log = os.open(orders["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    api: Any = Blocking() if orders["api"] == "blocking" else Asyncio()
    # What nodes go through is known here.
    logging.getLogger("quorlock").setLevel(logging.CRITICAL)
    guards = {}
    if orders["guards"] is not None:
        guards = {
            "restart_guard": orders["guards"],
            "clock_guard": orders["guards"] != "off",
            # So that nodes are held back for as long as these locks last, and not for longer ones.
            "max_ttl": orders["ttl"],
        }
    settings = {
        "ttl": orders["ttl"],
        "node_timeout": 0.15,
        "retry_delay": 0.04,
        "retry_jitter": 0.03,
    }
    locks = api.Redlock(orders["nodes"], **settings, **guards)

    def wait_for_the_end() -> None:
        sys.stdin.read()
        STOPPING.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    workers: list[Worker | Bystander] = [
        Worker(orders, number, api, locks, log) for number in range(orders["tasks"])
    ]
    if "others" in orders:
        workers.append(Bystander(api, api.Redlock(orders["others"], **settings, **guards)))
    api.run(workers)


if __name__ == "__main__":
    main()
