"""Tests the commands about holders where some nodes are far away, and others fast."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from tests.cli.command import call
from tests.support.cluster import Cluster
from tests.support.proxy import FaultProxy

Proxies = Callable[..., FaultProxy]
BY_FORCE = ("release", "job", "--force", "--yes")
BY_TOKEN = ("release", "job", "--token", "mine")
EXTEND = ("extend", "job", "--token", "mine", "--ttl", "10m")
VERIFY = ("verify", "job@7")


def _far(cluster: Cluster, proxies: Proxies, count: int, round_trip: float) -> list[str]:
    """The addresses, of which the first lead to servers that far away."""
    far = [proxies(server) for server in cluster[:count]]
    for proxy in far:
        proxy.delay(round_trip / 2)
    return [*(proxy.url for proxy in far), *cluster.urls[count:]]


def _write(cluster: Cluster, values: Sequence[str | None]) -> None:
    for server, value in zip(cluster, values, strict=True):
        if value is not None:
            server.command("SET", "job", value, "PX", 60_000)
            server.command("SET", "quorlock:sequencer:{job}", f"7/0/{value}", "PX", 60_000)


@pytest.mark.parametrize(("far", "round_trip"), [(2, 0.1), (3, 0.15), (2, 0.25)])
@pytest.mark.parametrize("words", [BY_FORCE, BY_TOKEN, EXTEND, VERIFY])
def test_a_majority_that_is_far_away(
    cluster3: Cluster, fault_proxy: Proxies, words: Sequence[str], far: int, round_trip: float
) -> None:
    """What was done is told as done."""
    nodes = _far(cluster3, fault_proxy, far, round_trip)
    _write(cluster3, ["mine"] * 3)
    ended = call(*words, nodes=nodes)
    assert (ended.code, ended.err) == (0, "")
    if words[0] == "release":
        assert cluster3.values("job").count(None) >= 2
    if words[0] == "extend":
        assert sum(server.command("PTTL", "job") > 500_000 for server in cluster3) >= 2


@pytest.mark.parametrize("words", [BY_TOKEN, EXTEND, VERIFY])
def test_a_quorum_of_one_fast_and_one_far_node(
    cluster3: Cluster, fault_proxy: Proxies, words: Sequence[str]
) -> None:
    """The fast nodes alone do not tell: the far one is waited for while it connects."""
    nodes = _far(cluster3, fault_proxy, 1, 0.2)
    _write(cluster3, ["mine", "mine", None])
    ended = call(*words, nodes=nodes)
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize("words", [BY_TOKEN, EXTEND])
@pytest.mark.parametrize(
    ("values", "code"), [(["other"] * 3, 3), ([None] * 3, 1), (["other", None, "other"], 3)]
)
def test_who_has_a_lock_on_far_nodes(
    cluster3: Cluster,
    fault_proxy: Proxies,
    words: Sequence[str],
    values: Sequence[str | None],
    code: int,
) -> None:
    """One answer of each node decides."""
    nodes = _far(cluster3, fault_proxy, 3, 0.15)
    _write(cluster3, values)
    began = time.monotonic()
    ended = call("--timeout", "1s", *words, nodes=nodes)
    assert ended.code == code, ended
    assert time.monotonic() - began < 1.3


@pytest.mark.parametrize("words", [BY_TOKEN, EXTEND, VERIFY])
def test_a_node_that_hangs_is_not_waited_for_where_the_others_decide(
    cluster3: Cluster, words: Sequence[str]
) -> None:
    _write(cluster3, ["mine"] * 3)
    cluster3[2].pause()
    began = time.monotonic()
    ended = call("--timeout", "5s", *words, nodes=cluster3.urls)
    assert (ended.code, ended.err) == (0, "")
    assert time.monotonic() - began < 1.5


@pytest.mark.parametrize("round_trip", [0.2, 0.4])
def test_a_record_that_only_a_far_node_has(
    cluster3: Cluster, fault_proxy: Proxies, round_trip: float
) -> None:
    """A near node has the holder's key, but has lost its record: it proves nothing."""
    nodes = _far(cluster3, fault_proxy, 1, round_trip)
    _write(cluster3, ["mine", "mine", None])
    cluster3[1].command("DEL", "quorlock:sequencer:{job}")
    ended = call(*VERIFY, nodes=nodes)
    assert (ended.code, ended.err) == (0, ""), ended


def test_a_record_of_several_locks_that_only_a_far_node_has(
    cluster3: Cluster, fault_proxy: Proxies
) -> None:
    """One near node has lost a lock as well, so that it holds none for the lease."""
    nodes = _far(cluster3, fault_proxy, 1, 0.4)
    for number, server in enumerate(cluster3):
        for name in ("job", "other"):
            server.command("SET", name, "mine", "PX", 60_000)
            if number == 0:
                server.command("SET", f"quorlock:sequencer:{{{name}}}", "7/0/mine", "PX", 60_000)
    cluster3[2].command("DEL", "other")
    ended = call("verify", "job,other@7", nodes=nodes)
    assert (ended.code, ended.err) == (0, ""), ended


def test_a_record_that_only_a_hung_node_may_have(cluster3: Cluster) -> None:
    nodes = cluster3.urls
    _write(cluster3, ["mine", "mine", None])
    cluster3[1].command("DEL", "quorlock:sequencer:{job}")
    cluster3[0].pause()
    ended = call("--timeout", "1s", *VERIFY, nodes=nodes)
    assert ended.code == 69, ended
    assert f"1 failed ({nodes[0]}: cannot connect: no answer within 800 ms)" in ended.err


@pytest.mark.parametrize("values", [[None] * 3, ["other"] * 3])
def test_a_hung_node_is_not_waited_for_where_no_record_can_matter(
    cluster3: Cluster, values: Sequence[str | None]
) -> None:
    """Nobody has the lock, or a quorum tells of a holder that has recorded nothing."""
    _write(cluster3, values)
    for server in cluster3:
        server.command("DEL", "quorlock:sequencer:{job}")
    cluster3[2].pause()
    began = time.monotonic()
    ended = call("--timeout", "5s", *VERIFY, nodes=cluster3.urls)
    assert ended.code == 1, ended
    assert time.monotonic() - began < 1.5


def test_the_answer_of_one_of_two_nodes_decides(cluster3: Cluster) -> None:
    """Where it has no key, nobody has a quorum of two."""
    cluster3[1].pause()
    ended = call("--timeout", "1s", *VERIFY, nodes=cluster3.urls[:2])
    assert ended.code == 1, ended


def test_several_names_are_asked_for_together(cluster3: Cluster, fault_proxy: Proxies) -> None:
    nodes = _far(cluster3, fault_proxy, 3, 0.2)
    _write(cluster3, ["mine"] * 3)
    began = time.monotonic()
    ended = call("status", "job", "a", "b", "c", "d", nodes=nodes)
    assert ended.code == 1, ended
    assert time.monotonic() - began < 1.2
