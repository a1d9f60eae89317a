"""Tests that one process can hand a lease to another by its token."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from quorlock import ConfigError, LeaseLost, LockNotHeld, Redlock
from tests.python.apis import Api, both_apis, memory_nodes
from tests.python.programs import run
from tests.support.cluster import Cluster, start_servers

FENCES = "quorlock:{node}:fences"


@both_apis
async def test_a_lease_is_taken_over_by_its_token(api: Api, cluster3: Cluster) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", ttl=30)
    assert await api(lock.acquire())
    taken = api.Redlock(cluster3.urls).lease("r", lock.lease.token)
    assert repr(taken) == "<Lease 'r' not confirmed>"
    assert (taken.validity, taken.is_valid, taken.fencing_token) == (0.0, False, None)
    assert await api(taken.check()) > 25
    assert taken.is_valid
    assert taken.fencing_token == lock.lease.fencing_token
    assert await api(taken.extend(60)) > 50
    assert await api(taken.release()) == "released"
    await api.until(lambda: cluster3.values("r") == [None] * 3)
    with pytest.raises(LeaseLost):
        await api(lock.release())
    with pytest.raises(LockNotHeld):
        await api(taken.release())


@both_apis
async def test_an_extension_of_a_lease_taken_over_ends_no_trust(
    api: Api, cluster3: Cluster
) -> None:
    lock = api.Redlock(cluster3.urls).lock("r", ttl=30)
    assert await api(lock.acquire())
    taken = api.Redlock(cluster3.urls).lease("r", lock.lease.token)
    assert 0 < await api(taken.extend(1)) < 1
    assert all(server.command("PTTL", "r") > 20_000 for server in cluster3)
    assert await api(taken.extend(60)) > 50
    # An extension by the one that goes on leaves these.
    assert await api(lock.lease.extend()) < 30
    assert all(server.command("PTTL", "r") > 40_000 for server in cluster3)


@both_apis
@pytest.mark.parametrize(("won", "taken_over"), [(0.5, 60), (60, 0.5)])
async def test_a_lease_that_runs_out_leaves_the_keys_to_the_other_user_of_its_token(
    api: Api, cluster3: Cluster, won: float, taken_over: float
) -> None:
    lost: list[object] = []
    lock = api.Redlock(cluster3.urls).lock("r", ttl=won, on_lost=lost.append)
    assert await api(lock.acquire())
    taken = api.Redlock(cluster3.urls).lease("r", lock.lease.token, on_lost=lost.append)
    await api(taken.extend(taken_over))
    await api.until(lambda: len(lost) == 1)
    over, other = (lock.lease, taken) if won < taken_over else (taken, lock.lease)
    with pytest.raises(LeaseLost):
        await api(over.check())
    assert await api(other.check()) > 40
    assert all(server.command("PTTL", "r") > 40_000 for server in cluster3)


@both_apis
@pytest.mark.parametrize("options", [{}, {"fair": True}, {"min_hold": 2}, {"lock_delay": 2}])
@pytest.mark.parametrize("is_watched", [False, True])
async def test_the_release_of_what_has_run_out_leaves_the_keys_to_the_other_user_of_its_token(
    api: Api, cluster3: Cluster, options: dict[str, Any], is_watched: bool
) -> None:
    watch = {"on_lost": lambda _error: None} if is_watched else {}
    locks = api.Redlock(cluster3.urls, owner={"team": "billing"}, raise_on_lost=False)
    lock = locks.lock("r", ttl=0.5, **options, **watch)
    assert await api(lock.acquire())
    taken = locks.lease("r", lock.lease.token)
    assert await api(taken.extend(60)) > 50
    await api.until(lambda: not lock.lease.is_valid)
    assert await api(lock.release()) == "expired"
    # It goes over the same connections, after what the release sends.
    assert await api(taken.check()) > 50
    for key in ("r", "quorlock:owner:{r}"):
        assert all(server.command("PTTL", key) > 40_000 for server in cluster3)
    assert await api(taken.release()) == "released"


@both_apis
async def test_the_end_of_a_block_leaves_the_keys_to_the_other_user_of_its_token(
    api: Api, cluster3: Cluster
) -> None:
    ended = {
        "runs out": {"ttl": 0.5, "auto_extend": False},
        "is held too long": {"ttl": 0.6, "max_hold": 1},
    }
    for end, options in ended.items():
        locks = api.Redlock(cluster3.urls, owner={"team": "billing"})
        with pytest.raises(LeaseLost):
            async with api.block(locks.lock("r", **options)) as lease:
                taken = locks.lease("r", lease.token)
                assert await api(taken.extend(60)) > 50
                await api.until(lambda: not lease.is_valid)
        assert await api(taken.check()) > 40, end
        for key in ("r", "quorlock:owner:{r}"):
            assert all(server.command("PTTL", key) > 40_000 for server in cluster3), end
        assert await api(taken.release()) == "released"
        await api.until(lambda: cluster3.values("r") == [None] * 3)


@both_apis
async def test_an_extension_tells_the_fencing_token_too(api: Api, cluster3: Cluster) -> None:
    async with api.block(api.Redlock(cluster3.urls).lock("r", ttl=30)) as lease:
        for options in ({}, {"auto_extend": True}):
            taken = api.Redlock(cluster3.urls).lease("r", lease.token, ttl=30, **options)
            assert await api(taken.extend()) > 25
            assert taken.fencing_token == lease.fencing_token
        plain = api.Redlock(cluster3.urls).lease("r", lease.token, fencing=False)
        await api(plain.extend())
        assert plain.fencing_token is None


@both_apis
async def test_a_lease_taken_over_has_no_lower_fencing_token(api: Api) -> None:
    with start_servers(3) as servers:
        lock = api.Redlock(servers.urls).lock("r", ttl=30)
        assert await api(lock.acquire())
        own = lock.lease.fencing_token
        await api.until(lambda: servers.values("r") == [lock.lease.token] * 3)
        # The first node lacks the token, as after a late grant; another that knows it is gone.
        (bucket,) = servers[0].command("ZREVRANGE", FENCES, 0, 0)
        servers[0].command("ZADD", FENCES, own - 7, bucket)
        servers[1].kill()
        taken = api.Redlock(servers.urls).lease("r", lock.lease.token)
        assert await api(taken.check()) > 10
        assert taken.fencing_token == own
        assert int(servers[0].command("ZSCORE", FENCES, bucket)) == own
        assert await api(taken.release()) == "released"
        later = api.Redlock(servers.urls).lock("r")
        assert await api(later.acquire())
        assert later.lease.fencing_token > own


@both_apis
async def test_a_wrong_token_gets_nothing(api: Api) -> None:
    locks = api.Redlock(memory_nodes("wrong-token"))
    async with api.block(locks.lock("r")) as lease:
        for call in ("check", "extend", "release"):
            with pytest.raises(LeaseLost):
                await api(getattr(locks.lease("r", "somebody else"), call)())
        assert await api(lease.check()) > 0
    for token in ("", "x" * 2000, 5, None):
        with pytest.raises(ConfigError, match="token"):
            locks.lease("r", token)


@both_apis
async def test_a_lease_taken_over_can_be_renewed_and_watched(api: Api, cluster3: Cluster) -> None:
    told = threading.Event()
    locks = api.Redlock(cluster3.urls)
    lock = locks.lock("r", ttl=2)
    assert await api(lock.acquire())
    taken = locks.lease("r", lock.lease.token, ttl=2, auto_extend=True, on_lost=told.set)
    await api(taken.extend())
    await api.sleep(3)  # longer than its ttl
    assert taken.is_valid
    assert not told.is_set()
    for server in cluster3:
        server.command("SET", "r", "somebody else", "PX", 60_000)
    await api.until(told.is_set)


def test_another_process_releases_it(cluster3: Cluster) -> None:
    with Redlock(cluster3.urls, raise_on_lost=False).lock("r", ttl=30, auto_extend=False) as lease:
        code = f"""
            import os, quorlock
            locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","))
            lease = locks.lease("r", {lease.token!r})
            lease.check()
            same = lease.fencing_token == {lease.fencing_token}
            print(same, lease.extend(20) > 15, lease.release())
        """
        assert run(code, nodes=cluster3.urls) == "True True released"
        assert cluster3.values("r") == [None] * 3


def test_a_lease_of_one_loop_is_taken_over_in_another() -> None:
    from quorlock import aio

    locks = aio.Redlock(memory_nodes("loops"))
    lock = locks.lock("r")
    assert asyncio.run(lock.acquire())
    assert lock.lease is not None
    token = lock.lease.token

    async def release() -> str:
        return await locks.lease("r", token).release()

    assert asyncio.run(release()) == "released"


@both_apis
async def test_a_release_after_the_loss_frees_the_lock_delay_and_keeps_the_least_hold(
    api: Api, cluster3: Cluster
) -> None:
    locks = api.Redlock(cluster3.urls, raise_on_lost=False)
    lock = locks.lock("r", ttl=0.5, min_hold=2, lock_delay=30)
    assert await api(lock.acquire())
    await api.sleep(lock.lease.validity + 0.1)
    assert await api(lock.release()) == "expired"
    await api.until(lambda: all(server.command("PTTL", "r") < 2_000 for server in cluster3))
    assert all(server.command("PTTL", "r") > 0 for server in cluster3)
