"""Tests what the command names as the cause where nodes do not do their part, on real servers."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from tests.cli.command import call
from tests.cli.doctor import Servers
from tests.support.cluster import Cluster


def _without(servers: Servers, rules: str) -> tuple[Cluster, list[str]]:
    """Three servers, and their addresses for a user to whom these rules apply as well."""
    cluster = servers(3, users={"app": f"on >pw ~* &* +@all {rules}"})
    return cluster, [server.url_for("app", "pw") for server in cluster]


def _hold(cluster: Cluster, token: str = "holder") -> None:
    for server in cluster:
        server.command("SET", "job", token, "PX", 60_000)


@contextlib.contextmanager
def _full(cluster: Cluster) -> Iterator[None]:
    """Two of the servers take no more connections."""
    with contextlib.ExitStack() as connected:
        for server in cluster[:2]:
            server.command("CONFIG", "SET", "maxclients", "1")
            connected.enter_context(socket.create_connection((server.host, server.port)))
        yield


#: Without it, nothing is found out of what a node may have forgotten. The first is missed before
#: that, when the nodes are asked who holds the lock.
FOR_THE_GUARDS = {
    "-time": "does not permit the command TIME: add ",
    "-hgetall": "does not permit the command HGETALL on the guards' keys",
    "resetkeys ~job": "does not cover the guards' keys",
}
#: Those that every check-up of a node takes.
GUARDS_RIGHTS = ("+eval", "+get", "+set", "+pexpire", "+pttl", "+time", "+hgetall", "+hset")


@pytest.mark.parametrize(("rules", "told"), FOR_THE_GUARDS.items(), ids=FOR_THE_GUARDS.keys())
def test_extend_without_a_right_of_the_guards(servers: Servers, rules: str, told: str) -> None:
    cluster, nodes = _without(servers, rules)
    _hold(cluster)
    ended = call("extend", "job", "--token", "holder", "--ttl", "2m", nodes=nodes)
    assert (ended.code, ended.out) == (69, "")
    assert told in ended.err
    assert "quarantine" not in ended.err


@pytest.mark.parametrize("right", GUARDS_RIGHTS)
def test_the_remedy_names_every_right_of_the_guards(servers: Servers, right: str) -> None:
    _, nodes = _without(servers, right.replace("+", "-"))
    ended = call("run", "--try", "job", "--", "true", nodes=nodes)
    assert ended.code == 69
    assert f" {right} " in ended.err.partition("on the guards' keys: add ")[2]


def test_a_release_that_nodes_refuse(servers: Servers) -> None:
    """They have answered, and said why."""
    _, nodes = _without(servers, "-del")
    ended = call("run", "--try", "--ttl", "2s", "a", "b", "--", "true", nodes=nodes)
    assert ended.code == 0
    told = "quorlock: too few nodes have confirmed the release of 'a', 'b': "
    assert ended.err.startswith(told)
    assert "the user's access list does not permit the command DEL: " in ended.err
    assert ended.err.endswith("; it will be free in 2.00 s at the most\n")


def test_verify_without_the_right_to_the_records(servers: Servers) -> None:
    cluster, nodes = _without(servers, "resetkeys ~job")
    ended = call("verify", "job@7", nodes=nodes)
    assert (ended.code, ended.out) == (69, "")
    told = (
        "the user's access list does not cover the records of sequencers: add ~quorlock:* and +get"
    )
    assert f"0 granted, 3 failed ({', '.join(cluster.urls)}: {told}" in ended.err


def test_verify_of_a_record_that_is_too_large(cluster3: Cluster) -> None:
    for server in cluster3:
        server.command("SET", "quorlock:sequencer:{job}", 100_000 * "x")
    ended = call("verify", "job@7", nodes=cluster3.urls)
    assert (ended.code, ended.out) == (69, "")
    assert "it told its record of the sequencer, as it is by one above 64 KiB: look at" in ended.err
    assert "in time" not in ended.err


@pytest.mark.parametrize("words", [("status", "job"), ("release", "job", "--force", "--yes")])
def test_servers_with_too_many_clients(servers: Servers, words: tuple[str, ...]) -> None:
    cluster = servers(3)
    with _full(cluster):
        ended = call(*words, nodes=cluster.urls)
    assert ended.code == 69
    told = " ".join((ended.out + ended.err).split())
    assert "max number of clients reached" in told
    assert "connection was lost" not in told
