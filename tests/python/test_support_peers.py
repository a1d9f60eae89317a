"""Tests the workers of peer libraries: they exclude each other, and release their locks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.cluster import Cluster
from tests.support.peer_process import NODE_PEERS, PYTHON_PEERS, PeerError, PeerProcess
from tests.support.wait import eventually

Peers = Callable[[str, Cluster], PeerProcess]
ONE_NODE = {"redis-py", "redis-py-asyncio", "valkey-py"}
NO_EXTEND = {"redlock-py"}


@pytest.mark.parametrize("name", [*PYTHON_PEERS, *NODE_PEERS])
def test_peer_takes_extends_and_gives_back(name: str, cluster3: Cluster, peer: Peers) -> None:
    worker = peer(name, cluster3)
    key = "redlock:a" if name == "pottery" else "a"
    token = worker.acquire(key, ttl=20.0)
    assert token is not None
    expected = [token, None, None] if name in ONE_NODE else [token] * 3
    # Some return at the quorum, before the last node was asked.
    eventually(lambda: cluster3.values(key) == expected)
    assert 10_000 < cluster3[0].keys()[key] <= 20_000
    assert peer(name, cluster3).acquire(key, ttl=20.0) is None

    if name in NO_EXTEND:
        with pytest.raises(PeerError, match="no extend"):
            worker.extend(key, ttl=60.0)
    else:
        assert worker.extend(key, ttl=60.0)
        longest = 20_000 if name == "pottery" else 60_000  # pottery extends by its first ttl only
        assert longest - 10_000 < cluster3[0].keys()[key] <= longest

    assert worker.release(key)
    eventually(lambda: cluster3.values(key) == [None] * 3)


def test_a_worker_that_ends_releases_nothing(cluster3: Cluster, peer: Peers) -> None:
    worker = peer("redlock-py", cluster3)
    token = worker.acquire("a")
    worker.close()
    assert cluster3.values("a") == [token] * 3


def test_peers_of_both_languages_exclude_each_other(cluster3: Cluster, peer: Peers) -> None:
    python, node = peer("redlock-py", cluster3), peer("node-redlock", cluster3)
    assert python.acquire("a") is not None
    assert node.acquire("a") is None
    python.release("a")
    assert node.acquire("a") is not None
    assert python.acquire("a") is None
