"""Tests the commands on servers that answer, but take no writes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import call
from tests.cli.doctor import Servers, codes, doctor
from tests.support.cluster import Cluster
from tests.support.servers import Server
from tests.support.wait import eventually

Break = Callable[[Server], None]
BY_TOKEN = ("release", "job", "--token", "mine")
BY_FORCE = ("release", "job", "--force", "--yes")


def _fill(server: Server) -> None:
    server.command("SET", "other", "x" * 1000)
    server.command("CONFIG", "SET", "maxmemory", "1kb")


def _want_replicas(server: Server) -> None:
    server.command("CONFIG", "SET", "min-replicas-to-write", "3")


def _fail_to_save(server: Server) -> None:
    """It cannot replace its file: a folder has the name."""
    (_, folder), (_, name) = (server.command("CONFIG", "GET", key) for key in ("dir", "dbfilename"))
    path = Path(folder, name)
    path.unlink(missing_ok=True)
    path.mkdir()
    server.command("CONFIG", "SET", "save", "3600 1000000")
    server.command("BGSAVE")
    eventually(lambda: "rdb_last_bgsave_status:err" in str(server.command("INFO", "persistence")))


@pytest.fixture
def cluster(servers: Servers) -> Cluster:
    """Three servers as the documentation wants them, for one test."""
    cluster = servers(3, appendonly=True)
    cluster.reset()
    return cluster


def _states(told: dict[str, Any], cluster: Cluster) -> list[str]:
    """The states of the nodes, those in order first."""
    states = {node["node"]: node["state"] for node in told["nodes"]}
    return [states[url] for url in (cluster.urls[0], cluster.urls[2], cluster.urls[1])]


each_way = pytest.mark.parametrize(
    ("break_it", "words"),
    [
        (_fill, "raise its memory limit (maxmemory)"),
        (_want_replicas, "lower its min-replicas-to-write"),
        (_fail_to_save, "see its disk and log"),
    ],
    ids=["full", "no-replicas", "no-disk"],
)


@each_way
def test_doctor_tells_of_servers_that_take_no_writes(
    cluster: Cluster, break_it: Break, words: str
) -> None:
    """Also where the guards, which write seldom, have not seen it."""
    assert call("run", "job", "--", "true", nodes=cluster.urls).code == 0
    assert doctor(cluster.urls)[0] == 0
    for broken, status in ((1, 1), (2, 2)):
        break_it(cluster[broken])
        code, told = doctor(cluster.urls)
        assert (code, told["usable_nodes"]) == (status, 3 - broken)
        found = [it for it in told["findings"] if it["code"] == "unwritable"]
        assert [it["node"] for it in found] == cluster.urls[1 : broken + 1]
        assert all(words in it["remedy"] for it in found)
        assert {it["remedy"] for it in found} == {found[0]["remedy"]}
        assert all(re.search(r"\w\.\.\.$|\.$", it["problem"]) for it in found)
        assert _states(told, cluster) == ["healthy"] * (3 - broken) + ["refusing"] * broken
        shown = json.loads(call("nodes", "--json", nodes=cluster.urls).out)
        assert _states({"nodes": shown}, cluster) == _states(told, cluster)
    assert codes(told) <= {"no-quorum", "unwritable", "undecided"}
    assert call("run", "--try", "job", "--", "true", nodes=cluster.urls).code == 69


@each_way
def test_doctor_tells_the_same_of_them_where_the_guards_have_seen_it(
    servers: Servers, break_it: Break, words: str
) -> None:
    """They write to a server that is new to them."""
    cluster = servers(3, appendonly=True)
    for server in cluster:
        break_it(server)
    code, told = doctor(cluster.urls)
    assert (code, told["usable_nodes"]) == (2, 0)
    found = [it for it in told["findings"] if it["code"] != "no-quorum"]
    assert [it["code"] for it in found] == ["unwritable"] * 3
    assert all(words in it["remedy"] for it in found)
    assert {node["state"] for node in told["nodes"]} == {"refusing"}


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


def test_a_forced_release_that_deletes_nothing(cluster: Cluster) -> None:
    cluster[0].command("SET", "job", "mine", "PX", 60_000)
    _want_replicas(cluster[0])
    ended = call(*BY_FORCE, nodes=cluster.urls)
    assert (ended.code, ended.out) == (3, "")
    said = f"'job' was not released: no key of mine was deleted: {cluster.urls[0]}: "
    # Redis 6.2 puts the place in the script before its reason.
    assert said in ended.err
    assert "NOREPLICAS " in ended.err
    told = json.loads(call("--json", *BY_FORCE, nodes=cluster.urls).out)
    assert (told["outcome"], told["deleted_on"]) == ("held-by-another", [])
    assert list(told["failed"]) == [cluster.urls[0]]


def test_a_forced_release_that_deletes_a_part(cluster: Cluster) -> None:
    for server in cluster:
        server.command("SET", "job", "mine", "PX", 60_000)
    _want_replicas(cluster[0])
    ended = call(*BY_FORCE, nodes=cluster.urls)
    assert (ended.code, ended.err) == (0, "")
    assert f"released 'job', which was held by mine, but not on {cluster.urls[0]}" in ended.out
