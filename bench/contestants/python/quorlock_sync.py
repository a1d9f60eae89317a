"""Quorlock for blocking code. Variants: `plain` (what the others do, no more), `block` (`with`)."""

from __future__ import annotations

from contextlib import ExitStack
from importlib.metadata import version

from bench.contestants.python.threads import serve
from bench.contestants.python.wire import PLAIN, TTL, arguments, urls
from quorlock import Lease, Lock, Redlock


class Locks:
    """What both have in common."""

    def __init__(self, variant: str, ports: list[int]) -> None:
        options = PLAIN if variant == "plain" else {}
        self.locks = Redlock(urls(ports), ttl=TTL / 1000, **options)

    def hold(self, resource: str) -> Lease:
        """What a long task keeps: the lease alone."""
        lock = self.locks.lock(resource, auto_extend=True)
        lock.acquire()
        assert lock.lease is not None
        return lock.lease


class Calls(Locks):
    """Acquired and released as a `threading.Lock` is."""

    def acquire(self, resource: str) -> Lock | None:
        """Held."""
        lock = self.locks.lock(resource)
        return lock if lock.acquire() else None

    def release(self, held: Lock | Lease) -> None:
        """Gives it back."""
        held.release()


class Blocks(Locks):
    """Acquired and released by `with`."""

    def acquire(self, resource: str) -> ExitStack:
        """Inside a block."""
        block = ExitStack()
        block.enter_context(self.locks.lock(resource))
        return block

    def release(self, held: ExitStack) -> None:
        """Leaves it."""
        held.close()


if __name__ == "__main__":
    variant, ports = arguments()
    kind = Blocks if variant == "block" else Calls
    serve(kind(variant, ports), version("quorlock"))
