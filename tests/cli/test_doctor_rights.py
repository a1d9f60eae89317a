"""Tests what `doctor` says of passwords and access lists, on real servers."""

from __future__ import annotations

import re
import socket

import pytest

from tests.cli.command import ROOT, call
from tests.cli.doctor import Servers, beside, codes, doctor, finding, in_order
from tests.support.cluster import Cluster
from tests.support.hostile_server import HostileServer

_PAGE = (ROOT / "docs" / "servers.md").read_text()
_LISTED = re.findall(r"\+\S+", _PAGE.partition("ACL SETUSER app")[2].partition("\n")[0])
_FOR_WAITING = re.findall(r"`(\+\S+)`", _PAGE.partition("For waiting alone")[2].partition(". ")[0])
#: What the documentation gives a user: for locks, and for waiting by push.
RIGHTS = " ".join(rule for rule in _LISTED if rule not in _FOR_WAITING)
PUSH = " ".join(_FOR_WAITING)


def _with_rules(servers: Servers, rules: str) -> str:
    users = {"app": f"on >pw {rules}"}
    return in_order(servers, users=users).url_for("app", "pw")


@pytest.mark.parametrize("missing", RIGHTS.split())
def test_a_missing_right(healthy: Cluster, servers: Servers, missing: str) -> None:
    rules = " ".join(rule for rule in RIGHTS.split() if rule != missing)
    url = _with_rules(servers, f"~* &* {rules} {PUSH}")
    code, told = doctor(beside(healthy, url))
    assert code == 1
    rights = [it["problem"] for it in told["findings"] if it["code"] == "missing-right"]
    assert f"the user's access list lacks {missing}" in rights
    assert told["nodes"][2]["lacking_rights"] == [missing]


def test_keys_that_the_access_list_leaves_out(healthy: Cluster, servers: Servers) -> None:
    url = _with_rules(servers, f"resetchannels ~invoice:* &* {RIGHTS} {PUSH}")
    code, told = doctor(beside(healthy, url))
    assert code == 1
    node = told["nodes"][2]
    assert (node["lacking_rights"], node["lacking_rights_for_push"]) == (["~quorlock:*"], [])
    assert node["push"] is False
    assert "no-push" not in codes(told)


def test_no_push(healthy: Cluster, servers: Servers) -> None:
    url = _with_rules(servers, f"~* resetchannels {RIGHTS} {PUSH} -client|tracking")
    code, told = doctor(beside(healthy, url))
    assert (code, codes(told)) == (1, {"no-push"})
    assert told["nodes"][2]["lacking_rights_for_push"] == ["+client|tracking", "&quorlock:wake:*"]


#: Servers permit HELLO to all.
@pytest.mark.parametrize("missing", sorted({*PUSH.split()} - {"+hello"}))
def test_a_missing_right_for_waiting(healthy: Cluster, servers: Servers, missing: str) -> None:
    rules = " ".join(rule for rule in PUSH.split() if rule != missing)
    url = _with_rules(servers, f"~* &* {RIGHTS} {rules}")
    code, told = doctor(beside(healthy, url))
    assert (code, codes(told)) == (1, {"no-push"})
    assert told["nodes"][2]["lacking_rights_for_push"] == [missing]


def test_the_user_of_the_documentation_lacks_nothing(healthy: Cluster, servers: Servers) -> None:
    documented = "resetchannels ~invoice:* ~quorlock:* &quorlock:wake:*"
    url = _with_rules(servers, f"{documented} {RIGHTS} {PUSH}")
    code, told = doctor(beside(healthy, url))
    assert (code, told["nodes"][2]["lacking_rights"]) == (0, [])
    assert [node["lock_keys_permitted"] for node in told["nodes"]] == [True, True, None]
    plain = call("doctor", nodes=beside(healthy, url))
    assert "keys not known, push" in plain.out
    assert plain.out.splitlines()[-1].startswith("Healthy. Whether the access list covers the keys")


@pytest.mark.parametrize("missing", ["+set", "+pexpire", "+zadd", "+evalsha"])
def test_a_missing_right_on_all_nodes(servers: Servers, missing: str) -> None:
    rules = " ".join(rule for rule in RIGHTS.split() if rule != missing)
    users = {"app": f"on >pw ~* &* {rules} {PUSH}"}
    nodes = [server.url_for("app", "pw") for server in servers(1, appendonly=True, users=users)]
    code, told = doctor(nodes)
    assert (code, told["usable_nodes"]) == (2, 0)
    assert {"no-quorum", "missing-right"} <= codes(told)
    told_once = [it["node"] for it in told["findings"] if it["code"] == "missing-right"]
    assert sorted(told_once) == sorted(node["node"] for node in told["nodes"])
    assert call("run", "--try", "a", "b", "--", "true", nodes=nodes).code == 69


@pytest.mark.parametrize("missing", ["+script|load", "+del", "+hgetall", "+hset", "+hdel", "+info"])
def test_a_missing_right_without_which_locks_are_had(servers: Servers, missing: str) -> None:
    rules = " ".join(rule for rule in RIGHTS.split() if rule != missing)
    users = {"app": f"on >pw ~* &* {rules} {PUSH}"}
    nodes = [server.url_for("app", "pw") for server in servers(1, appendonly=True, users=users)]
    code, told = doctor(nodes)
    assert (code, codes(told) - {"no-persistence"}) == (1, {"missing-right"})
    assert call("run", "--try", "a", "b", "--", "true", nodes=nodes).code == 0


def test_a_prefix_that_the_access_list_leaves_out(servers: Servers) -> None:
    users = {"app": f"on >pw resetchannels ~quorlock:* &quorlock:wake:* {RIGHTS} {PUSH}"}
    nodes = [server.url_for("app", "pw") for server in servers(1, appendonly=True, users=users)]
    code, told = doctor(nodes, "--user-prefix", "app:")
    assert (code, codes(told)) == (2, {"no-quorum", "missing-right"})
    assert told["nodes"][0]["lacking_rights"] == ["~app:*"]
    assert call("--user-prefix", "app:", "run", "a", "--", "true", nodes=nodes).code == 69
    code, told = doctor(nodes)
    assert (code, told["nodes"][0]["lock_keys_permitted"]) == (0, None)


def test_a_wrong_password(healthy: Cluster, servers: Servers) -> None:
    server = servers(1, password="right", appendonly=True)[0]
    code, told = doctor(beside(healthy, server.url_for(password="wrong")))
    assert (code, codes(told)) == (1, {"wrong-password"})
    assert "does not accept this user name and password" in str(told)
    assert "wrong" not in str(told).replace("wrong-password", "")


def test_a_password_that_is_not_given(healthy: Cluster, servers: Servers) -> None:
    server = servers(1, password="right", appendonly=True)[0]
    nodes = beside(healthy, f"redis://{server.host}:{server.port}")
    code, told = doctor(nodes)
    assert (code, codes(told)) == (1, {"wrong-password"})
    assert told["nodes"][2]["push"] is None, "nobody has been asked about rights"


def test_a_server_in_protected_mode(healthy: Cluster) -> None:
    """Real ones let their own machine in."""

    def refuse(connection: socket.socket) -> None:
        connection.sendall(b"-DENIED Redis is running in protected mode because ...\r\n")
        connection.close()

    with HostileServer(refuse) as server:
        code, told = doctor(beside(healthy, server.url))
    assert (code, codes(told)) == (1, {"unreachable"})
    assert "in protected mode" in finding(told, "unreachable")["problem"]
    remedy = finding(told, "unreachable")["remedy"]
    assert remedy.startswith("set a password and put it into the address, set bind, or turn ")
