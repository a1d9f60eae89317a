"""The faults are real: each does to a server what its name says, and its end undoes it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.chaos.nemesis import NODE_ACTIONS
from tests.chaos.stage import Node, Stage
from tests.support.resp import Connection, ReplyError
from tests.support.wait import eventually


@pytest.fixture(scope="module")
def _stage() -> Iterator[Stage]:
    with Stage(1) as stage:
        yield stage


@pytest.fixture
def node(_stage: Stage) -> Iterator[Node]:
    _stage.nodes[0].server.command("SET", "kept", "here")
    yield _stage.nodes[0]
    _stage.heal()


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
    with Connection(("127.0.0.1", node.proxy.port), timeout) as connection:
        return connection.command(*words)
