"""Adapts each Python library: how it acquires, releases, runs a block and renews.

`ttl` in milliseconds; `once` stands for one try, otherwise a library tries as often as it does by
default. Acquiring gives what is held, or None.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import warnings
from collections.abc import Coroutine, Iterator
from typing import Any

warnings.simplefilter("ignore")  # aioredis is from 2019


class Library:
    """What all have in common: no renewal, no block, no event loop."""

    def __init__(self, nodes: list[str]) -> None:
        self.nodes = [(host, int(port), int(db or 0)) for host, port, db in map(_parts, nodes)]
        self.urls = [f"redis://{host}:{port}/{db}" for host, port, db in self.nodes]

    def acquire(self, resource: str, ttl: int, once: bool) -> Any:
        raise NotImplementedError

    def release(self, held: Any) -> object:
        raise NotImplementedError

    def valid_for(self, held: Any) -> float | None:  # noqa: ARG002
        """Seconds, if it tells."""
        return None

    def renewed(self, resource: str, ttl: int) -> Any:
        """Renewed until the end of the program, if it can do that."""
        return self.acquire(resource, ttl, once=False)

    def lost(self, held: Any) -> bool:  # noqa: ARG002
        """Whether the holder has been told."""
        return False

    def block(self, resource: str, ttl: int) -> Any:
        """A context manager."""
        raise NotImplementedError

    async def acquiring(self, resource: str, ttl: int) -> Any:
        """As a task that can be cancelled."""
        raise NotImplementedError

    def rest(self, seconds: float) -> None:
        """Does nothing: an event loop goes on."""
        time.sleep(seconds)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """On one event loop."""
        self._runner = getattr(self, "_runner", None) or asyncio.Runner()
        return self._runner.run(work)


def _parts(node: str) -> tuple[str, str, str]:
    address, _, db = node.partition("/")
    host, _, port = address.rpartition(":")
    return host, port, db


class Quorlock(Library):
    def __init__(self, nodes: list[str]) -> None:
        super().__init__(nodes)
        from quorlock import Redlock

        self._locks = Redlock(self.urls)

    def acquire(self, resource: str, ttl: int, once: bool) -> Any:
        lock = self._locks.lock(resource, ttl=ttl / 1000)
        return lock if lock.acquire(blocking=not once) else None

    def release(self, held: Any) -> object:
        return held.release()

    def valid_for(self, held: Any) -> float | None:
        return float(held.lease.validity)

    def renewed(self, resource: str, ttl: int) -> Any:
        self._told = False
        lock = self._locks.lock(resource, ttl=ttl / 1000, auto_extend=True, on_lost=self._hear)
        lock.acquire()
        return lock

    def _hear(self) -> None:
        self._told = True

    def lost(self, held: Any) -> bool:  # noqa: ARG002
        return self._told

    def block(self, resource: str, ttl: int) -> Any:
        return self._locks.lock(resource, ttl=ttl / 1000)

    async def acquiring(self, resource: str, ttl: int) -> Any:
        from quorlock.aio import Redlock

        await Redlock(self.urls).lock(resource, ttl=ttl / 1000).acquire()


class RedlockPy(Library):
    def __init__(self, nodes: list[str]) -> None:
        super().__init__(nodes)
        from redlock import Redlock

        where = [{"host": host, "port": port, "db": db} for host, port, db in self.nodes]
        self._locks = Redlock(where)

    def acquire(self, resource: str, ttl: int, once: bool) -> Any:
        self._locks.retry_count = 1 if once else self._locks.default_retry_count
        return self._locks.lock(resource, ttl) or None

    def release(self, held: Any) -> object:
        return self._locks.unlock(held)

    def valid_for(self, held: Any) -> float | None:
        return float(held.validity) / 1000


class Aioredlock(Library):
    def __init__(self, nodes: list[str]) -> None:
        super().__init__(nodes)
        self._locks = self.run(self._manager())

    async def _manager(self, **options: Any) -> Any:
        from aioredlock import Aioredlock

        where = [{"host": host, "port": port, "db": db} for host, port, db in self.nodes]
        return Aioredlock(where, **options)

    def acquire(self, resource: str, ttl: int, once: bool) -> Any:
        from aioredlock import LockError

        async def work() -> Any:
            self._locks.retry_count = 1 if once else 3
            try:
                return await self._locks.lock(resource, lock_timeout=ttl / 1000)
            except LockError:
                return None

        return self.run(work())

    def release(self, held: Any) -> object:
        return self.run(self._locks.unlock(held))

    def renewed(self, resource: str, ttl: int) -> Any:
        async def work() -> Any:
            # A lock without a timeout is renewed; its ttl is then the manager's.
            manager = await self._manager(internal_lock_timeout=ttl / 1000)
            return await manager.lock(resource)

        return self.run(work())

    def lost(self, held: Any) -> bool:
        return not held.valid

    @contextlib.contextmanager
    def block(self, resource: str, ttl: int) -> Iterator[None]:
        lock = self.acquire(resource, ttl, once=False)
        self.run(lock.__aenter__())
        try:
            yield
        except BaseException as error:
            if not self.run(lock.__aexit__(type(error), error, error.__traceback__)):
                raise
        else:
            self.run(lock.__aexit__(None, None, None))

    async def acquiring(self, resource: str, ttl: int) -> Any:
        await self._locks.lock(resource, lock_timeout=ttl / 1000)

    def rest(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))


class Pottery(Library):
    def __init__(self, nodes: list[str]) -> None:
        super().__init__(nodes)
        from redis import Redis

        self._masters = {Redis(host, port, db) for host, port, db in self.nodes}

    def block(self, resource: str, ttl: int) -> Any:
        from pottery import Redlock

        return Redlock(key=resource, masters=self._masters, auto_release_time=ttl / 1000)

    def acquire(self, resource: str, ttl: int, once: bool) -> Any:
        lock = self.block(resource, ttl)
        return lock if lock.acquire(blocking=not once) else None

    def release(self, held: Any) -> object:
        return held.release()


class RedisPy(Library):
    def __init__(self, nodes: list[str]) -> None:
        super().__init__(nodes)
        from redis import Redis

        self._client = Redis(*self.nodes[0])

    def block(self, resource: str, ttl: int) -> Any:
        return self._client.lock(resource, timeout=ttl / 1000)

    def acquire(self, resource: str, ttl: int, once: bool) -> Any:
        lock = self.block(resource, ttl)
        return lock if lock.acquire(blocking=not once) else None

    def release(self, held: Any) -> object:
        return held.release()

    async def acquiring(self, resource: str, ttl: int) -> Any:
        from redis.asyncio import Redis

        host, port, db = self.nodes[0]
        await Redis(host=host, port=port, db=db).lock(resource, timeout=ttl / 1000).acquire()


LIBRARIES: dict[str, type[Library]] = {
    "quorlock": Quorlock,
    "redlock-py": RedlockPy,
    "aioredlock": Aioredlock,
    "pottery": Pottery,
    "redis-py `Lock`": RedisPy,
}
