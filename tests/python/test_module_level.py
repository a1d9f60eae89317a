"""Tests redlock(...): the lock over the process's nodes, for with, async with and functions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import quorlock
import quorlock.aio
from quorlock import ConfigError, LockNotAcquired, redlock
from tests.python.apis import memory_nodes
from tests.python.programs import run
from tests.support.cluster import Cluster


@pytest.fixture(autouse=True)
def _unconfigured(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("QUORLOCK_NODES", raising=False)
    quorlock.configure(None)
    yield
    quorlock.configure(None)


def test_it_serves_with_and_async_with_alike() -> None:
    quorlock.configure(memory_nodes("both"), ttl=3)
    lock: Any = redlock("r")
    with lock as lease:
        assert lease.ttl == 3.0
        assert lock.lease is lease

    async def main() -> None:
        async with lock as lease:
            assert isinstance(lease, quorlock.aio.Lease)
            assert lock.lease is lease
            assert lock.owned()
            assert await lease.check() > 0
            with pytest.raises(LockNotAcquired):
                async with redlock("r", blocking=False):
                    pytest.fail("the body ran without the lock")

    asyncio.run(main())
    assert not lock.locked()
    assert quorlock.aio.redlock is redlock


def test_it_decorates_both_kinds_of_functions() -> None:
    @redlock("nightly", ttl=60, blocking=False)
    def nightly() -> str:
        with pytest.raises(LockNotAcquired):
            nightly()
        return "done"

    @redlock("nightly", ttl=60, blocking=False)
    async def nightly_too() -> str:
        with pytest.raises(LockNotAcquired):
            await nightly_too()
        return "done"

    quorlock.configure(memory_nodes("decorated"))  # after the functions were made
    assert nightly() == "done"
    assert asyncio.run(nightly_too()) == "done"


def test_without_nodes_it_says_what_to_do() -> None:
    lock = redlock("r")
    with pytest.raises(ConfigError, match=r"quorlock.configure.*QUORLOCK_NODES"):
        lock.acquire()


def test_the_nodes_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, cluster3: Cluster
) -> None:
    for text in (", ".join(cluster3.urls), "\n".join(cluster3.urls), " ".join(cluster3.urls)):
        monkeypatch.setenv("QUORLOCK_NODES", text)
        with redlock("r") as lease:
            assert [vote.address for vote in lease.votes] == cluster3.urls
    monkeypatch.setenv("QUORLOCK_NODES", "http://a")
    with pytest.raises(ConfigError, match="scheme"):
        redlock("r").acquire()


def test_configure_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUORLOCK_NODES", "redis://127.0.0.1:1")
    quorlock.configure(memory_nodes("first"))
    lock = redlock("r")
    assert lock.acquire()
    quorlock.configure(memory_nodes("second"))
    other = redlock("r")
    assert other.acquire(blocking=False), "the nodes are looked up when it is acquired"
    assert lock.release() == other.release() == "released"


def test_wrong_settings_are_told_when_the_lock_is_made() -> None:
    with pytest.raises(ConfigError, match="ttl"):
        redlock("r", ttl=-1)
    with pytest.raises(ConfigError, match="did you mean"):
        redlock("r", tll=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="empty"):
        redlock("")


def test_a_whole_program_needs_only_the_environment(cluster3: Cluster) -> None:
    code = "from quorlock import redlock\nwith redlock('r') as lease: print(lease.is_valid)"
    assert run(code, nodes=cluster3.urls) == "True"
