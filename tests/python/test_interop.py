"""Tests that other libraries and this one exclude each other by the same keys.

Services can be moved over one by one. What only Node's API can show is in tests/node/interop.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import quorlock.aio
from quorlock import LeaseLost, LockNotAcquired, Redlock
from tests.support.cluster import Cluster, start_servers
from tests.support.peer_process import PeerError, PeerProcess
from tests.support.wait import eventually

#: How many nodes each takes.
PEERS = {
    "redlock-py": 3,
    "aioredlock": 3,
    "redis-py": 1,
    "redis-py-asyncio": 1,
    "valkey-py": 1,
    "node-redlock": 3,
    "node-redlock-4": 3,
    "redlock-universal": 3,
}
NO_EXTEND = {"redlock-py"}
#: Pairs that run against ours for one counter; increments of each of the four.
CONTENDERS = [("redlock-py", "node-redlock"), ("aioredlock", "redlock-universal")]
ROUNDS = 12


class Both:
    """A worker of another library, ours, and the nodes that both use."""

    def __init__(self, theirs: PeerProcess, nodes: Cluster, ours: Redlock) -> None:
        self.theirs, self.nodes, self.ours = theirs, nodes, ours
        self.can_extend = theirs.name not in NO_EXTEND

    def wait_for(self, value: str | None) -> None:
        """Returns when every node holds this value: some return at the quorum."""
        eventually(lambda: self.nodes.values("shared") == [value] * len(self.nodes))

    def forget(self) -> None:
        """The nodes forget all keys, as after a lock has run out."""
        for node in self.nodes:
            node.empty()


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    """Servers that the processes of these tests keep their connections to."""
    with start_servers(3) as cluster:
        yield cluster


@pytest.fixture(scope="module", params=PEERS)
def worker(request: pytest.FixtureRequest, three: Cluster) -> Iterator[PeerProcess]:
    """One process a library for all of these tests."""
    addresses = [node.address for node in three[: PEERS[request.param]]]
    with PeerProcess(request.param, addresses) as process:
        yield process


@pytest.fixture(params=[True, False], ids=["fencing", "plain"])
def both(request: pytest.FixtureRequest, worker: PeerProcess, three: Cluster) -> Iterator[Both]:
    three.reset()
    nodes = Cluster(three[: PEERS[worker.name]])
    with Redlock(nodes.urls, fencing=request.param, ttl=30) as ours:
        yield Both(worker, nodes, ours)


def test_theirs_is_kept_out_until_ours_releases(both: Both) -> None:
    with both.ours.lock("shared") as lease:
        both.wait_for(lease.token)
        assert both.theirs.acquire("shared") is None
        assert both.nodes.values("shared") == [lease.token] * len(both.nodes)
        lease.check()
    both.wait_for(None)
    assert both.theirs.acquire("shared") is not None
    assert both.theirs.release("shared")


def test_ours_is_kept_out_until_theirs_releases(both: Both) -> None:
    token = both.theirs.acquire("shared", ttl=30)
    assert token is not None
    both.wait_for(token)
    assert not both.ours.lock("shared").acquire(blocking=False)
    with pytest.raises(LockNotAcquired, match="held by another"):
        with both.ours.lock(["free", "shared"], blocking=False):
            pytest.fail("the body ran without the lock")
    assert both.ours.lock("shared").locked()
    assert both.nodes.values("shared") == [token] * len(both.nodes)
    eventually(lambda: both.nodes.values("free") == [None] * len(both.nodes))
    if both.can_extend:
        assert both.theirs.extend("shared", ttl=60)
        eventually(lambda: all(node.keys()["shared"] > 30_000 for node in both.nodes))
    assert both.theirs.release("shared")
    assert both.ours.lock("shared", timeout=5).acquire()


def test_theirs_cannot_extend_or_release_a_later_one_of_ours(both: Both) -> None:
    assert both.theirs.acquire("shared") is not None
    both.forget()
    with both.ours.lock("shared", auto_extend=False) as lease:
        both.wait_for(lease.token)
        if both.can_extend:
            with contextlib.suppress(PeerError):
                assert not both.theirs.extend("shared", ttl=600)
        with contextlib.suppress(PeerError):
            both.theirs.release("shared")  # some say that they did
        assert both.nodes.values("shared") == [lease.token] * len(both.nodes)
        assert all(node.keys()["shared"] <= 30_000 for node in both.nodes)
        assert lease.check() > 0


def test_ours_cannot_extend_or_release_a_later_one_of_theirs(both: Both) -> None:
    lock = both.ours.lock("shared")
    assert lock.acquire()
    lease = lock.lease
    assert lease is not None
    both.wait_for(lease.token)
    both.forget()
    token = both.theirs.acquire("shared", ttl=30)
    assert token is not None
    both.wait_for(token)
    for lost in (lease.check, lambda: lease.extend(600), lock.release):
        with pytest.raises(LeaseLost):
            lost()
    assert both.nodes.values("shared") == [token] * len(both.nodes)
    assert all(node.keys()["shared"] <= 30_000 for node in both.nodes)
    assert both.theirs.release("shared")


@pytest.mark.parametrize("names", CONTENDERS, ids="+".join)
def test_no_update_is_lost_in_a_race_of_four(
    names: tuple[str, str],
    cluster3: Cluster,
    peer: Callable[[str, Cluster], PeerProcess],
) -> None:
    start = threading.Barrier(4, timeout=30)
    refused = 0

    def increment() -> None:
        value = int(cluster3[0].command("GET", "counter") or 0)
        time.sleep(0.001)
        cluster3[0].command("SET", "counter", value + 1)

    def blocking() -> None:
        with Redlock(cluster3.urls, ttl=20, retry_delay=0.02, retry_jitter=0.02) as locks:
            start.wait()
            for _ in range(ROUNDS):
                with locks.lock("shared", timeout=60):
                    increment()

    async def on_a_loop() -> None:
        locks = quorlock.aio.Redlock(
            cluster3.urls, ttl=20, retry_delay=0.02, retry_jitter=0.02, fencing=False
        )
        await asyncio.to_thread(start.wait)
        for _ in range(ROUNDS):
            async with locks.lock("shared", timeout=60):
                await asyncio.to_thread(increment)

    def theirs(worker: PeerProcess) -> None:
        nonlocal refused
        start.wait()
        for _ in range(ROUNDS):
            limit = time.monotonic() + 60
            while worker.acquire("shared", ttl=20) is None:
                refused += 1
                assert time.monotonic() < limit, f"{worker.name} never got the lock"
                time.sleep(random.uniform(0.005, 0.02))
            increment()
            worker.release("shared")

    workers = [peer(name, cluster3) for name in names]
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(blocking), pool.submit(lambda: asyncio.run(on_a_loop()))]
        runs += [pool.submit(theirs, worker) for worker in workers]
        for run in runs:
            run.result()
    assert cluster3[0].command("GET", "counter") == str(4 * ROUNDS)
    assert refused > 0, "there was no race"
