"""redlock-ng, in an environment of its own: its module has redlock-py's name. Variant: `aio`."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import redlock

from bench.contestants.python import tasks, threads
from bench.contestants.python.wire import TTL, arguments, urls


class Peer:
    """As its documentation shows, for blocking code."""

    def __init__(self, ports: list[int]) -> None:
        self._locks = redlock.Redlock(urls(ports))

    def acquire(self, resource: str) -> Any:
        """Waits for as long as it takes."""
        return self._locks.acquire(resource, TTL, blocking=True)

    def release(self, held: Any) -> None:
        """Never says whether it did."""
        self._locks.release(held)


class AsyncPeer:
    """The same for asyncio."""

    def __init__(self, ports: list[int]) -> None:
        self._locks = redlock.AsyncRedlock(urls(ports))

    async def acquire(self, resource: str) -> Any:
        """Waits for as long as it takes."""
        return await self._locks.acquire(resource, TTL, blocking=True)

    async def release(self, held: Any) -> None:
        """Never says whether it did."""
        await self._locks.release(held)


async def build() -> AsyncPeer:
    """Its connections belong to the loop."""
    return AsyncPeer(arguments()[1])


if __name__ == "__main__":
    if arguments()[0] == "aio":
        tasks.serve(build, version("redlock-ng"))
    else:
        threads.serve(Peer(arguments()[1]), version("redlock-ng"))
