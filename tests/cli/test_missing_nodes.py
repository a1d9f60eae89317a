"""Tests the commands about holders where nodes are dead, slow or hung."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cli.command import call
from tests.support.cluster import Cluster
from tests.support.proxy import FaultProxy

Proxies = Callable[..., FaultProxy]
#: Nothing listens there.
DEAD = "redis://127.0.0.1:1"


@pytest.mark.parametrize("command", ["extend", "release"])
@pytest.mark.parametrize(
    ("values", "code"), [(("other", "other"), 3), (("other",), 1), ((), 1), (("mine",), 69)]
)
def test_who_has_a_lock_beside_a_dead_node(
    cluster3: Cluster,
    fault_proxy: Proxies,
    command: str,
    values: tuple[str, ...],
    code: int,
) -> None:
    """Also where the node that makes it certain answers last."""
    for server, value in zip(cluster3, values, strict=False):
        server.command("SET", "job", value, "PX", 60_000)
    slow = fault_proxy(cluster3[1])
    slow.delay(0.04)
    nodes = [cluster3[0].url, slow.url, DEAD]
    ended = call(command, "job", "--token", "mine", nodes=nodes)
    assert ended.code == code, ended
