"""Tests what rounds send and leave on the nodes: fresh holder ids, in order, a ttl on every key.

Read from the nodes' own log of commands.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quorlock import QuorumUnreachable, Redlock
from tests.python.apis import Api, both_apis
from tests.support.cluster import Cluster
from tests.support.proxy import FaultProxy
from tests.support.servers import Server
from tests.support.wait import eventually

Proxies = Callable[..., FaultProxy]
HOLDER = re.compile(r"[0-9a-f]{40}")


@pytest.fixture
def logged3(cluster3: Cluster) -> Iterator[Cluster]:
    """Three servers that log every command."""
    for server in cluster3:
        server.command("CONFIG", "SET", "slowlog-log-slower-than", 0)
        server.command("SLOWLOG", "RESET")
    yield cluster3
    cluster3.heal()
    for server in cluster3:
        server.command("CONFIG", "SET", "slowlog-log-slower-than", 10_000)


def commands(server: Server, resource: str) -> list[list[str]]:
    """The commands that named the resource, oldest first, without those of the tests."""
    log = [entry[3] for entry in server.command("SLOWLOG", "GET", 1000)]
    own = {"GET", "KEYS", "PTTL"}
    return [words for words in reversed(log) if resource in words and words[0] not in own]


def holders(words: list[str]) -> list[str]:
    """The holder ids in a command; the digest of its script is none."""
    return [word for word in words[2:] if HOLDER.fullmatch(word)]


def taken_back(server: Server, resource: str) -> set[str]:
    """The holder ids that stand in a grant and, after it, in what takes the grant back."""
    times = Counter(holder for words in commands(server, resource) for holder in holders(words))
    return {holder for holder, count in times.items() if count > 1}


@pytest.mark.parametrize("fencing", [True, False])
@both_apis
async def test_every_round_has_a_holder_id_of_its_own(
    api: Api, logged3: Cluster, fencing: bool
) -> None:
    name = f"ids of {api} {fencing}"  # of which no earlier test has anything left to take back
    for server in logged3:
        server.command("SET", name, "somebody else", "PX", 60_000)
    locks = api.Redlock(logged3.urls, fencing=fencing, retry_delay=0.01, retry_jitter=0)
    lock: Any = locks.lock(name, retry_limit=4)
    assert not await api(lock.acquire())
    for server in logged3:
        # A round that is lost is taken back under the id that it was asked under.
        eventually(lambda server=server: len(taken_back(server, name)) == 5)  # type: ignore[misc]
        sent = [holder for words in commands(server, name) for holder in holders(words)]
        assert set(sent) == taken_back(server, name)
    for server in logged3:
        server.command("DEL", name)
    async with api.block(lock) as lease:
        assert lease.token not in sent


@both_apis
async def test_no_limit_of_retries_is_taken_for_another(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls, retry_delay=0.001, retry_jitter=0)
    async with api.block(locks.lock("r")):
        for limit in (0, 1, 7):
            with pytest.raises(Exception, match="held by another") as refused:
                async with api.block(locks.lock("r", retry_limit=limit)):
                    pytest.fail("the body ran without the lock")
            assert refused.value.attempts == limit + 1  # type: ignore[attr-defined]


@both_apis
async def test_a_grant_that_is_under_way_does_not_outlive_its_release(
    api: Api, logged3: Cluster, fault_proxy: Proxies
) -> None:
    name = f"under way with {api}"
    slow = fault_proxy(logged3[2])
    locks = api.Redlock([*logged3.urls[:2], slow.url])
    async with api.block(locks.lock("warm")):
        await api.until(lambda: logged3.values("warm")[2])
    slow.stall("to_server")
    lock = locks.lock(name, ttl=60)
    assert await api(lock.acquire())
    assert await api(lock.release()) == "released"
    assert commands(logged3[2], name) == []
    slow.heal()
    await api.until(lambda: len(commands(logged3[2], name)) == 2)  # granted, then revoked
    assert logged3.values(name) == [None] * 3


def test_a_failed_try_is_taken_back_also_where_nobody_answered(logged3: Cluster) -> None:
    locks = Redlock(logged3.urls)
    with locks.lock("warm"):
        pass
    for server in logged3[1:]:
        server.pause()
    with pytest.raises(QuorumUnreachable):
        locks.lock("taken back", ttl=60, timeout=0.3).acquire()
    for server in logged3[1:]:
        server.resume()
    for server in logged3:
        eventually(lambda server=server: len(commands(server, "taken back")) >= 2)  # type: ignore[misc]
    eventually(lambda: logged3.values("taken back") == [None] * 3)


@both_apis
async def test_every_key_has_a_ttl_at_any_moment(api: Api, cluster3: Cluster) -> None:
    def no_key_is_for_ever() -> None:
        for server in cluster3:
            left = server.keys()
            assert left
            assert all(millis > 0 for millis in left.values()), left

    for options in ({}, {"ttl": None}, {"fencing": False}, {"fencing": False, "ttl": None}):
        locks = api.Redlock([f"{url}?key_prefix=app:" for url in cluster3.urls], **options)
        for resources in ("r", ["r", "s"]):
            async with api.block(locks.lock(resources)) as lease:
                await api.until(lambda: None not in cluster3.values("app:r"))
                no_key_is_for_ever()
                await api(lease.extend())
                no_key_is_for_ever()
            await api.until(lambda: cluster3.values("app:r") == [None] * 3)
        for server in cluster3:
            assert all(millis > 0 for millis in server.keys().values())
            server.flush()
