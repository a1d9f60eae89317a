"""aioredlock 0.7 over aioredis 1.3: the asyncio Redlock that most code uses."""

from __future__ import annotations

import warnings
from importlib.metadata import version
from typing import Any

from bench.contestants.python.tasks import serve
from bench.contestants.python.wire import TTL, addresses, arguments

# It is from 2022 and its client from 2019; their warnings are not ours to fix.
warnings.simplefilter("ignore")


class Peer:
    """As its documentation shows: a lock without a timeout is renewed by a task of its own."""

    def __init__(self, ports: list[int]) -> None:
        import aioredlock

        nodes = [{"host": host, "port": port} for host, port in addresses(ports)]
        self._given_up = aioredlock.LockError
        self._locks = aioredlock.Aioredlock(nodes, internal_lock_timeout=TTL / 1000)

    async def acquire(self, resource: str) -> Any:
        """None after its three tries."""
        try:
            return await self._locks.lock(resource, lock_timeout=TTL / 1000)
        except self._given_up:
            return None

    async def hold(self, resource: str) -> Any:
        """Renewed."""
        return await self._locks.lock(resource)

    async def release(self, held: Any) -> None:
        """Gives it back."""
        await self._locks.unlock(held)


async def build() -> Peer:
    """Its connections belong to the loop."""
    return Peer(arguments()[1])


if __name__ == "__main__":
    serve(build, version("aioredlock"))
