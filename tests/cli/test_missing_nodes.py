"""Tests the commands about holders where nodes are dead, slow or hung."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from tests.cli.command import call
from tests.support.cluster import Cluster
from tests.support.proxy import FaultProxy

Proxies = Callable[..., FaultProxy]
#: Nothing listens there.
DEAD = "redis://127.0.0.1:1"


@pytest.mark.parametrize("command", ["extend", "release"])
@pytest.mark.parametrize(
    ("values", "code"), [(("other", "other"), 3), (("other",), 1), ((), 1), (("mine",), 69)]
)
def test_who_has_a_lock_beside_a_dead_node(
    cluster3: Cluster,
    fault_proxy: Proxies,
    command: str,
    values: tuple[str, ...],
    code: int,
) -> None:
    """Also where the node that makes it certain answers last."""
    for server, value in zip(cluster3, values, strict=False):
        server.command("SET", "job", value, "PX", 60_000)
    slow = fault_proxy(cluster3[1])
    slow.delay(0.04)
    nodes = [cluster3[0].url, slow.url, DEAD]
    ended = call(command, "job", "--token", "mine", nodes=nodes)
    assert ended.code == code, ended


#: Each with how many nodes hang, and the exit code.
OF_HOLDERS = [
    (("status", "job"), 2, 69),
    (("status", "job", "a", "b"), 1, 1),
    (("release", "job", "--token", "mine"), 2, 69),
    (("release", "job", "--force", "--yes"), 1, 0),
    (("extend", "job", "--token", "mine"), 2, 69),
    (("extend", "job", "--token", "other"), 1, 3),
    (("verify", "job@7"), 2, 69),
    (("run", "--try", "job", "--", "true"), 2, 69),
]


@pytest.mark.parametrize("words", [words for words, hung, _ in OF_HOLDERS if hung == 2])
def test_nodes_that_are_dead_are_not_waited_for(cluster3: Cluster, words: tuple[str, ...]) -> None:
    nodes = [DEAD, "redis://127.0.0.1:2", cluster3[0].url]
    begun = time.monotonic()
    ended = call("--timeout", "20s", *words, nodes=nodes)
    assert ended.code == 69, ended
    assert time.monotonic() - begun < 10


@pytest.mark.parametrize(("words", "hung", "code"), OF_HOLDERS)
def test_nodes_that_hang_are_waited_for_once(
    cluster3: Cluster, words: tuple[str, ...], hung: int, code: int
) -> None:
    for server in cluster3:
        server.command("SET", "job", "mine", "PX", 60_000)
    for server in cluster3[:hung]:
        server.pause()
    began = time.monotonic()
    ended = call("--timeout", "1s", *words, nodes=cluster3.urls)
    assert ended.code == code, ended
    assert time.monotonic() - began < 1.9


@pytest.mark.parametrize("command", ["doctor", "nodes"])
def test_a_survey_without_a_majority_waits_for_no_decision(cluster3: Cluster, command: str) -> None:
    began = time.monotonic()
    ended = call(command, "--timeout", "1s", nodes=[cluster3[0].url, DEAD, "redis://127.0.0.1:2"])
    assert ended.code == {"doctor": 2, "nodes": 0}[command], ended
    assert time.monotonic() - began < 1


@pytest.mark.parametrize("how", [("--token", "mine"), ("--force", "--yes")])
def test_a_release_beside_a_dead_node(cluster3: Cluster, how: tuple[str, ...]) -> None:
    for server in cluster3:
        server.command("SET", "job", "mine", "PX", 60_000)
    began = time.monotonic()
    ended = call("release", "job", *how, nodes=[*cluster3.urls[:2], DEAD])
    assert (ended.code, ended.err) == (0, "")
    assert time.monotonic() - began < 1
    assert cluster3.values("job")[:2] == [None] * 2


@pytest.mark.parametrize("reached", [1, 2])
def test_what_a_forced_release_has_done(cluster3: Cluster, reached: int) -> None:
    """It deletes the keys that it reaches, and tells on which nodes it has not."""
    for server in cluster3:
        server.command("SET", "job", "mine", "PX", 60_000)
    dead = [DEAD, "redis://127.0.0.1:2"][: 3 - reached]
    done = cluster3.urls[:reached]
    ended = call("release", "job", "--force", "--yes", nodes=[*done, *dead])
    assert cluster3.values("job") == [None] * reached + ["mine"] * (3 - reached)
    if reached == 1:
        assert (ended.code, ended.out) == (69, "")
        told = f"deleted the key of mine on {done[0]}, but too few nodes tell who holds 'job': "
        assert ended.err.startswith(f"quorlock: {told}{', '.join(dead)}: cannot connect: ")
    else:
        assert (ended.code, ended.err) == (0, "")
        told = f"released 'job', which was held by mine, but not on {DEAD}: cannot connect: "
        assert ended.out.startswith(told)


def test_what_a_forced_release_has_done_for_programs(cluster3: Cluster) -> None:
    cluster3[0].command("SET", "job", "mine", "PX", 60_000)
    words = ("--json", "release", "job", "--force", "--yes")
    told = json.loads(call(*words, nodes=[cluster3[0].url, cluster3[1].url, DEAD]).out)
    why = told["failed"].pop(DEAD)
    assert why.startswith("cannot connect: ")
    done = {"holders": ["mine"], "deleted_on": [cluster3[0].url], "failed": {}}
    assert told == {"name": "job", "outcome": "released", **done}


def test_bench_beside_a_dead_node(cluster3: Cluster) -> None:
    ended = call("bench", "--seconds", "0.1", nodes=[*cluster3.urls[:2], DEAD])
    assert (ended.code, ended.out) == (69, "")
    assert ended.err.startswith(f"quorlock: {DEAD}: cannot connect: connection refused")


def test_bench_beside_a_node_that_hangs(cluster3: Cluster) -> None:
    """It measures the answers of all nodes."""
    cluster3[2].pause()
    ended = call("bench", "--seconds", "0.4", "--timeout", "500ms", nodes=cluster3.urls, within=5)
    assert (ended.code, ended.out) == (69, "")
    said = f"not all nodes have answered PING in time: {cluster3[2].url}: cannot connect: no answer"
    assert said in ended.err
