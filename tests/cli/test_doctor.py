"""Tests what `doctor` finds, each on real servers; rights, TLS and tables have their own files."""

from __future__ import annotations

import contextlib
import re
import socket
import time

import pytest

from tests.cli.command import ROOT, call
from tests.cli.doctor import Servers, beside, codes, doctor, finding, in_order
from tests.cli.rewriting import rewriting
from tests.support.cluster import Cluster
from tests.support.link import TO_CLIENT
from tests.support.proxy import FaultProxy
from tests.support.wait import eventually


def test_healthy_nodes(healthy: Cluster) -> None:
    code, told = doctor(healthy.urls)
    assert (code, told["findings"]) == (0, [])
    assert (told["healthy"], told["usable_nodes"], told["quorum"]) == (True, 3, 2)
    first = told["nodes"][0]
    assert (first["state"], first["role"], first["fsync"]) == ("healthy", "master", "always")
    assert first["push"] is True
    assert abs(first["clock_offset_seconds"]) < 0.1
    assert 0 < first["round_trip_seconds"] < 0.5
    assert first["run_id"] in str(healthy[0].command("INFO", "server"))
    plain = call("doctor", nodes=healthy.urls)
    assert (plain.code, plain.out.splitlines()[-1]) == (0, "Healthy.")


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["doctor"], {"quorlock:{node}:canary", "quorlock:{node}:notes"}),
        (["nodes"], {"quorlock:{node}:canary", "quorlock:{node}:notes"}),
        (["status", "job"], set()),
    ],
)
def test_what_is_written_on_the_servers(servers: Servers, words: list[str], keys: set[str]) -> None:
    """The page for people on call says it."""
    cluster = servers(3, appendonly=True)
    assert call(*words, nodes=cluster.urls).code == 0
    for server in cluster:
        assert {*server.command("KEYS", "*")} == keys
    page = (ROOT / "docs" / "on-call.md").read_text().partition("```sh")[0]
    assert all(f"`{key}`" in page for key in keys)


def test_a_node_that_cannot_be_reached(healthy: Cluster, servers: Servers) -> None:
    gone = servers(1)[0]
    gone.kill()
    code, told = doctor(beside(healthy, gone.url))
    assert (code, codes(told)) == (1, {"unreachable"})
    found = finding(told, "unreachable")
    assert found["node"] == gone.url
    assert "connection refused" in found["problem"]
    assert told["nodes"][2]["reachable"] is False
    assert told["nodes"][2].keys() == told["nodes"][0].keys()


def test_a_host_that_has_no_address(healthy: Cluster) -> None:
    code, told = doctor(beside(healthy, "redis://quorlock.invalid:6379"))
    assert (code, codes(told)) == (1, {"unreachable"})
    assert "correct the host in the address" in finding(told, "unreachable")["remedy"]


def test_too_few_nodes_for_a_lock(servers: Servers) -> None:
    cluster = servers(3, appendonly=True)
    for server in cluster[:2]:
        server.kill()
    code, told = doctor(cluster.urls)
    assert code == 2
    assert finding(told, "no-quorum")["severity"] == "unfit"
    remedy = "bring the other nodes back: this is found out once 2 of 3 answer"
    assert finding(told, "undecided")["remedy"] == remedy
    plain = call("doctor", nodes=cluster.urls)
    assert plain.code == 2
    assert plain.out.splitlines()[-1] == "A lock cannot be had now, or is not safe."


def test_a_hung_node(healthy: Cluster, servers: Servers) -> None:
    hung = servers(1, appendonly=True)[0]
    hung.pause()
    code, told = doctor(beside(healthy, hung.url), "--timeout", "500ms")
    assert (code, codes(told)) == (1, {"hung"})
    assert "it is connected, but no answer within 500 ms" in finding(told, "hung")["problem"]
    assert told["nodes"][2]["state"] == "down"


def test_a_node_that_nothing_comes_back_from(healthy: Cluster) -> None:
    """As behind a firewall that drops what it does not let through."""
    with socket.socket() as place, contextlib.ExitStack() as connected:
        place.bind(("127.0.0.1", 0))
        place.listen(0)
        # As many connections as the system keeps for one that accepts none.
        for _ in range(2):
            other = connected.enter_context(socket.socket())
            other.setblocking(False)
            other.connect_ex(place.getsockname())
        url = f"redis://127.0.0.1:{place.getsockname()[1]}"
        code, told = doctor(beside(healthy, url), "--timeout", "500ms")
    assert (code, codes(told)) == (1, {"unreachable"})
    assert "cannot connect: no answer within 500 ms" in finding(told, "unreachable")["problem"]


def test_hung_nodes_are_waited_for_together(servers: Servers) -> None:
    cluster = servers(3, appendonly=True)
    cluster.reset()
    for server in cluster[:2]:
        server.pause()
    began = time.monotonic()
    code, told = doctor(cluster.urls, "--timeout", "2s")
    took = time.monotonic() - began
    assert (code, codes(told)) == (2, {"no-quorum", "hung", "undecided"})
    assert 2 <= took < 3, "the timeout is for all of it"


