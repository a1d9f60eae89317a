"""Tests what `doctor` says of servers that do not have a command, as after `rename-command`."""

from __future__ import annotations

import pytest

from tests.cli.command import call
from tests.cli.doctor import Servers, beside, codes, doctor, finding, in_order
from tests.support.cluster import Cluster


def _without(servers: Servers, count: int, command: str) -> Cluster:
    return servers(count, appendonly=True, flags=["--rename-command", command, ""])


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("HELLO", ["HELLO"]),
        ("SUBSCRIBE", ["SUBSCRIBE"]),
        ("PUBLISH", ["PUBLISH"]),
        ("CLIENT", ["CLIENT TRACKING", "CLIENT CACHING"]),
        ("EXISTS", ["EXISTS"]),
        ("ZRANGEBYSCORE", ["ZRANGEBYSCORE"]),
    ],
)
def test_a_missing_command_of_waiting(servers: Servers, command: str, named: list[str]) -> None:
    nodes = _without(servers, 3, command).urls
    code, told = doctor(nodes)
    assert (code, codes(told), told["usable_nodes"]) == (1, {"no-push"}, 3)
    for node in told["nodes"]:
        assert (node["push"], node["missing_commands"]) == (False, [])
        assert node["missing_commands_for_push"] == named
    words = f"the server does not have {', '.join(named)}"
    assert all(it["problem"].endswith(words) for it in told["findings"])
    plain = call("doctor", nodes=nodes)
    assert "no push" in plain.out
    assert call("run", "--try", "a", "b", "--", "true", nodes=nodes).code == 0


@pytest.mark.parametrize(
    "command",
    [
        "EVAL",
        "EVALSHA",
        "GET",
        "HGETALL",
        "HSET",
        "PEXPIRE",
        "PTTL",
        "SET",
        "TIME",
        "ZADD",
        "ZSCORE",
    ],
)
def test_a_missing_command_of_locks(servers: Servers, command: str) -> None:
    nodes = _without(servers, 3, command).urls
    code, told = doctor(nodes)
    assert (code, codes(told), told["usable_nodes"]) == (2, {"no-quorum", "missing-command"}, 0)
    assert [node["missing_commands"] for node in told["nodes"]] == [[command]] * 3
    assert f"lacks {command}, " in " ".join(call("doctor", nodes=nodes).out.split())
    assert call("run", "--try", "a", "b", "--", "true", nodes=nodes).code == 69


def test_one_node_without_a_command(healthy: Cluster, servers: Servers) -> None:
    server = in_order(servers, flags=["--rename-command", "EVALSHA", ""])
    code, told = doctor(beside(healthy, server.url))
    assert (code, codes(told), told["usable_nodes"]) == (1, {"missing-command"}, 2)
    found = finding(told, "missing-command")
    assert found["node"] == server.url
    assert found["problem"] == "the server does not have EVALSHA"
    assert "rename-command" in found["remedy"]
    ended = call("nodes", nodes=beside(healthy, server.url))
    assert "lacks EVALSHA" in " ".join(ended.out.split())


@pytest.mark.parametrize(
    ("command", "named"), [("SCRIPT", "SCRIPT LOAD"), ("DEL", "DEL"), ("HDEL", "HDEL")]
)
def test_a_missing_command_without_which_locks_are_had(
    servers: Servers, command: str, named: str
) -> None:
    nodes = _without(servers, 3, command).urls
    code, told = doctor(nodes)
    assert (code, codes(told), told["usable_nodes"]) == (1, {"missing-command"}, 3)
    assert [node["missing_commands"] for node in told["nodes"]] == [[named]] * 3
    assert call("run", "--try", "a", "b", "--", "true", nodes=nodes).code == 0
