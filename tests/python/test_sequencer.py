"""Tests that a lease can be named to others by one text, and that they can verify it."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from quorlock import ConfigError, ConfigTypeError, QuorumUnreachable, Sequencer
from tests.python.apis import Api, both_apis, memory_nodes
from tests.support.cluster import Cluster, start_servers


def test_a_sequencer_is_its_text() -> None:
    sequencer = Sequencer.parse("a%2cb,stock%40berlin@17")
    assert (sequencer.resources, sequencer.token) == (("a,b", "stock@berlin"), 17)
    assert str(sequencer) == "a%2Cb,stock%40berlin@17"
    assert repr(sequencer) == "Sequencer('a%2Cb,stock%40berlin@17')"
    assert json.loads(json.dumps({"lock": sequencer})) == {"lock": "a%2Cb,stock%40berlin@17"}
    assert Sequencer.parse(sequencer) == sequencer


def test_a_sequencer_can_be_copied_and_pickled() -> None:
    sequencer = Sequencer("invoice:42@17")
    protocols = range(pickle.HIGHEST_PROTOCOL + 1)
    pickled = [pickle.loads(pickle.dumps(sequencer, protocol)) for protocol in protocols]
    for again in [copy.copy(sequencer), copy.deepcopy(sequencer), *pickled]:
        assert type(again) is Sequencer
        assert (again.resources, again.token) == (("invoice:42",), 17)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "no '@'"), ("invoice:42@", "fencing token"), ("a,a@7", "twice"), ("a@b@7", "%40"),
     ("a%4@7", "hexadecimal"), ("invoice:42@99999999999999999999", "fencing token")],
)  # fmt: skip
def test_a_text_that_is_none_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        Sequencer.parse(text)


@both_apis
async def test_what_is_no_sequencer_is_refused_by_verify(api: Api) -> None:
    locks = api.Redlock(memory_nodes("sequencer"))
    with pytest.raises(ConfigError, match="is no sequencer"):
        await api(locks.verify("invoice:42"))
    with pytest.raises(ConfigTypeError, match="a sequencer must be a str, not int"):
        await api(locks.verify(17))


@both_apis
async def test_others_verify_a_lease_until_it_is_released(api: Api, cluster3: Cluster) -> None:
    locks, others = api.Redlock(cluster3.urls), api.Redlock(cluster3.urls)
    async with api.block(locks.lock(["r", "a@b"], ttl=30)) as lease:
        sequencer = lease.sequencer
        assert type(sequencer) is Sequencer
        assert sequencer == f"r,a%40b@{lease.fencing_token}"
        # Nobody can know of it before it was recorded.
        assert not await api(others.verify(sequencer))
        assert await api(lease.record_sequencer())
        assert await api(others.verify(sequencer))
        assert await api(others.verify(str(sequencer)))
        assert not await api(others.verify(f"r,a%40b@{lease.fencing_token + 1}"))
    assert not await api(others.verify(sequencer))


@both_apis
async def test_a_lease_that_has_ended_is_not_verified(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls)
    lock = locks.lock("r", ttl=0.5)
    assert await api(lock.acquire())
    sequencer = lock.lease.sequencer
    await api(lock.lease.record_sequencer())
    await api.until(lambda: not lock.lease.is_valid)
    async with api.block(locks.lock("r", ttl=30)) as later:
        await api(later.record_sequencer())
        assert not await api(locks.verify(sequencer))
        assert await api(locks.verify(later.sequencer))


@both_apis
async def test_a_record_lasts_as_long_as_the_renewal(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls)
    async with api.block(locks.lock("r", ttl=0.6)) as lease:
        assert await api(lease.record_sequencer())
        await api.sleep(1.5)  # longer than the first record stands
        assert await api(locks.verify(lease.sequencer))


@both_apis
async def test_too_few_nodes_cannot_tell(api: Api) -> None:
    with start_servers(3) as servers:
        locks = api.Redlock(servers.urls, ttl=30)
        lock = locks.lock("r")
        assert await api(lock.acquire())
        assert await api(lock.lease.record_sequencer())
        servers[0].kill()
        assert await api(locks.verify(lock.lease.sequencer))
        servers[1].kill()
        with pytest.raises(QuorumUnreachable):
            await api(locks.verify(lock.lease.sequencer))
        assert not await api(lock.lease.record_sequencer())


@both_apis
async def test_without_a_token_there_is_no_sequencer(api: Api) -> None:
    locks = api.Redlock(memory_nodes("sequencer"), fencing=False)
    async with api.block(locks.lock("r")) as lease:
        assert lease.sequencer is None
        assert not await api(lease.record_sequencer())


@both_apis
async def test_a_degraded_lease_has_no_sequencer(api: Api) -> None:
    nodes = ["redis://127.0.0.1:1", "redis://127.0.0.1:2", "redis://127.0.0.1:3"]
    locks = api.Redlock(nodes, on_unreachable="proceed", unreachable_timeout=0)
    async with api.block(locks.lock("r")) as lease:
        with pytest.raises(QuorumUnreachable):
            _ = lease.sequencer
        with pytest.raises(QuorumUnreachable):
            await api(lease.record_sequencer())
