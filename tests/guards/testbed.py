"""Creates the servers, proxies and clients of one schedule, and ends them with it.

Clients are patient with nodes: it is the guards that refuse here, not a busy machine.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from quorlock import Lock, LockNotAcquired, QuorumUnreachable, Redlock
from tests.support.cluster import Cluster, start_servers
from tests.support.old_data import OldData
from tests.support.proxy import FaultProxy
from tests.support.servers import Options, Server
from tests.support.wait import eventually

#: Without these a schedule must end in two holders: else it shows nothing.
UNGUARDED: dict[str, Any] = {"restart_guard": "off", "clock_guard": False}
#: Seconds for which a second client tries to get in.
PATIENCE = 1.5


class Testbed(contextlib.ExitStack):
    """Everything of one schedule."""

    #: Its name begins like that of a class of tests, which it is not.
    __test__ = False

    def servers(self, count: int = 3, **options: Any) -> Cluster:
        """Options as in `tests.support.options`."""
        return self.enter_context(start_servers(count, Options(**options)))

    def proxy(self, server: Server) -> FaultProxy:
        return self.enter_context(FaultProxy(server))

    def old_data(self, kind: type[OldData], server: Server) -> OldData:
        return self.enter_context(kind(server))

    def client(self, urls: Iterable[str], **options: Any) -> Redlock:
        """A new one, which has not been there before."""
        locks = Redlock(list(urls), **{"node_timeout": 2, "ttl": 10, **options})
        self.callback(locks.close)
        return locks

    def warm(self, urls: Iterable[str], **options: Any) -> Redlock:
        """One that has been there before, and found nothing wrong."""
        locks = self.client(urls, **options)
        self.touch(locks)
        eventually(lambda: {node.state for node in locks.nodes} == {"healthy"})
        return locks

    @staticmethod
    def touch(locks: Redlock, name: str = "warm", **options: Any) -> None:
        """Takes a lock and gives it back."""
        lock = locks.lock(name, **options)
        assert lock.acquire(timeout=30)
        lock.release()

    @staticmethod
    def hold(locks: Redlock, name: str, **options: Any) -> Lock:
        """A lock that is held until its ttl ends."""
        lock = locks.lock(name, **options)
        assert lock.acquire(timeout=30)
        return lock


def gets_in(locks: Redlock, name: str = "r", *, patience: float = PATIENCE, **options: Any) -> bool:
    """Whether it is given the lock within its patience. Gives it back."""
    lock = locks.lock(name, **options)
    try:
        got = lock.acquire(timeout=patience)
    except (LockNotAcquired, QuorumUnreachable):
        return False
    if got:
        lock.release()
    return got


def assert_kept_out(holder: Lock, locks: Redlock, name: str = "r", **options: Any) -> None:
    """Nobody else is given what is held; the end of the holder's validity is still to come."""
    got = gets_in(locks, name, **options)
    assert holder.lease is not None
    assert holder.lease.validity > 0, "the schedule took too long to mean anything"
    assert not got, f"a second holder of {name!r}: {locks.nodes}"


def assert_let_in(locks: Redlock, name: str = "r", **options: Any) -> None:
    """Without the guards the schedule is as dangerous as it is meant to be."""
    assert gets_in(locks, name, **options), f"the schedule shows nothing: {locks.nodes}"


def quarantine_left(locks: Redlock) -> list[float]:
    """For how many seconds each node is held back yet; zero if it is not."""
    return [node.quarantine or 0.0 for node in locks.nodes]


def restart_empty(server: Server) -> None:
    """As a container is deployed anew: an orderly end, and nothing of its data stays."""
    server.stop()
    server.restart()


@contextlib.contextmanager
def warnings_about(cluster: Sequence[Server]) -> Iterator[Callable[[], list[str]]]:
    """What the logger `quorlock` is told of these servers meanwhile, each line once for each time.

    The logger is the process's: schedules beside this one have servers of their own.
    """
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if any(str(server.port) in text for server in cluster):
                lines.append(text)

    handler, logger = Handler(), logging.getLogger("quorlock")
    logger.addHandler(handler)
    try:
        yield lambda: list(lines)
    finally:
        logger.removeHandler(handler)


def sleep_until(moment: float) -> None:
    """By the monotonic clock. For times that are a schedule's own, not for what comes true."""
    time.sleep(max(0.0, moment - time.monotonic()))
