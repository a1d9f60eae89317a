"""Tests that the faults are real: each does what its name says, and its end undoes it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.chaos.actions import GROUP_ACTIONS, NODE_ACTIONS, cut_link, set_all_ahead
from tests.chaos.testbed import Node, Testbed
from tests.support.resp import Connection, ReplyError
from tests.support.wait import eventually


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with Testbed(1) as testbed:
        yield testbed


@pytest.fixture
def node(testbed: Testbed) -> Iterator[Node]:
    testbed.nodes[0].server.command("SET", "kept", "here")
    yield testbed.nodes[0]
    testbed.heal()


@pytest.mark.parametrize(
    ("fault", "words"),
    [("out of memory", "OOM"), ("disk full", "MISCONF"), ("read only", "READONLY")],
)
def test_writes_are_refused(node: Node, fault: str, words: str) -> None:
    undo = NODE_ACTIONS[fault](node, 0.5)
    with pytest.raises(ReplyError, match=words):
        node.server.command("SET", "a", "b")
    undo()
    assert node.server.command("SET", "a", "b") == "OK"
    assert node.server.command("GET", "kept") == "here"


@pytest.mark.parametrize(("fault", "kept"), [("kill", "here"), ("forget", None), ("flush", None)])
def test_what_is_kept(node: Node, fault: str, kept: str | None) -> None:
    NODE_ACTIONS[fault](node, 0.5)()
    assert node.server.command("GET", "kept") == kept


@pytest.mark.parametrize("fault", ["failback", "old failback"])
def test_what_came_since_is_forgotten(testbed: Testbed, node: Node, fault: str) -> None:
    testbed.keep()
    undo = NODE_ACTIONS["failback"](node, 0) if fault == "failback" else None
    node.server.command("SET", "new", "there")
    with Connection((node.server.host, node.links[0].port), 5) as client:
        client.command("PING")
        if undo:
            undo()
            with pytest.raises(ConnectionError):
                client.command("PING")
        else:
            NODE_ACTIONS[fault](node, 0)
            assert client.command("PING") == "PONG", "connections are kept"
    assert node.server.command("GET", "kept") == "here"
    assert node.server.command("GET", "new") is None
    assert node.server.command("SET", "a", "b") == "OK"


def test_nodes_forget_one_after_another_and_the_first_again(node: Node) -> None:
    pid = node.server.pid
    GROUP_ACTIONS["successive"]([node], ["r"], 0.2)()
    assert node.server.command("GET", "kept") is None
    assert node.server.pid != pid
    assert node.server.log.count("Ready to accept") >= 3


@pytest.mark.parametrize("strength", [0.1, 0.9])
def test_a_link_is_cut_and_the_others_of_its_node_are_not(strength: float) -> None:
    with Testbed(1, clients=2) as testbed:
        node = testbed.nodes[0]
        undo = cut_link(node.links[0], strength)
        with pytest.raises((TimeoutError, ConnectionError)):
            ask(node, "PING", timeout=0.2)
        with Connection(("127.0.0.1", node.links[1].port), 5) as other:
            assert other.command("PING") == "PONG"
        undo()
        assert ask(node, "PING", timeout=10) == "PONG"


def test_all_clocks_of_the_other_cluster_are_set(testbed: Testbed) -> None:
    set_all_ahead(testbed.others, 0.5)
    for server in testbed.others:
        eventually(lambda it=server: float(it.command("TIME")[0]) - time.time() > 15)  # type: ignore[misc]


def test_queues_are_lost_and_nothing_else(node: Node) -> None:
    node.server.command("ZADD", "quorlock:queue:{r}", 1, "a")
    NODE_ACTIONS["lost queues"](node, 0.5)()
    assert node.server.command("EXISTS", "quorlock:queue:{r}") == 0
    assert node.server.command("GET", "kept") == "here"


def test_connections_for_news_are_cut_and_no_others(node: Node) -> None:
    address = (node.server.host, node.links[0].port)
    with Connection(address, 5) as listener, Connection(address, 5) as other:
        listener.command("SUBSCRIBE", "c")
        NODE_ACTIONS["lost wakes"](node, 0.5)()
        with pytest.raises(ConnectionError):
            listener.command("PING")
        assert other.command("PING") == "PONG"


def test_news_is_forbidden_for_a_while(node: Node) -> None:
    undo = NODE_ACTIONS["no news"](node, 0.5)
    with pytest.raises(ReplyError, match="NOPERM"):
        node.server.command("PUBLISH", "quorlock:wake:1", "x")
    undo()
    assert node.server.command("PUBLISH", "quorlock:wake:1", "x") == 0


def test_scripts_are_forgotten(node: Node) -> None:
    digest = node.server.command("SCRIPT", "LOAD", "return 1")
    NODE_ACTIONS["script flush"](node, 0.5)()
    with pytest.raises(ReplyError, match="NOSCRIPT"):
        node.server.command("EVALSHA", digest, 0)


@pytest.mark.parametrize(
    ("fault", "least", "most"), [("clock back", -3, 0), ("clock ahead", 0, 41)]
)
def test_a_clock_is_set_and_expires_keys_by_it(
    node: Node, fault: str, least: float, most: float
) -> None:
    before = server_time(node) - time.time()
    node.server.command("SET", "timed", "x", "PX", 100_000)
    NODE_ACTIONS[fault](node, 0.9)
    # A server may go by the time of its last turn for a moment.
    eventually(lambda: abs(server_time(node) - time.time() - before) > 0.1)
    step = server_time(node) - time.time() - before
    assert least < step < most
    left = node.server.command("PTTL", "timed")
    assert left == pytest.approx(100_000 - step * 1000, abs=2000)


@pytest.mark.parametrize("fault", ["half open", "refuse", "pause", "delay"])
def test_nothing_comes_back_in_time(node: Node, fault: str) -> None:
    undo = NODE_ACTIONS[fault](node, 0.99)
    with pytest.raises((TimeoutError, ConnectionError)):
        ask(node, "PING", timeout=0.2)
    undo()
    assert ask(node, "PING", timeout=10) == "PONG"


def server_time(node: Node) -> float:
    seconds, micros = node.server.command("TIME")
    return float(seconds) + float(micros) / 1e6


def ask(node: Node, *words: str, timeout: float) -> object:
    with Connection(("127.0.0.1", node.links[0].port), timeout) as connection:
        return connection.command(*words)
