"""What tests of `doctor` share: how it is asked, and servers that it finds in order."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from tests.cli.command import call
from tests.support.cluster import Cluster
from tests.support.servers import Server

Servers = Callable[..., Cluster]


def doctor(nodes: Sequence[str], *words: str) -> tuple[int, dict[str, Any]]:
    ended = call(*words, "doctor", "--json", nodes=nodes)
    assert ended.err == ""
    return ended.code, json.loads(ended.out)


def codes(told: dict[str, Any]) -> set[str]:
    return {finding["code"] for finding in told["findings"]}


def finding(told: dict[str, Any], code: str) -> dict[str, Any]:
    (finding,) = (finding for finding in told["findings"] if finding["code"] == code)
    assert finding["remedy"]
    return dict(finding)


def beside(healthy: Cluster, url: str) -> list[str]:
    """Two servers in order, and the one of the test."""
    return [*healthy.urls[:2], url]


def in_order(servers: Servers, **options: Any) -> Server:
    """A server that clients trust, save for these options."""
    cluster = servers(1, **{"appendonly": True, **options})
    cluster.reset()
    return cluster[0]
