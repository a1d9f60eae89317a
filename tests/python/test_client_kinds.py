"""Tests which classes of connections and pools clients of redis-py and valkey-py may have, and that
they stay."""

from __future__ import annotations

import asyncio
import copy
import functools
import gc
import multiprocessing
import pickle
import queue
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.sentinel
import redis.sentinel
import valkey
import valkey.asyncio
import valkey.asyncio.sentinel
import valkey.sentinel

from quorlock import ConfigError, ConfigTypeError, Redlock, aio
from quorlock._asking import connections_of
from tests.python.client_objects import ALL, ASYNCIO, BLOCKING, close, locked, manager, result, run
from tests.support.cluster import Cluster

LIBRARIES: dict[Any, Any] = {
    redis.Redis: redis,
    valkey.Valkey: valkey,
    redis.asyncio.Redis: redis.asyncio,
    valkey.asyncio.Valkey: valkey.asyncio,
}
SENTINELS: dict[Any, Any] = {kind: LIBRARIES[kind].sentinel for kind in LIBRARIES}


@pytest.mark.parametrize("kind", ALL)
def test_a_sentinel_pool_of_a_class_of_ones_own_is_refused(kind: Any) -> None:
    sentinels = SENTINELS[kind]
    usual = sentinels.SentinelConnectionPool
    sentinel = sentinels.Sentinel([("127.0.0.1", 1)])
    for pool in (usual, type("MyPool", (usual,), {})):
        client = sentinel.master_for("m", connection_pool_class=pool)
        with pytest.raises(ConfigTypeError, match="Sentinel decides where it connects to"):
            manager(kind, [client])


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "name", ["get_connection", "make_connection", "release", "reset", "disconnect"]
)
def test_a_pool_that_decides_over_its_connections_is_refused(kind: Any, name: str) -> None:
    usual = LIBRARIES[kind].ConnectionPool
    ours = type("MyPool", (usual,), {name: getattr(usual, name)})
    with pytest.raises(
        ConfigError, match=f"its pool MyPool overrides {name}; pass its address instead"
    ):
        manager(kind, [kind(connection_pool=ours(port=1))])


class OtherQueue:
    """A queue without a mutex, of nobody knows whom."""

    def __init__(self, size: int) -> None:
        self.queue: list[Any] = []
        self._size = size

    def put_nowait(self, item: Any) -> None:
        """Put a connection."""
        if len(self.queue) == self._size:
            raise queue.Full
        self.queue.append(item)


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_pool_that_keeps_its_connections_elsewhere_is_refused(kind: Any) -> None:
    pool = LIBRARIES[kind].BlockingConnectionPool(port=1, queue_class=OtherQueue)
    with pytest.raises(
        ConfigError, match="its pool BlockingConnectionPool does not keep its connections as usual"
    ):
        Redlock([kind(connection_pool=pool)])


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", ["connect", "_connect", "on_connect"])
def test_connections_that_connect_in_their_own_way_are_refused(kind: Any, name: str) -> None:
    pool = kind(port=1).connection_pool
    usual = pool.connection_class
    pool.connection_class = type("Mine", (usual,), {name: getattr(usual, name)})
    with pytest.raises(ConfigError, match=f"Mine overrides {name}"):
        manager(kind, [kind(connection_pool=pool)])


@pytest.mark.parametrize("kind", ALL)
def test_several_managers_over_connections_of_a_class_of_ones_own(
    cluster3: Cluster, kind: Any
) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        pool = client.connection_pool
        usual = pool.connection_class
        disconnect = usual.disconnect
        pool.connection_class = type("Mine", (usual,), {"disconnect": disconnect})
        await result(client.ping())
        for _ in range(3):
            lock = manager(kind, [client]).lock("r")
            assert await result(lock.acquire())
            await result(lock.release())
        await result(client.select(3))
        with pytest.raises(ConfigError, match=r"has run select\(\)"):
            await result(lock.acquire())
        await close(client)

    run(kind, test())


