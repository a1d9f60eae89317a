"""Tests that an extension that failed tells what the nodes did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from quorlock import QuorumUnreachable
from tests.python.apis import Api, both_apis
from tests.support.cluster import Cluster

PASSWORD = "a-secret-of-this-test"


@both_apis
@pytest.mark.parametrize("by_holder", [False, True])
async def test_a_failed_extension_tells_what_the_nodes_did(
    api: Api, servers: Callable[..., Cluster], by_holder: bool
) -> None:
    cluster = servers(3, password=PASSWORD)
    told: list[Any] = []
    locks = api.Redlock(cluster.urls, on_event=told.append)

    def failed() -> list[Any]:
        return [event for event in told if event.name == "extension_failed"]

    async with api.block(locks.lock("r", ttl=20, auto_extend=not by_holder)) as lease:
        cluster[0].kill()
        cluster[1].pause()
        if by_holder:
            with pytest.raises(QuorumUnreachable):
                await api(lease.extend())
        await api.until(failed, within=30)
        cluster[1].resume()
    await api(locks.close())
    detail = failed()[0].detail
    assert detail.startswith("no quorum for 'r': 2 of 3 nodes are needed, "), detail
    assert "2 failed (" in detail, detail
    for server in list(cluster)[:2]:
        assert f"{server.host}:{server.port}" in detail, detail
    assert f"{cluster[2].host}:{cluster[2].port}" not in detail, "it granted"
    assert PASSWORD not in detail
