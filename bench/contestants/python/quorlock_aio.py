"""Quorlock for asyncio. Variant: `plain` (no fencing, no guards: what the others do)."""

from __future__ import annotations

from importlib.metadata import version

from bench.contestants.python.tasks import serve
from bench.contestants.python.wire import PLAIN, TTL, arguments, urls
from quorlock.aio import Lease, Lock, Redlock

Held = Lock | Lease


class Ours:
    """Acquired and released as an `asyncio.Lock` is."""

    def __init__(self, variant: str, ports: list[int]) -> None:
        options = PLAIN if variant == "plain" else {}
        self._locks = Redlock(urls(ports), ttl=TTL / 1000, **options)

    async def acquire(self, resource: str) -> Held | None:
        """Held."""
        lock = self._locks.lock(resource)
        return lock if await lock.acquire() else None

    async def hold(self, resource: str) -> Held:
        """What a long task keeps: the lease alone."""
        lock = self._locks.lock(resource, auto_extend=True)
        await lock.acquire()
        assert lock.lease is not None
        return lock.lease

    async def release(self, held: Held) -> None:
        """Gives it back."""
        await held.release()


async def build() -> Ours:
    """Needs no loop to be made on."""
    return Ours(*arguments())


if __name__ == "__main__":
    serve(build, version("quorlock"))
