"""Tests late releases: the next lease does not end by them, and a close does not stop them."""

from __future__ import annotations

from typing import Any

import pytest

from quorlock import LeaseLost, LocksClosed
from tests.python.apis import Api, both_apis
from tests.support.cluster import Cluster


@pytest.mark.parametrize("managers", [1, 2])
@both_apis
async def test_the_next_holder_is_renewed_all_the_same(
    api: Api, cluster3: Cluster, managers: int
) -> None:
    each = [api.Redlock(cluster3.urls) for _ in range(managers)]
    told: list[Any] = []
    late = each[0].lock("r", ttl=0.2)
    assert await api(late.acquire())
    await api.until(lambda: not late.owned())
    async with api.block(each[-1].lock("r", ttl=2, timeout=20, on_lost=told.append)) as lease:
        with pytest.raises(LeaseLost):
            await api(late.release())
        grown = 0
        last = lease.validity
        while grown < 3:  # three renewals later
            grown += lease.validity > last
            last = lease.validity
            assert lease.is_valid
            await api.sleep(0.005)
        assert cluster3.values("r") == [lease.token] * 3
    assert told == []
    await api.until(lambda: cluster3.values("r") == [None] * 3)


@both_apis
async def test_a_lock_can_be_released_after_a_close(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls, ttl=60)
    held = locks.lock("r")
    assert await api(held.acquire())
    async with api.block(locks.lock("block")) as left:
        locks.close()
        assert await api(held.release()) == "released"
        assert cluster3.values("block") == [left.token] * 3
    await api.until(lambda: cluster3.values("r") == cluster3.values("block") == [None] * 3)
    with pytest.raises(LocksClosed):
        await api(held.acquire())
