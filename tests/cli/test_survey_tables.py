"""Tests the tables of `nodes` and `doctor`, on real servers and terminals."""

from __future__ import annotations

import json
import re
from collections import Counter

import pytest

from tests.cli.command import call
from tests.cli.doctor import Servers, beside
from tests.cli.terminal import Terminal
from tests.support.cluster import Cluster
from tests.support.servers import Server


def test_nodes_has_a_row_for_each(healthy: Cluster, servers: Servers) -> None:
    gone: Server = servers(1)[0]
    gone.kill()
    ended = call("nodes", nodes=beside(healthy, gone.url))
    assert (ended.code, ended.err) == (0, "")
    rows = ended.out.splitlines()
    assert rows[0].split() == ["node", "state", "server", "data", "times", "rights"]
    assert "master" in rows[1]
    assert "fsync always" in rows[1]
    assert "connection refused" in ended.out
    assert call("--quiet", "nodes", nodes=healthy.urls).out, "no exit code tells it"
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
    nodes = beside(healthy, gone.url)
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
