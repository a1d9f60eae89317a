"""Tests after what time a quorum is free, by `status`, on real servers."""

from __future__ import annotations

import json
import re

import pytest

from tests.cli.command import call
from tests.cli.doctor import Servers
from tests.support.cluster import Cluster


def _write(cluster: Cluster, lefts: tuple[float | None, ...]) -> None:
    """The same value on each server; `None` is without a ttl, zero no key."""
    for server, left in zip(cluster, lefts, strict=True):
        if left != 0:
            ends = [] if left is None else ["PX", round(left * 1000)]
            server.command("SET", "job", "holder", *ends)


@pytest.mark.parametrize(
    ("lefts", "told"),
    [
        ((30, 60, 60), 60),
        ((30, 60, 90), 60),
        ((None, 60, 30), 60),
        ((0, 60, 30), 30),
        ((0, 60, None), 60),
    ],
)
def test_when_a_quorum_will_be_free(
    cluster3: Cluster, lefts: tuple[float | None, ...], told: float
) -> None:
    _write(cluster3, lefts)
    first = call("status", "job", nodes=cluster3.urls).out.splitlines()[0]
    match = re.search(r" nodes, for (\S+) s more unless renewed$", first)
    assert match, first
    assert told - 15 < float(match[1]) <= told


@pytest.mark.parametrize("lefts", [(None, None, None), (None, None, 60)])
def test_a_quorum_that_never_ends(cluster3: Cluster, lefts: tuple[float | None, ...]) -> None:
    _write(cluster3, lefts)
    first = call("status", "job", nodes=cluster3.urls).out.splitlines()[0]
    assert first.endswith("nodes, for ever: its key has no ttl")


def test_nodes_that_do_not_tell(servers: Servers) -> None:
    cluster = servers(3, users={"app": "on >pw ~* &* +@all -pttl"})
    _write(cluster, (60, 60, 60))
    mute = [server.url_for("app", "pw") for server in cluster]
    ended = call("status", "job", nodes=mute)
    assert ended.code == 1
    first = ended.out.splitlines()[0]
    assert first.endswith("; for how long cannot be told: the access list lacks +pttl")
    assert "for ever" not in ended.out
    assert ended.out.count("it does not tell how long it keeps the key") == 3
    (lock,) = json.loads(call("status", "job", "--json", nodes=mute).out)
    assert [node["left_seconds"] for node in lock["nodes"]] == [None] * 3
    assert [node["left_error"] for node in lock["nodes"]] == ["the access list lacks +pttl"] * 3
    # Those that tell are enough.
    first = call("status", "job", nodes=[mute[0], *cluster.urls[1:]]).out.splitlines()[0]
    assert re.search(r", for \d\d\.\d s more unless renewed$", first)


def test_too_few_nodes_tell(cluster3: Cluster) -> None:
    _write(cluster3, (60, 60, None))
    cluster3[0].kill()
    first = call("status", "job", nodes=cluster3.urls).out.splitlines()[0]
    assert first.endswith("; for how long cannot be told: too few nodes tell")