def test_a_replica(healthy: Cluster, servers: Servers) -> None:
    master = servers(1)[0]
    replica = servers(1, replica_of=master, appendonly=True)[0]
    eventually(lambda: "master_link_status:up" in str(replica.command("INFO", "replication")))
    code, told = doctor(beside(healthy, replica.url))
    assert (code, codes(told)) == (1, {"replica"})
    assert "give the address of its master" in finding(told, "replica")["problem"]
    assert told["nodes"][2]["role"] == "slave"


def test_one_server_under_two_addresses(healthy: Cluster) -> None:
    with FaultProxy(healthy[0]) as proxy:
        code, told = doctor([*healthy.urls[:2], proxy.url])
    assert (code, codes(told)) == (2, {"refused-list", "same-server"})
    assert "one and the same server" in finding(told, "same-server")["problem"]


@pytest.mark.parametrize("other", ["redis://localhost:{port}", "redis://127.0.0.1:{port}/1"])
def test_one_server_in_other_words(healthy: Cluster, other: str) -> None:
    nodes = [*healthy.urls[:2], other.format(port=healthy[0].port)]
    code, told = doctor(nodes)
    assert (code, codes(told)) == (2, {"refused-list", "same-server"})
    assert finding(told, "same-server")["node"] == nodes[2]
    assert [node["state"] for node in told["nodes"]] == ["healthy", "healthy", "refusing"]
    shown = call("nodes", nodes=nodes)
    assert (shown.code, shown.err) == (0, "")
    assert "one and the same server" in " ".join(shown.out.split())
    for word_for_word in (nodes[0], f"{nodes[0]}/0"):
        ended = call("doctor", nodes=[*nodes, word_for_word])
        assert (ended.code, ended.out) == (64, "")


def test_two_members_of_a_cluster(healthy: Cluster, servers: Servers) -> None:
    one, two = (servers(1, flags=["--cluster-enabled", "yes"], appendonly=True)[0] for _ in "ab")
    one.command("CLUSTER", "MEET", two.host, two.port)
    eventually(lambda: str(one.command("CLUSTER", "NODES")).count("master") == 2)
    eventually(lambda: str(two.command("CLUSTER", "NODES")).count("master") == 2)
    code, told = doctor([healthy.urls[0], one.url, two.url])
    assert code == 2
    assert "same-cluster" in codes(told)
    assert "belong to one Redis Cluster" in finding(told, "same-cluster")["problem"]
    assert told["nodes"][1]["in_cluster"] is True


def test_a_server_that_evicts(healthy: Cluster, servers: Servers) -> None:
    flags = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]
    server = in_order(servers, flags=flags)
    code, told = doctor(beside(healthy, server.url))
    assert (code, codes(told)) == (1, {"evicts"})
    assert "allkeys-lru" in finding(told, "evicts")["problem"]
    assert told["nodes"][2]["max_memory_bytes"] == 100 * 1024 * 1024
    server.command("CONFIG", "SET", "maxmemory", "0")
    code, told = doctor(beside(healthy, server.url))
    assert (code, codes(told)) == (1, {"evicts"})
    assert "if maxmemory were set" in finding(told, "evicts")["problem"]


def test_no_persistence(healthy: Cluster, servers: Servers) -> None:
    url = in_order(servers, appendonly=False).url
    code, told = doctor(beside(healthy, url))
    assert (code, codes(told)) == (1, {"no-persistence"})
    declared, told = doctor(beside(healthy, f"{url}?durable=true"))
    assert (declared, codes(told)) == (0, set())


@pytest.mark.parametrize("ahead", [2.0, -2.0])
def test_a_clock_that_is_off(healthy: Cluster, servers: Servers, ahead: float) -> None:
    server = in_order(servers, clock=True)
    server.set_clock(ahead)
    code, told = doctor(beside(healthy, server.url))
    assert (code, codes(told)) == (1, {"clock-off"})
    found = finding(told, "clock-off")
    assert ("ahead" if ahead > 0 else "behind") in found["problem"]
    assert abs(told["nodes"][2]["clock_offset_seconds"] - ahead) < 1


@pytest.mark.parametrize(
    ("clocks", "off"),
    [((0, 5, 5), [1, 2]), ((0, -5, -5), [1, 2]), ((-5, -5, -5), [None]), ((0, 0, -5), [2])],
)
def test_whose_clock_is_off(
    servers: Servers, clocks: tuple[float, ...], off: list[int | None]
) -> None:
    """Most clocks decide, and this machine's where they are divided."""
    cluster = servers(3, appendonly=True, clock=True)
    cluster.reset()
    for server, ahead in zip(cluster, clocks, strict=True):
        server.set_clock(ahead)
    told = doctor(cluster.urls)[1]
    findings = [it for it in told["findings"] if it["code"] in {"clock-off", "own-clock-off"}]
    named = [None if it["node"] is None else cluster.urls.index(it["node"]) for it in findings]
    assert named == off
    if off == [None]:
        assert "ahead of the nodes'" in findings[0]["problem"]