def is_usual(kind: Any, given: Any) -> None:
    """Fails unless a spawned process was given the usual class."""
    assert given is LIBRARIES[kind].Connection


@pytest.mark.parametrize("kind", ALL)
def test_the_class_of_connections_is_pickled_as_the_usual_one(kind: Any) -> None:
    client = kind(port=1)
    usual = client.connection_pool.connection_class
    manager(kind, [client])
    given = client.connection_pool.connection_class
    assert given is not usual
    assert issubclass(given, usual)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(given, protocol)) is usual
    assert copy.copy(given) is copy.deepcopy(given) is given
    process = multiprocessing.get_context("spawn").Process(target=is_usual, args=(kind, given))
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.mark.parametrize("kind", ALL)
def test_a_copy_of_a_pool_is_another_pool(cluster3: Cluster, kind: Any) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        manager(kind, [client])
        pool = client.connection_pool
        other = kind(connection_pool=copy.copy(pool))
        other.connection_pool._available_connections = []
        other.connection_pool._in_use_connections = set()
        lock = manager(kind, [other]).lock("r")
        assert await result(lock.acquire())
        await result(other.select(3))
        with pytest.raises(ConfigError, match=r"has run select\(\)"):
            await result(lock.acquire())
        assert await result(manager(kind, [client]).lock("s").acquire())
        assert pickle.loads(pickle.dumps(vars(pool)["_quorlock_connections"])) is False
        await close(other)
        await close(client)

    run(kind, test())


@pytest.mark.parametrize("kind", ALL)
def test_a_function_as_the_class_of_connections_is_refused(kind: Any) -> None:
    pool = kind(port=1).connection_pool
    usual = pool.connection_class

    def make(**options: Any) -> Any:
        return usual(**options)

    for function in (functools.partial(usual), make):
        pool.connection_class = function
        with pytest.raises(ConfigTypeError, match="a function makes its connections, instead of"):
            manager(kind, [kind(connection_pool=pool)])


