"""Ours for blocking code. Variants: `plain` (what the others do, no more), `block` (`with`)."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.metadata import version

from bench.contestants.python.threads import serve
from bench.contestants.python.wire import PLAIN, TTL, arguments, urls
from quorlock import Lease, Lock, Redlock

Held = Lock | Lease | ExitStack


class Ours:
    """Acquired and released as a `threading.Lock` is."""

    def __init__(self, variant: str, ports: list[int]) -> None:
        self._in_block = variant == "block"
        options = PLAIN if variant == "plain" else {}
        self._locks = Redlock(urls(ports), ttl=TTL / 1000, **options)

    def acquire(self, resource: str) -> Held | None:
        """Held, or inside a block."""
        lock = self._locks.lock(resource)
        if self._in_block:
            block = ExitStack()
            block.enter_context(lock)
            return block
        return lock if lock.acquire() else None

    def hold(self, resource: str) -> Held:
        """What a long task keeps: the lease alone."""
        lock = self._locks.lock(resource, auto_extend=True)
        lock.acquire()
        assert lock.lease is not None
        return lock.lease

    def release(self, held: Held) -> None:
        """Gives it back."""
        if isinstance(held, ExitStack):
            held.close()
        else:
            held.release()


if __name__ == "__main__":
    serve(Ours(*arguments()), version("quorlock"))