def test_a_long_way_is_not_taken_for_a_clock_that_is_off(servers: Servers) -> None:
    """The answers of all nodes arrive late, and their clocks seem to be behind."""
    cluster = servers(3, appendonly=True)
    cluster.reset()
    with contextlib.ExitStack() as proxies:
        nodes = [proxies.enter_context(FaultProxy(server)) for server in cluster]
        for node in nodes:
            node.delay(0.3, TO_CLIENT)
        code, told = doctor([node.url for node in nodes], "--timeout", "10s")
    assert (code, codes(told)) == (2, {"no-quorum", "slow"}), "locks do not wait so long either"


def test_a_node_in_quarantine(servers: Servers) -> None:
    cluster = servers(3, appendonly=True)
    cluster.reset()
    assert call("run", "job", "--", "true", nodes=cluster.urls).code == 0
    cluster[2].flush()
    code, told = doctor(cluster.urls)
    assert (code, codes(told)) == (1, {"quarantined"})
    assert "its votes do not count for" in finding(told, "quarantined")["problem"]
    assert 0 < told["nodes"][2]["quarantine_left_seconds"] <= 11


def test_a_server_that_is_too_old(healthy: Cluster) -> None:
    info = str(healthy[2].command("INFO", "server"))
    version = re.search(r"redis_version:\S+", info)
    assert version
    old = "redis_version:5.0".ljust(len(version[0]), "9")
    with rewriting(healthy[2], {version[0].encode(): old.encode()}) as url:
        code, told = doctor(beside(healthy, url))
    assert (code, codes(told)) == (1, {"too-old"})
    assert finding(told, "too-old")["problem"].startswith("its version 5.0")


def test_a_database_that_is_not_there(healthy: Cluster) -> None:
    code, told = doctor(beside(healthy, f"{healthy[2].url}/99"))
    assert (code, codes(told)) == (1, {"no-database"})


def test_too_many_clients(healthy: Cluster, servers: Servers) -> None:
    server = in_order(servers)
    server.command("CONFIG", "SET", "maxclients", "1")
    with socket.create_connection((server.host, server.port)):
        code, told = doctor(beside(healthy, server.url))
    assert (code, codes(told)) == (1, {"too-many-clients"})
    assert "maxclients" in finding(told, "too-many-clients")["remedy"]


def test_a_cluster_that_takes_the_keys_of_the_guards(healthy: Cluster, servers: Servers) -> None:
    """Its votes count for the locks whose keys it keeps, so a client finds nothing wrong."""
    cluster = servers(1, flags=["--cluster-enabled", "yes"], appendonly=True)
    server = cluster[0]
    server.command("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
    eventually(lambda: "cluster_state:ok" in str(server.command("CLUSTER", "INFO")))
    cluster.reset()
    code, told = doctor(beside(healthy, server.url))
    assert (code, codes(told)) == (1, {"cluster-member"})


def test_a_member_of_a_cluster(healthy: Cluster, servers: Servers) -> None:
    server = servers(1, flags=["--cluster-enabled", "yes"], appendonly=True)[0]
    code, told = doctor(beside(healthy, server.url))
    assert (code, codes(told)) == (1, {"cluster-member"})


def test_a_slow_round_trip(healthy: Cluster) -> None:
    with FaultProxy(healthy[2]) as proxy:
        proxy.delay(0.04)
        code, told = doctor(beside(healthy, proxy.url), "--timeout", "20s")
    assert (code, codes(told)) == (1, {"slow"})
    assert told["nodes"][2]["round_trip_seconds"] > 0.07


def test_a_node_that_cannot_be_connected_to_in_time(healthy: Cluster) -> None:
    """It answers, so nobody is told to start it."""
    with FaultProxy(healthy[2]) as proxy:
        proxy.delay(0.9)
        code, told = doctor(beside(healthy, proxy.url), "--timeout", "4s")
    assert (code, codes(told)) == (1, {"slow"})
    assert "but locks wait for an answer for 200 ms" in finding(told, "slow")["problem"]


def test_nodes_that_are_far_away(servers: Servers) -> None:
    """All questions are answered within the default timeout."""
    cluster = servers(3, appendonly=True)
    cluster.reset()
    cluster[2].command("CONFIG", "SET", "appendonly", "no")
    with contextlib.ExitStack() as proxies:
        nodes = [proxies.enter_context(FaultProxy(server)) for server in cluster]
        for node in nodes:
            node.delay(0.06)
        code, told = doctor([node.url for node in nodes])
    assert (code, codes(told)) == (1, {"slow", "no-persistence"})
    assert all(node["round_trip_seconds"] > 0.1 for node in told["nodes"])


def test_a_node_of_which_nothing_is_learned(healthy: Cluster) -> None:
    """It grants locks, but the questions about it are answered with nonsense."""
    refused = b"-ERR wrong number of arguments for 'hset'"
    with rewriting(healthy[2], {refused: refused.replace(b"-", b"?")}) as url:
        code, told = doctor(beside(healthy, url))
    assert (code, codes(told), told["healthy"]) == (1, {"unknown"}, False)
    assert told["nodes"][2]["state"] == "healthy"
    assert "nothing else is known of it" in finding(told, "unknown")["problem"]
