"""Tests that nodes which are not independent are refused, in words that name both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from quorlock import ConfigError, QuorumUnreachable, Redlock
from tests.python.apis import Api, both_apis
from tests.support.cluster import Cluster, start_servers
from tests.support.proxy import FaultProxy
from tests.support.servers import Options, Server

SAME = "are one and the same server, but a quorum needs servers that fail independently"


@pytest.fixture
def pair() -> Iterator[Cluster]:
    with start_servers(2, Options(unix_socket=True)) as cluster:
        yield cluster


async def refused(api: Api, nodes: list[str], **options: Any) -> tuple[Any, str]:
    """A manager that has refused its nodes, and its words.

    On a busy machine a quorum may be found well before the others have told who they are; then it
    is left to the next manager.
    """
    for _ in range(10):
        locks = api.Redlock(nodes, **options)
        try:
            async with api.block(locks.lock("r", timeout=5)):
                pass
        except ConfigError as error:
            return locks, str(error)
        await api(locks.close())
    pytest.fail("the list of nodes was taken")


@both_apis
async def test_a_server_under_two_addresses_is_refused(
    api: Api, pair: Cluster, fault_proxy: Callable[..., FaultProxy]
) -> None:
    server, other = pair
    for address in (server.unix_url, fault_proxy(server).url):
        locks, words = await refused(api, [server.url, other.url, address])
        assert words == f"{server.url} and {address} {SAME}: name each once"
        with pytest.raises(ConfigError, match=SAME):
            await api(locks.lock("r").locked())
        await api(locks.close())


@both_apis
async def test_it_is_refused_with_the_guards_off(api: Api, pair: Cluster) -> None:
    nodes = [pair[0].url, pair[0].unix_url]
    locks, words = await refused(api, nodes, restart_guard="off", clock_guard=False)
    assert SAME in words
    await api(locks.close())


@both_apis
async def test_a_replica_is_refused_until_it_is_a_master(api: Api, pair: Cluster) -> None:
    master, other = pair
    master.command("CONFIG", "SET", "repl-diskless-sync-delay", 0)
    with Server(Options(replica_of=master)) as replica:
        locks, words = await refused(api, [master.url, other.url, replica.url])
        assert words.startswith(f"{replica.url} is a replica of {master.url}, but a quorum needs")
        replica.command("REPLICAOF", "NO", "ONE")
        lock = locks.lock("r")

        async def try_again() -> bool:
            # Once the list is mended, it is not certain yet that the whole cluster is new.
            try:
                return bool(await api(lock.acquire(blocking=False)))
            except (ConfigError, QuorumUnreachable):
                return False

        while not await try_again():
            await api.sleep(0.01)
        await api(lock.release())
        await api(locks.close())


@both_apis
async def test_a_lone_replica_is_the_fault_of_its_node(api: Api, pair: Cluster) -> None:
    with Server() as master, Server(Options(replica_of=master)) as replica:
        locks = api.Redlock([*pair.urls, replica.url])
        async with api.block(locks.lock("r")):
            pass
        await api.until(lambda: locks.nodes[2].state == "down")
        assert locks.nodes[2].detail == (
            f"{replica.url} is a replica of {master.address} and takes no writes: give the address "
            "of its master"
        )
        await api(locks.close())


@both_apis
async def test_a_replica_alone_is_refused_and_named_once(api: Api) -> None:
    with Server() as master, Server(Options(replica_of=master)) as replica:
        locks, words = await refused(api, [replica.url])
        assert words == (
            f"{replica.url} is a replica of {master.address} and takes no writes: give the address "
            "of its master"
        )
        await api(locks.close())


def test_two_members_of_one_redis_cluster_are_refused() -> None:
    options = Options(flags=("--cluster-enabled", "yes"))
    with start_servers(2, options) as cluster:
        cluster[0].command("CLUSTER", "MEET", cluster[1].host, cluster[1].port)
        known = [server.command("CLUSTER", "NODES") for server in cluster]
        while not all(text.count("\n") == 2 and "handshake" not in text for text in known):
            known = [server.command("CLUSTER", "NODES") for server in cluster]
        with pytest.raises(ConfigError, match="belong to one Redis Cluster") as raised:
            Redlock(cluster.urls).lock("r").acquire(timeout=5)
        assert all(url in str(raised.value) for url in cluster.urls)


@both_apis
async def test_a_user_who_may_not_ask_is_served(api: Api) -> None:
    users = {"app": "on >secret ~* &* +@all -info"}
    with start_servers(2, Options(users=users)) as cluster:
        locks = api.Redlock([server.url_for("app", "secret") for server in cluster])
        async with api.block(locks.lock("r")) as lease:
            assert [vote.outcome for vote in lease.votes] == ["granted"] * 2
        await api(locks.close())


def test_nodes_in_memory_are_taken_at_their_word() -> None:
    with Redlock(["memory://a", "memory://b"]).lock("r"):
        pass
