"""Tests the commands on servers that answer, but take no writes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.cli.command import call
from tests.cli.doctor import Servers
from tests.support.cluster import Cluster
from tests.support.servers import Server

BY_TOKEN = ("release", "job", "--token", "mine")


def _want_replicas(server: Server) -> None:
    server.command("CONFIG", "SET", "min-replicas-to-write", "3")


@pytest.fixture
def cluster(servers: Servers) -> Cluster:
    """Three servers as the documentation wants them, for one test."""
    cluster = servers(3, appendonly=True)
    cluster.reset()
    return cluster


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (BY_TOKEN, 1),
        (("extend", "job", "--token", "mine"), 1),
        (("verify", "job@5"), 1),
        (("nodes",), 0),
        (("doctor",), 2),
    ],
)
def test_nothing_is_waited_for_once_all_nodes_have_answered(
    cluster: Cluster, words: Sequence[str], code: int
) -> None:
    for server in cluster[:2]:
        _want_replicas(server)
    assert call("--timeout", "60s", *words, nodes=cluster.urls).code == code
