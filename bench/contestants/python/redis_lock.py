"""redis-py's Lock: one node only, the first. Variant: `aio`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import redis
import redis.asyncio

from bench.contestants.python import tasks, threads
from bench.contestants.python.wire import TTL, addresses, arguments


class Peer:
    """As its documentation shows, for blocking code."""

    def __init__(self, ports: list[int]) -> None:
        self._client = redis.Redis(*addresses(ports)[0])

    def acquire(self, resource: str) -> Any:
        """Waits for as long as it takes."""
        lock = self._client.lock(resource, timeout=TTL / 1000)
        return lock if lock.acquire() else None

    def release(self, held: Any) -> None:
        """Gives it back."""
        held.release()


class AsyncPeer:
    """The same for asyncio."""

    def __init__(self, ports: list[int]) -> None:
        host, port = addresses(ports)[0]
        self._client = redis.asyncio.Redis(host=host, port=port)

    async def acquire(self, resource: str) -> Any:
        """Waits for as long as it takes."""
        lock = self._client.lock(resource, timeout=TTL / 1000)
        return lock if await lock.acquire() else None

    async def release(self, held: Any) -> None:
        """Gives it back."""
        await held.release()


async def build() -> AsyncPeer:
    """Its connections belong to the loop."""
    return AsyncPeer(arguments()[1])


if __name__ == "__main__":
    if arguments()[0] == "aio":
        tasks.serve(build, version("redis"))
    else:
        threads.serve(Peer(arguments()[1]), version("redis"))
