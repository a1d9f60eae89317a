"""Tests what a lease tells of its nodes while it is extended and renewed, and with its loss."""

from __future__ import annotations

import pytest

from quorlock import LeaseLost, QuorumUnreachable
from tests.python.apis import Api, both_apis
from tests.support.cluster import Cluster


def outcomes(told: object) -> list[str]:
    """What the votes of a lease or of an error are."""
    return [vote.outcome for vote in told.votes]  # type: ignore[attr-defined]


@both_apis
async def test_a_renewal_refreshes_the_votes(api: Api, cluster3: Cluster) -> None:
    async with api.block(api.Redlock(cluster3.urls).lock("r", ttl=6)) as lease:
        await api.until(lambda: outcomes(lease) == ["granted"] * 3)
        cluster3[1].kill()
        await api.until(lambda: outcomes(lease) == ["granted", "failed", "granted"])
        assert "left 2/3 nodes" in repr(lease)
        cluster3[1].restart()
        await api.until(lambda: outcomes(lease) == ["granted"] * 3)


@both_apis
async def test_an_extension_refreshes_the_votes(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls, unreachable_timeout=1).lock("r", ttl=30)
    assert await api(lock.acquire())
    lease = lock.lease
    await api.until(lambda: outcomes(lease) == ["granted"] * 3)
    cluster3[1].kill()
    await api(lease.extend())
    await api.until(lambda: outcomes(lease) == ["granted", "failed", "granted"])
    cluster3[2].kill()
    with pytest.raises(QuorumUnreachable):
        await api(lease.extend())
    assert outcomes(lease)[1:] == ["failed", "failed"]
    assert lease.is_valid


@both_apis
async def test_a_loss_that_is_found_at_the_end_of_the_block_has_votes(
    api: Api, cluster3: Cluster
) -> None:
    with pytest.raises(LeaseLost) as lost:
        async with api.block(api.Redlock(cluster3.urls).lock("r", ttl=10)):
            for server in cluster3:
                server.command("SET", "r", "somebody else", "PX", 60_000)
    assert [vote.address for vote in lost.value.votes] == cluster3.urls
    assert outcomes(lost.value).count("refused") >= 2
    assert any("held by another" in (vote.detail or "") for vote in lost.value.votes)


@both_apis
async def test_a_loss_that_is_told_in_the_block_has_the_last_votes(
    api: Api, cluster3: Cluster
) -> None:
    with pytest.raises(LeaseLost) as lost:
        async with api.block(api.Redlock(cluster3.urls).lock("r", ttl=4)) as lease:
            await api.until(lambda: outcomes(lease) == ["granted"] * 3)
            cluster3[1].kill()
            cluster3[2].kill()
            await api.until(lambda: not lease.is_valid)
    assert outcomes(lost.value)[1:] == ["failed", "failed"]
    assert set(lost.value.faults) == set(cluster3.urls[1:])
