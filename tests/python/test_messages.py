"""Tests error messages: what happened and where, and nothing about nodes that did no wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quorlock import LeaseLost, QuorumUnreachable
from tests.python.apis import Api, both_apis
from tests.support.cluster import Cluster


@both_apis
async def test_a_healthy_node_is_not_accused_beside_two_dead_ones(
    api: Api, cluster3: Cluster
) -> None:
    cluster3[0].kill()
    cluster3[1].kill()
    locks = api.Redlock(cluster3.urls, unreachable_timeout=0.2)
    with pytest.raises(QuorumUnreachable) as refused:
        await api(locks.lock("r").acquire())
    assert "had not answered" not in str(refused.value)
    assert ", 2 failed (" in str(refused.value)
    with pytest.raises(QuorumUnreachable, match="1 without a key of it, 2 failed") as refused:
        await api(locks.lock("r").locked())
    assert "refused:" in str(refused.value)  # the connection was
    assert "1 refused" not in str(refused.value)
    await api(locks.close())


@both_apis
async def test_a_stolen_lease_says_who_has_it(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls)
    lock = locks.lock("r", raise_on_lost=False)
    assert await api(lock.acquire())
    for server in cluster3:
        server.command("SET", "r", "a thief")
    with pytest.raises(LeaseLost, match=r"lost: on [23] of 3 nodes another holds it; work since"):
        await api(lock.lease.check())
    with pytest.raises(LeaseLost, match=r"is lost: on [23] of 3 nodes another holds it"):
        await api(locks.lease("r", "not the token").extend())
    for server in cluster3:
        server.command("DEL", "r")
    with pytest.raises(LeaseLost, match=r"is lost: [23] of 3 nodes have no key of it"):
        await api(locks.lease("r", "not the token").extend())
    await api(locks.close())


@both_apis
async def test_a_command_that_a_user_may_not_run_is_named_and_no_key(
    api: Api, servers: Callable[..., Cluster]
) -> None:
    cluster = servers(1, users={"app": "on >secret ~* &* +@all -pexpire"})
    locks = api.Redlock([cluster[0].url_for("app", "secret")], unreachable_timeout=0.2)
    with pytest.raises(QuorumUnreachable, match="access list does not permit") as refused:
        await api(locks.lock("r").acquire())
    assert "+pexpire" in str(refused.value)
    assert "does not cover" not in str(refused.value)
    await api(locks.close())


@both_apis
async def test_a_full_memory_is_said_without_the_script(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock([cluster3[0].url], unreachable_timeout=0.2)
    async with api.block(locks.lock("before")):
        pass
    cluster3[0].command("CONFIG", "SET", "maxmemory", "1")
    try:
        for fencing in (True, False):
            with pytest.raises(QuorumUnreachable, match=r"memory is full \(maxmemory\)") as full:
                await api(locks.lock("r", fencing=fencing).acquire())
            assert "script" not in str(full.value)
            assert "@user" not in str(full.value)
    finally:
        cluster3[0].command("CONFIG", "SET", "maxmemory", "0")
    await api(locks.close())
