"""Makes a holder that paused for longer than its lease, and the one that came after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from quorlock import Redlock
from tests.support.cluster import Cluster
from tests.support.wait import eventually


class Tokens(NamedTuple):
    """The fencing tokens of two holders of one lock."""

    paused: int
    current: int


@contextmanager
def next_holder(cluster: Cluster) -> Iterator[Callable[[], int]]:
    """Gives a call that acquires the lock once it is free, and returns the fencing token."""
    with Redlock(cluster.urls) as locks:
        lock = locks.lock("invoice:42", ttl=30)

        def acquire() -> int:
            assert lock.acquire(timeout=20)
            assert lock.lease is not None
            assert lock.lease.fencing_token is not None
            return lock.lease.fencing_token

        yield acquire


@contextmanager
def overtake(cluster: Cluster) -> Iterator[Tokens]:
    """A holder paused, its lease ended, and another has the lock now."""
    with Redlock(cluster.urls) as locks, next_holder(cluster) as acquire:
        lock = locks.lock("invoice:42", ttl=0.2)
        assert lock.acquire()
        lease = lock.lease
        assert lease is not None
        assert lease.fencing_token is not None
        eventually(lambda: not lease.is_valid)
        yield Tokens(lease.fencing_token, acquire())
