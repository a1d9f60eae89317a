"""Tests what `nodes` and `doctor` find, each on real servers."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.cli.command import ROOT, call
from tests.cli.rewriting import rewriting
from tests.cli.terminal import Terminal
from tests.support.cluster import Cluster, start_servers
from tests.support.link import TO_CLIENT
from tests.support.options import Options
from tests.support.proxy import FaultProxy
from tests.support.servers import Server
from tests.support.tls import Certificates, passing_context
from tests.support.wait import eventually

_PAGE = (ROOT / "docs" / "servers.md").read_text()
_LISTED = re.findall(r"\+\S+", _PAGE.partition("ACL SETUSER app")[2].partition("\n")[0])
_FOR_WAITING = re.findall(r"`(\+\S+)`", _PAGE.partition("For waiting alone")[2].partition(". ")[0])
#: What the documentation gives a user: for locks, and for waiting by push.
RIGHTS = " ".join(rule for rule in _LISTED if rule not in _FOR_WAITING)
PUSH = " ".join(_FOR_WAITING)

Servers = Callable[..., Cluster]


@pytest.fixture(scope="module")
def healthy() -> Iterator[Cluster]:
    """Three servers as the documentation wants them."""
    with start_servers(3, Options(appendonly=True)) as cluster:
        cluster.reset()
        yield cluster


def _doctor(nodes: Sequence[str], *words: str) -> tuple[int, dict[str, Any]]:
    ended = call(*words, "doctor", "--json", nodes=nodes)
    assert ended.err == ""
    return ended.code, json.loads(ended.out)


def _codes(told: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in told["findings"]}


def _finding(told: dict[str, Any], code: str) -> dict[str, Any]:
    (finding,) = (finding for finding in told["findings"] if finding["code"] == code)
    assert finding["remedy"]
    return dict(finding)


def _beside(healthy: Cluster, url: str) -> list[str]:
    """Two servers in order, and the one of the test."""
    return [*healthy.urls[:2], url]


def test_healthy_nodes(healthy: Cluster) -> None:
    code, told = _doctor(healthy.urls)
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
    code, told = _doctor(_beside(healthy, gone.url))
    assert (code, _codes(told)) == (1, {"unreachable"})
    finding = _finding(told, "unreachable")
    assert finding["node"] == gone.url
    assert "connection refused" in finding["problem"]
    assert told["nodes"][2]["reachable"] is False


def test_too_few_nodes_for_a_lock(servers: Servers) -> None:
    cluster = servers(3, appendonly=True)
    for server in cluster[:2]:
        server.kill()
    code, told = _doctor(cluster.urls)
    assert code == 2
    assert _finding(told, "no-quorum")["severity"] == "unfit"
    plain = call("doctor", nodes=cluster.urls)
    assert plain.code == 2
    assert plain.out.splitlines()[-1] == "A lock cannot be had now, or is not safe."


def test_a_hung_node(healthy: Cluster, servers: Servers) -> None:
    hung = servers(1, appendonly=True)[0]
    hung.pause()
    code, told = _doctor(_beside(healthy, hung.url), "--timeout", "500ms")
    assert (code, _codes(told)) == (1, {"hung"})
    assert "it is connected, but no answer within 500 ms" in _finding(told, "hung")["problem"]
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
        code, told = _doctor(_beside(healthy, url), "--timeout", "500ms")
    assert (code, _codes(told)) == (1, {"unreachable"})
    assert "cannot connect: no answer within 500 ms" in _finding(told, "unreachable")["problem"]


def test_hung_nodes_are_waited_for_together(servers: Servers) -> None:
    cluster = servers(3, appendonly=True)
    cluster.reset()
    for server in cluster[:2]:
        server.pause()
    began = time.monotonic()
    code, told = _doctor(cluster.urls, "--timeout", "2s")
    took = time.monotonic() - began
    assert (code, _codes(told)) == (2, {"no-quorum", "hung", "undecided"})
    assert 2 <= took < 3, "the timeout is for all of it"


def test_a_wrong_password(healthy: Cluster, servers: Servers) -> None:
    server = servers(1, password="right", appendonly=True)[0]
    code, told = _doctor(_beside(healthy, server.url_for(password="wrong")))
    assert (code, _codes(told)) == (1, {"wrong-password"})
    assert "does not accept this user name and password" in str(told)
    assert "wrong" not in str(told).replace("wrong-password", "")


def _in_order(servers: Servers, **options: Any) -> Server:
    """A server that clients trust, save for these options."""
    cluster = servers(1, **{"appendonly": True, **options})
    cluster.reset()
    return cluster[0]


def _with_rules(servers: Servers, rules: str) -> str:
    users = {"app": f"on >pw {rules}"}
    return _in_order(servers, users=users).url_for("app", "pw")


@pytest.mark.parametrize("missing", RIGHTS.split())
def test_a_missing_right(healthy: Cluster, servers: Servers, missing: str) -> None:
    rules = " ".join(rule for rule in RIGHTS.split() if rule != missing)
    url = _with_rules(servers, f"~* &* {rules} {PUSH}")
    code, told = _doctor(_beside(healthy, url))
    assert code == 1
    rights = [it["problem"] for it in told["findings"] if it["code"] == "missing-right"]
    assert f"the user's access list lacks {missing}" in rights
    assert told["nodes"][2]["lacking_rights"] == [missing]


def test_keys_that_the_access_list_leaves_out(healthy: Cluster, servers: Servers) -> None:
    url = _with_rules(servers, f"resetchannels ~invoice:* &* {RIGHTS} {PUSH}")
    code, told = _doctor(_beside(healthy, url))
    assert code == 1
    node = told["nodes"][2]
    assert (node["lacking_rights"], node["lacking_rights_for_push"]) == (["~quorlock:*"], [])
    assert node["push"] is False
    assert "no-push" not in _codes(told)


def test_no_push(healthy: Cluster, servers: Servers) -> None:
    url = _with_rules(servers, f"~* resetchannels {RIGHTS} {PUSH} -client|tracking")
    code, told = _doctor(_beside(healthy, url))
    assert (code, _codes(told)) == (1, {"no-push"})
    assert told["nodes"][2]["lacking_rights_for_push"] == ["+client|tracking", "&quorlock:wake:*"]


#: Servers permit HELLO to all.
@pytest.mark.parametrize("missing", sorted({*PUSH.split()} - {"+hello"}))
def test_a_missing_right_for_waiting(healthy: Cluster, servers: Servers, missing: str) -> None:
    rules = " ".join(rule for rule in PUSH.split() if rule != missing)
    url = _with_rules(servers, f"~* &* {RIGHTS} {rules}")
    code, told = _doctor(_beside(healthy, url))
    assert (code, _codes(told)) == (1, {"no-push"})
    assert told["nodes"][2]["lacking_rights_for_push"] == [missing]


def test_the_user_of_the_documentation_lacks_nothing(healthy: Cluster, servers: Servers) -> None:
    documented = "resetchannels ~invoice:* ~quorlock:* &quorlock:wake:*"
    url = _with_rules(servers, f"{documented} {RIGHTS} {PUSH}")
    code, told = _doctor(_beside(healthy, url))
    assert (code, told["nodes"][2]["lacking_rights"]) == (0, [])
    assert [node["lock_keys_permitted"] for node in told["nodes"]] == [True, True, None]
    plain = call("doctor", nodes=_beside(healthy, url))
    assert "keys not known, push" in plain.out
    assert plain.out.splitlines()[-1].startswith("Healthy. Whether the access list covers the keys")


@pytest.mark.parametrize("missing", ["+set", "+pexpire", "+zadd", "+evalsha"])
def test_a_missing_right_on_all_nodes(servers: Servers, missing: str) -> None:
    rules = " ".join(rule for rule in RIGHTS.split() if rule != missing)
    users = {"app": f"on >pw ~* &* {rules} {PUSH}"}
    nodes = [server.url_for("app", "pw") for server in servers(1, appendonly=True, users=users)]
    code, told = _doctor(nodes)
    assert (code, told["usable_nodes"]) == (2, 0)
    assert {"no-quorum", "missing-right"} <= _codes(told)
    assert call("run", "--try", "a", "b", "--", "true", nodes=nodes).code == 69


@pytest.mark.parametrize("missing", ["+script|load", "+del", "+hgetall", "+hset", "+hdel", "+info"])
def test_a_missing_right_without_which_locks_are_had(servers: Servers, missing: str) -> None:
    rules = " ".join(rule for rule in RIGHTS.split() if rule != missing)
    users = {"app": f"on >pw ~* &* {rules} {PUSH}"}
    nodes = [server.url_for("app", "pw") for server in servers(1, appendonly=True, users=users)]
    code, told = _doctor(nodes)
    assert (code, _codes(told) - {"no-persistence"}) == (1, {"missing-right"})
    assert call("run", "--try", "a", "b", "--", "true", nodes=nodes).code == 0


def test_a_prefix_that_the_access_list_leaves_out(servers: Servers) -> None:
    users = {"app": f"on >pw resetchannels ~quorlock:* &quorlock:wake:* {RIGHTS} {PUSH}"}
    nodes = [server.url_for("app", "pw") for server in servers(1, appendonly=True, users=users)]
    code, told = _doctor(nodes, "--user-prefix", "app:")
    assert (code, _codes(told)) == (2, {"no-quorum", "missing-right"})
    assert told["nodes"][0]["lacking_rights"] == ["~app:*"]
    assert call("--user-prefix", "app:", "run", "a", "--", "true", nodes=nodes).code == 69
    code, told = _doctor(nodes)
    assert (code, told["nodes"][0]["lock_keys_permitted"]) == (0, None)


def test_a_password_that_is_not_given(healthy: Cluster, servers: Servers) -> None:
    server = servers(1, password="right", appendonly=True)[0]
    nodes = _beside(healthy, f"redis://{server.host}:{server.port}")
    code, told = _doctor(nodes)
    assert (code, _codes(told)) == (1, {"wrong-password"})
    assert "push" not in told["nodes"][2], "nobody has been asked about rights"


def test_a_replica(healthy: Cluster, servers: Servers) -> None:
    master = servers(1)[0]
    replica = servers(1, replica_of=master, appendonly=True)[0]
    eventually(lambda: "master_link_status:up" in str(replica.command("INFO", "replication")))
    code, told = _doctor(_beside(healthy, replica.url))
    assert (code, _codes(told)) == (1, {"replica"})
    assert "give the address of its master" in _finding(told, "replica")["problem"]
    assert told["nodes"][2]["role"] == "slave"


def test_one_server_under_two_addresses(healthy: Cluster) -> None:
    with FaultProxy(healthy[0]) as proxy:
        code, told = _doctor([*healthy.urls[:2], proxy.url])
    assert (code, _codes(told)) == (2, {"refused-list", "same-server"})
    assert "one and the same server" in _finding(told, "same-server")["problem"]


@pytest.mark.parametrize("other", ["redis://localhost:{port}", "redis://127.0.0.1:{port}/1"])
def test_one_server_in_other_words(healthy: Cluster, other: str) -> None:
    nodes = [*healthy.urls[:2], other.format(port=healthy[0].port)]
    code, told = _doctor(nodes)
    assert (code, _codes(told)) == (2, {"refused-list", "same-server"})
    assert _finding(told, "same-server")["node"] == nodes[2]
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
    code, told = _doctor([healthy.urls[0], one.url, two.url])
    assert code == 2
    assert "same-cluster" in _codes(told)
    assert "belong to one Redis Cluster" in _finding(told, "same-cluster")["problem"]
    assert told["nodes"][1]["in_cluster"] is True


def test_a_server_that_evicts(healthy: Cluster, servers: Servers) -> None:
    flags = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]
    server = _in_order(servers, flags=flags)
    code, told = _doctor(_beside(healthy, server.url))
    assert (code, _codes(told)) == (1, {"evicts"})
    assert "allkeys-lru" in _finding(told, "evicts")["problem"]
    assert told["nodes"][2]["max_memory_bytes"] == 100 * 1024 * 1024


def test_no_persistence(healthy: Cluster, servers: Servers) -> None:
    url = _in_order(servers, appendonly=False).url
    code, told = _doctor(_beside(healthy, url))
    assert (code, _codes(told)) == (1, {"no-persistence"})
    declared, told = _doctor(_beside(healthy, f"{url}?durable=true"))
    assert (declared, _codes(told)) == (0, set())


@pytest.mark.parametrize("ahead", [2.0, -2.0])
def test_a_clock_that_is_off(healthy: Cluster, servers: Servers, ahead: float) -> None:
    server = _in_order(servers, clock=True)
    server.set_clock(ahead)
    code, told = _doctor(_beside(healthy, server.url))
    assert (code, _codes(told)) == (1, {"clock-off"})
    finding = _finding(told, "clock-off")
    assert ("ahead" if ahead > 0 else "behind") in finding["problem"]
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
    told = _doctor(cluster.urls)[1]
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
        code, told = _doctor([node.url for node in nodes], "--timeout", "10s")
    assert (code, _codes(told)) == (2, {"no-quorum", "slow"}), "locks do not wait so long either"


def test_a_node_in_quarantine(servers: Servers) -> None:
    cluster = servers(3, appendonly=True)
    cluster.reset()
    assert call("run", "job", "--", "true", nodes=cluster.urls).code == 0
    cluster[2].flush()
    code, told = _doctor(cluster.urls)
    assert (code, _codes(told)) == (1, {"quarantined"})
    assert "its votes do not count for" in _finding(told, "quarantined")["problem"]
    assert 0 < told["nodes"][2]["quarantine_left_seconds"] <= 11


def test_a_server_that_is_too_old(healthy: Cluster) -> None:
    info = str(healthy[2].command("INFO", "server"))
    version = re.search(r"redis_version:\S+", info)
    assert version
    old = "redis_version:5.0".ljust(len(version[0]), "9")
    with rewriting(healthy[2], {version[0].encode(): old.encode()}) as url:
        code, told = _doctor(_beside(healthy, url))
    assert (code, _codes(told)) == (1, {"too-old"})


def test_a_certificate_that_ends_soon(healthy: Cluster, certs: Certificates) -> None:
    with FaultProxy(healthy[2], tls=certs.server_context()) as proxy:
        code, told = _doctor(_beside(healthy, f"{proxy.url}?ssl_ca_certs={certs.ca}"))
    assert (code, _codes(told)) == (1, {"certificate-ends"})
    assert "ends within 2 days" in _finding(told, "certificate-ends")["problem"]


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        (timedelta(days=9, hours=12), "ends within 10 days"),
        (timedelta(hours=2), "ends within a day"),
        (timedelta(hours=-1), "has expired"),
    ],
)
def test_the_words_for_a_certificate_that_ends(
    healthy: Cluster, ends: timedelta, words: str
) -> None:
    with FaultProxy(healthy[2], tls=passing_context(timedelta(days=-9), ends)) as proxy:
        code, told = _doctor(_beside(healthy, f"{proxy.url}?ssl_cert_reqs=none"))
    assert (code, _codes(told)) == (1, {"certificate-ends"})
    assert _finding(told, "certificate-ends")["problem"] == f"its TLS certificate {words}"


def test_a_certificate_that_is_not_valid_yet(healthy: Cluster) -> None:
    begins, ends = timedelta(days=2), timedelta(days=9)
    with FaultProxy(healthy[2], tls=passing_context(begins, ends)) as proxy:
        code, told = _doctor(_beside(healthy, proxy.url))
    assert (code, _codes(told)) == (1, {"tls"})
    assert _finding(told, "tls")["problem"] == (
        "the node's certificate is not valid yet: is this machine's clock right?"
    )


def test_tls_where_none_is_spoken(healthy: Cluster) -> None:
    nodes = _beside(healthy, healthy[2].url.replace("redis://", "rediss://"))
    code, told = _doctor(nodes, "--timeout", "500ms")
    assert (code, _codes(told)) == (1, {"hung"})
    assert "should begin with redis://" in _finding(told, "hung")["remedy"]


def test_a_database_that_is_not_there(healthy: Cluster) -> None:
    code, told = _doctor(_beside(healthy, f"{healthy[2].url}/99"))
    assert (code, _codes(told)) == (1, {"no-database"})


def test_too_many_clients(healthy: Cluster, servers: Servers) -> None:
    server = _in_order(servers)
    server.command("CONFIG", "SET", "maxclients", "1")
    with socket.create_connection((server.host, server.port)):
        code, told = _doctor(_beside(healthy, server.url))
    assert (code, _codes(told)) == (1, {"busy"})
    assert "maxclients" in _finding(told, "busy")["remedy"]


def test_a_member_of_a_cluster(healthy: Cluster, servers: Servers) -> None:
    server = servers(1, flags=["--cluster-enabled", "yes"], appendonly=True)[0]
    code, told = _doctor(_beside(healthy, server.url))
    assert (code, _codes(told)) == (1, {"cluster-member"})


def test_a_certificate_that_is_not_trusted(healthy: Cluster, certs: Certificates) -> None:
    with FaultProxy(healthy[2], tls=certs.server_context()) as proxy:
        code, told = _doctor(_beside(healthy, f"{proxy.url}?ssl_ca_certs={certs.other_ca}"))
    assert (code, _codes(told)) == (1, {"tls"})


def test_a_slow_round_trip(healthy: Cluster) -> None:
    with FaultProxy(healthy[2]) as proxy:
        proxy.delay(0.04)
        code, told = _doctor(_beside(healthy, proxy.url), "--timeout", "20s")
    assert (code, _codes(told)) == (1, {"slow"})
    assert told["nodes"][2]["round_trip_seconds"] > 0.07


def test_nodes_that_are_far_away(servers: Servers) -> None:
    """All questions are answered within the default timeout."""
    cluster = servers(3, appendonly=True)
    cluster.reset()
    cluster[2].command("CONFIG", "SET", "appendonly", "no")
    with contextlib.ExitStack() as proxies:
        nodes = [proxies.enter_context(FaultProxy(server)) for server in cluster]
        for node in nodes:
            node.delay(0.06)
        code, told = _doctor([node.url for node in nodes])
    assert (code, _codes(told)) == (1, {"slow", "no-persistence"})
    assert all(node["round_trip_seconds"] > 0.1 for node in told["nodes"])


def test_a_node_of_which_nothing_is_learned(healthy: Cluster) -> None:
    """It grants locks, but the questions about it are answered with nonsense."""
    refused = b"-ERR wrong number of arguments for 'hset'"
    with rewriting(healthy[2], {refused: refused.replace(b"-", b"?")}) as url:
        code, told = _doctor(_beside(healthy, url))
    assert (code, _codes(told), told["healthy"]) == (1, {"unknown"}, False)
    assert told["nodes"][2]["state"] == "healthy"
    assert "nothing else is known of it" in _finding(told, "unknown")["problem"]


def test_nodes_has_a_row_for_each(healthy: Cluster, servers: Servers) -> None:
    gone: Server = servers(1)[0]
    gone.kill()
    ended = call("nodes", nodes=_beside(healthy, gone.url))
    assert (ended.code, ended.err) == (0, "")
    rows = ended.out.splitlines()
    assert rows[0].split() == ["node", "state", "server", "data", "times", "rights"]
    assert "master" in rows[1]
    assert "fsync always" in rows[1]
    assert "connection refused" in ended.out
    told = json.loads(call("nodes", "--json", nodes=healthy.urls).out)
    assert [node["state"] for node in told] == ["healthy"] * 3


def test_nodes_is_shown_again_and_again(healthy: Cluster) -> None:
    with Terminal("nodes", "--watch", nodes=healthy.urls, size=(24, 160)) as shown:
        shown.expect(r"(?s)\x1b\[2J.*node.*healthy.*healthy.*healthy.*\n.*\x1b\[2J")
        shown.type("\x03")
        assert shown.end()[0] == -2


@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("is_coloured", [True, False])
@pytest.mark.parametrize("command", ["nodes", "doctor"])
def test_the_tables_fit_the_terminal(
    healthy: Cluster, servers: Servers, command: str, columns: int, *, is_coloured: bool
) -> None:
    gone = servers(1)[0]
    gone.kill()
    words = [command] if is_coloured else [command, "--no-color"]
    nodes = _beside(healthy, gone.url)
    with Terminal(*words, nodes=nodes, size=(24, columns)) as shown:
        _, text = shown.end()
    assert ("\x1b[" in text) == is_coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert max(map(len, plain.splitlines())) <= columns, plain
    # An address stays in one piece, and so does every word.
    assert all(url in plain for url in nodes), plain
    broad = call(command, nodes=nodes, env={"COLUMNS": "1000"})
    assert _words(plain) == _words(broad.out)


@pytest.mark.parametrize("command", ["nodes", "doctor"])
def test_a_long_address_leaves_room_for_the_rest(healthy: Cluster, command: str) -> None:
    """As managed servers have: its row becomes a paragraph."""
    name = "locks.prod-1.abc123.use1.cache.amazonaws.invalid"
    nodes = [*healthy.urls[:2], f"rediss://{name}:6379"]
    with Terminal(command, "--no-color", nodes=nodes, size=(24, 80)) as shown:
        _, text = shown.end()
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80, text
    assert len(lines) < 40, text
    assert all(any(line.strip() == url for line in lines) for url in nodes), text
    broad = call(command, nodes=nodes, env={"COLUMNS": "1000"})
    assert {*_words(broad.out)} - {"about", "node"} <= {*_words(text)}, "save for two headings"


def _words(text: str) -> Counter[str]:
    """How often each word is there; figures are others the next time, and an uptime has more."""
    words = [word for word in text.split() if not re.fullmatch(r"\d+(s|m|h|days?)", word)]
    return Counter(re.sub(r"[\d.+-]*\d[\d.]*", "0", word) for word in words)
