"""Tests how long the records beside a lock live, and whose they are."""

from __future__ import annotations

import pytest

from tests.python.apis import Api, both_apis
from tests.support.cluster import Cluster
from tests.support.peer_process import ROOT
from tests.support.servers import Server

RECORDS = ("quorlock:owner:{r}", "quorlock:sequencer:{r}")
SCRIPT = (ROOT / "core" / "client" / "src" / "scripts" / "record.lua").read_text()


def _left(cluster: Cluster, *keys: str) -> list[int]:
    return [server.command("PTTL", key) for server in cluster for key in keys]


@both_apis
async def test_records_stay_as_long_as_their_lock_is_extended(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls, owner={"team": "billing"})
    lock = locks.lock("r", ttl=30)
    assert await api(lock.acquire())
    assert await api(lock.lease.record_sequencer())
    taken = locks.lease("r", lock.lease.token)
    assert await api(taken.extend(60)) > 50
    assert await api(lock.lease.extend(20)) < 20
    await api.until(lambda: min(_left(cluster3, "r", *RECORDS)) > 40_000)
    assert await api(locks.verify(lock.lease.sequencer))


@both_apis
async def test_a_record_of_another_user_of_the_token_stays_as_long(
    api: Api, cluster3: Cluster
) -> None:
    locks = api.Redlock(cluster3.urls)
    lock = locks.lock("r", ttl=60)
    assert await api(lock.acquire())
    assert await api(lock.lease.record_sequencer())
    # Its lock-delay makes it another text.
    taken = locks.lease("r", lock.lease.token, lock_delay=5)
    assert await api(taken.extend(2)) < 2
    assert await api(taken.record_sequencer())
    await api.until(lambda: min(_left(cluster3, "r", RECORDS[1])) > 40_000)
    assert await api(locks.verify(lock.lease.sequencer))


def test_a_record_is_the_holders_alone(cluster3: Cluster) -> None:
    server: Server = cluster3[0]

    def alter(holder: str, ttl: int, value: str = "") -> object:
        return server.command("EVAL", SCRIPT, 2, RECORDS[1], "r", holder, ttl, value)

    server.command("SET", "r", "b", "PX", 60_000)
    assert alter("b", 5_000, "9/0/b") == "OK"
    for ttl, value in ((5_000, "7/0/a"), (90_000, ""), (0, "")):  # what came late
        assert alter("a", ttl, value) is None
    assert server.command("GET", RECORDS[1]) == "9/0/b"
    assert 50_000 < server.command("PTTL", RECORDS[1]) <= 60_000
    server.command("DEL", "r")
    assert alter("b", 5_000, "9/0/b") is None, "nobody has the lock"
    assert alter("b", 0) == "OK"
    assert server.command("EXISTS", RECORDS[1]) == 0


@both_apis
@pytest.mark.parametrize("options", [{"lock_delay": 30}, {}])
async def test_the_release_of_a_lost_lease_leaves_no_record(
    api: Api, cluster3: Cluster, options: dict[str, float]
) -> None:
    locks = api.Redlock(cluster3.urls, owner={"team": "billing"}, raise_on_lost=False)
    lock = locks.lock("r", ttl=0.5, **options)
    assert await api(lock.acquire())
    assert await api(lock.lease.record_sequencer())
    if not options:
        await api(lock.lease.extend(30))
        await api(lock.lease.extend(0.5))  # the nodes keep the lock for what is left
    await api.until(lambda: min(_left(cluster3, "r", *RECORDS)) > 20_000)
    await api.until(lambda: not lock.lease.is_valid)
    assert await api(lock.release()) == "expired"
    await api.until(lambda: max(_left(cluster3, "r", *RECORDS)) == -2)