@pytest.mark.parametrize("kind", ASYNCIO)
def test_a_client_of_asyncio_whose_connect_is_wrapped_by_a_function(
    cluster3: Cluster, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = LIBRARIES[kind].connection.AbstractConnection
    usual = base.connect

    def wrapped(*args: Any, **options: Any) -> Any:
        return usual(*args, **options)

    monkeypatch.setattr(base, "connect", wrapped)

    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        await client.ping()
        assert await aio.Redlock([client]).lock("r").acquire(timeout=5)
        await close(client)

    asyncio.run(test())


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_class_that_cannot_be_extended_stays_as_it_was(cluster3: Cluster, kind: Any) -> None:
    client = kind.from_url(cluster3.urls[0])
    client.ping()
    pool = client.connection_pool
    usual = pool.connection_class

    class Fixed(usual):  # type: ignore[misc, valid-type]
        """Objects of it keep their class."""

        def __setattr__(self, name: str, value: object) -> None:
            if name == "__class__":
                raise TypeError("it stays")
            super().__setattr__(name, value)

    (connection,) = pool._available_connections
    connection.__class__ = Fixed
    with pytest.raises(ConfigError, match=r"cannot be extended \(it stays\)"):
        Redlock([client])
    assert pool.connection_class is usual
    client.close()


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", ["connection_class", "connection_kwargs"])
def test_a_pool_with_settings_of_its_own_is_refused(kind: Any, name: str) -> None:
    pool = kind(port=1).connection_pool
    value = getattr(pool, name)
    pool.__class__ = type("MyPool", (type(pool),), {name: property(lambda _: value)})
    with pytest.raises(ConfigError, match=f"its pool MyPool overrides {name}; pass its address"):
        manager(kind, [kind(connection_pool=pool)])


@pytest.mark.parametrize("kind", ALL)
def test_a_usual_pool_of_connections_that_sentinel_manages_is_refused(kind: Any) -> None:
    pool = kind(port=1).connection_pool
    pool.connection_class = SENTINELS[kind].SentinelManagedConnection
    with pytest.raises(ConfigTypeError, match="Sentinel decides where it connects to"):
        manager(kind, [kind(connection_pool=pool)])


@pytest.mark.parametrize("kind", ALL)
def test_a_class_that_extends_the_one_of_a_client_that_was_given_is_a_class_of_ones_own(
    cluster3: Cluster, kind: Any
) -> None:
    async def test() -> None:
        given = kind.from_url(cluster3.urls[0])
        assert await result(manager(kind, [given]).lock("r").acquire())
        watched = given.connection_pool.connection_class
        elsewhere = type("Elsewhere", (watched,), {"_connect": watched._connect})
        client = kind.from_url(cluster3.urls[0])
        client.connection_pool.connection_class = elsewhere
        with pytest.raises(ConfigError, match="Elsewhere overrides _connect"):
            manager(kind, [client])
        # One with a mixin, as instrumentations make them.
        counting = type("Counting", (type("Mixin", (), {}), watched), {})
        client.connection_pool.connection_class = counting
        lock = manager(kind, [client]).lock("s")
        assert await result(lock.acquire())
        assert issubclass(client.connection_pool.connection_class, counting)
        await result(client.select(3))
        with pytest.raises(ConfigError, match=r"has run select\(\)"):
            await result(lock.acquire())
        await close(client)
        await close(given)

    run(kind, test())


class Extended:
    """Where pickle finds the class of the next test by its name."""

    Connection: Any = None


def test_a_class_that_extends_a_watched_one_is_pickled_as_itself() -> None:
    client = redis.Redis(port=1)
    Redlock([client])
    watched = client.connection_pool.connection_class
    names = {"__module__": __name__, "__qualname__": "Extended.Connection"}
    Extended.Connection = type("Connection", (watched,), names)
    try:
        given = pickle.loads(pickle.dumps(Extended.Connection))
        assert given is Extended.Connection
    finally:
        Extended.Connection = None


@pytest.mark.parametrize("kind", ALL)
def test_a_pool_with_a_copied_class_of_connections_may_use_another_database(
    cluster3: Cluster, kind: Any
) -> None:
    async def test() -> None:
        client, lock = await locked(kind, cluster3)
        await result(lock.release())
        pool = client.connection_pool
        settings = {**pool.connection_kwargs, "db": 3}
        other = kind(connection_pool=type(pool)(connection_class=pool.connection_class, **settings))
        await result(other.select(4))
        assert await result(lock.acquire())
        await result(lock.release())
        # One that is put into this pool counts.
        pool._available_connections += other.connection_pool._available_connections
        with pytest.raises(ConfigError, match=r"has (run select\(\)|database 3 as its own), on"):
            await result(lock.acquire())
        await close(client)
        await close(other)

    run(kind, test())


@pytest.mark.parametrize("kind", ALL)
def test_connections_of_other_pools_are_forgotten_with_them(cluster3: Cluster, kind: Any) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        assert manager(kind, [client])
        pool = client.connection_pool
        strays = connections_of(client).selections._strays
        settings = {**pool.connection_kwargs, "db": 3}
        other = kind(connection_pool=type(pool)(connection_class=pool.connection_class, **settings))
        for _ in range(3):
            await result(other.ping())
            assert len(strays) == 1
        await close(other)
        del other
        gc.collect()
        assert not strays

    run(kind, test())


class Slotted:
    """A connection to which nobody can refer weakly, as those of asyncio in redis-py 4.2."""

    __slots__ = ()


def test_a_connection_of_another_pool_that_cannot_be_forgotten_counts() -> None:
    client = redis.Redis(port=1)
    Redlock([client])
    selections = connections_of(client).selections
    selections._leave(Slotted(), (False, "has run select()"))
    assert selections.first() == "has run select()"


@pytest.mark.parametrize("kind", ALL)
def test_a_pool_object_with_methods_of_its_own_is_refused(kind: Any) -> None:
    client, other = kind(port=1), kind(port=2)
    client.connection_pool.make_connection = other.connection_pool.make_connection
    with pytest.raises(ConfigError, match="the object of its pool overrides make_connection; pass"):
        manager(kind, [client])
