"""Tests which classes of connections and pools clients of redis-py and valkey-py may have, and what
else of their settings must stay as it was."""

from __future__ import annotations

import asyncio
import copy
import enum
import functools
import gc
import multiprocessing
import pickle
import queue
from collections.abc import Callable
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
from tests.python.test_client_answers import ASYNCIO, BLOCKING, busy, manager, result, run
from tests.support.cluster import Cluster

LIBRARIES: dict[Any, Any] = {
    redis.Redis: redis,
    valkey.Valkey: valkey,
    redis.asyncio.Redis: redis.asyncio,
    valkey.asyncio.Valkey: valkey.asyncio,
}
SENTINELS: dict[Any, Any] = {kind: LIBRARIES[kind].sentinel for kind in LIBRARIES}
ALL = [*BLOCKING, *ASYNCIO]


async def close(client: Any) -> None:
    await result(getattr(client, "aclose", client.close)())
    await result(client.connection_pool.disconnect())


@pytest.mark.parametrize("kind", ALL)
def test_a_connection_with_another_database_of_its_own_is_refused(
    cluster3: Cluster, kind: Any
) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        lock = manager(kind, [client]).lock("r")
        assert await result(lock.acquire())
        await result(lock.release())
        settings = client.connection_pool.connection_kwargs
        settings["db"] = 3
        pipeline = await busy(client)
        settings["db"] = 0
        with pytest.raises(ConfigError, match="has database 3 as its own, on one of its conn"):
            await result(lock.acquire())
        await result(pipeline.reset())
        await close(client)

    run(kind, test())


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    ("setting", "value"),
    [("host", "127.0.0.9"), ("port", 1), ("path", "/tmp/another.sock"), ("ssl", True)],
)
def test_a_client_that_goes_elsewhere_later_is_refused(
    cluster3: Cluster, kind: Any, setting: str, value: object
) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        lock = manager(kind, [client]).lock("r")
        assert await result(lock.acquire())
        client.connection_pool.connection_kwargs[setting] = value
        with pytest.raises(ConfigError, match=f"has {setting} {value} in its settings now, which"):
            await result(lock.acquire())
        assert await result(lock.release()) == "released"

    run(kind, test())


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
@pytest.mark.parametrize(
    "setting", [{"port": 2}, {"host": "other"}, {"db": 3}, {"password": "x"}, {"nonsense": 1}]
)
def test_connections_that_are_made_with_other_settings_are_refused(
    kind: Any, setting: dict[str, Any]
) -> None:
    pool = kind(port=1).connection_pool
    usual = pool.connection_class

    def make(self: Any, **settings: Any) -> None:
        usual.__init__(self, **{**settings, **setting})

    pool.connection_class = type("Mine", (usual,), {"__init__": make})
    with pytest.raises(ConfigError, match="Mine overrides __init__, and does not keep"):
        manager(kind, [kind(connection_pool=pool)])


@pytest.mark.parametrize("kind", ALL)
def test_connections_that_are_made_with_another_authority_are_refused(kind: Any) -> None:
    library = LIBRARIES[kind]
    pool = kind(port=1, ssl=True).connection_pool
    usual = pool.connection_class
    assert usual is library.SSLConnection

    def make(self: Any, **settings: Any) -> None:
        usual.__init__(self, **{**settings, "ssl_ca_certs": ca})

    pool.connection_class = type("Mine", (usual,), {"__init__": make})
    ca = None
    manager(kind, [kind(connection_pool=pool)])
    ca = "mine.pem"
    with pytest.raises(ConfigError, match="Mine overrides __init__, and does not keep"):
        manager(kind, [kind(connection_pool=pool)])


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", ["_connect", "on_connect", "send_command", "pack_command"])
def test_connections_that_are_made_with_methods_of_their_own_are_refused(
    kind: Any, name: str
) -> None:
    pool = kind(port=1).connection_pool
    usual = pool.connection_class

    def make(self: Any, **settings: Any) -> None:
        usual.__init__(self, **settings)
        setattr(self, name, getattr(self, name))

    pool.connection_class = type("Mine", (usual,), {"__init__": make})
    with pytest.raises(ConfigError, match="Mine overrides __init__, and does not keep"):
        manager(kind, [kind(connection_pool=pool)])


class Packer:
    """One that might put a prefix before keys."""

    def pack(self, *_: Any) -> list[bytes]:
        raise AssertionError("it is not used")


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("put", ["callback", "packer"])
def test_connections_that_are_made_with_functions_of_a_program_are_refused(
    kind: Any, put: str
) -> None:
    pool = kind(port=1).connection_pool
    usual = pool.connection_class

    def make(self: Any, **settings: Any) -> None:
        usual.__init__(self, **settings)
        if put == "callback":
            self.register_connect_callback(self.on_connect)
        else:
            self._command_packer = Packer()

    pool.connection_class = type("Mine", (usual,), {"__init__": make})
    with pytest.raises(ConfigError, match="Mine overrides __init__, and does not keep"):
        manager(kind, [kind(connection_pool=pool)])


@pytest.mark.parametrize("kind", ALL)
def test_connections_may_be_made_with_other_settings_than_their_place(
    cluster3: Cluster, kind: Any
) -> None:
    async def test() -> None:
        clients = [kind.from_url(url) for url in cluster3.urls]
        for client in clients:
            pool = client.connection_pool
            usual = pool.connection_class

            def make(self: Any, name: str, usual: Any = usual, **settings: Any) -> None:
                usual.__init__(self, **{**settings, "client_name": name})

            pool.connection_class = type("Mine", (usual,), {"__init__": make})
            pool.connection_kwargs["name"] = "mine"  # its library does not know that
        lock = manager(kind, clients).lock("r")
        assert await result(lock.acquire())
        assert await result(clients[0].get("r"))
        await result(lock.release())
        for client in clients:
            await close(client)

    run(kind, test())


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
def test_a_client_goes_on_whose_host_its_library_has_changed_while_the_server_moves(
    cluster3: Cluster, kind: Any
) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        lock = manager(kind, [client]).lock("r")
        settings = client.connection_pool.connection_kwargs
        # As redis-py does when a server of Redis Enterprise tells that it moves.
        settings.update(
            maintenance_notification_hash=1, orig_host_address=settings["host"], host="127.0.0.9"
        )
        assert await result(lock.acquire(timeout=5))
        settings["maintenance_notification_hash"] = None
        with pytest.raises(ConfigError, match=r"has host 127\.0\.0\.9 in its settings now"):
            await result(lock.acquire())

    run(kind, test())


@pytest.mark.parametrize("kind", ALL)
def test_a_client_with_connections_to_another_server_than_its_settings_name_is_refused(
    cluster3: Cluster, kind: Any
) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        await result(client.ping())
        client.connection_pool.connection_kwargs["port"] = cluster3[1].port
        with pytest.raises(
            ConfigTypeError, match=f"it has a connection to port {cluster3[0].port}, which is not"
        ):
            manager(kind, [client])
        await close(client)

    run(kind, test())


def ports(port: int) -> Any:
    class Ports(int, enum.Enum):
        MINE = port

    return Ports.MINE


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "form", ["{}".format, " {}".format, "{}\n".format, "0{}".format, b"%d".__mod__, ports]
)
def test_a_port_may_be_what_the_library_converts(
    cluster3: Cluster, kind: Any, form: Callable[[int], Any]
) -> None:
    async def test() -> None:
        client = kind(host=cluster3[0].host, port=form(cluster3[0].port))
        await result(client.ping())
        for _ in range(2):
            lock = manager(kind, [client]).lock("r")
            assert await result(lock.acquire(timeout=5))
            await result(lock.release())
            await result(client.ping())
        await close(client)

    run(kind, test())


@pytest.mark.parametrize("is_cached", [False, True])
def test_connections_go_on_whose_host_their_library_has_changed_while_the_server_moves(
    cluster3: Cluster, is_cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis.connection.CacheProxyConnection, "DEFAULT_SERVER_NAME", "valkey")
    settings: dict[str, Any] = {"cache_config": redis.cache.CacheConfig()} if is_cached else {}
    client = redis.Redis(cluster3[0].host, cluster3[0].port, protocol=3, **settings)
    client.ping()
    lock, pool = Redlock([client]).lock("r"), client.connection_pool
    connection: Any
    for moves in (1, None):
        # Without proactive_reconnect, redis-py leaves them the other host.
        host = None if moves is None else "localhost"
        pool.update_connections_settings(
            maintenance_notification_hash=moves, host_address=host, update_notification_hash=True
        )
        connections = [pool.get_connection() for _ in range(2)]
        for connection in connections:
            connection.send_command("PING")
            connection.read_response()
            pool.release(connection)
        assert lock.acquire(timeout=5)
        lock.release()
        if moves is not None:
            Redlock([client])
    client.close()


@pytest.mark.parametrize("kind", ALL)
def test_a_connection_to_another_server_is_refused_when_the_settings_are_as_before(
    cluster3: Cluster, kind: Any
) -> None:
    async def test() -> None:
        client = kind.from_url(cluster3.urls[0])
        lock = manager(kind, [client]).lock("r")
        assert await result(lock.acquire())
        await result(lock.release())
        settings = client.connection_pool.connection_kwargs
        settings["port"] = cluster3[1].port
        await result(client.ping())
        settings["port"] = cluster3[0].port
        with pytest.raises(
            ConfigError, match=f"has port {cluster3[1].port} on one of its connections, which"
        ):
            await result(lock.acquire())
        await close(client)

    run(kind, test())


@pytest.mark.parametrize("kind", ALL)
def test_a_manager_that_is_made_while_the_server_moves_takes_its_usual_host(kind: Any) -> None:
    client = kind(host="a.example", port=1)
    client.connection_pool.connection_kwargs.update(
        maintenance_notification_hash=1, orig_host_address="a.example", host="b.example"
    )
    assert "a.example:1" in repr(manager(kind, [client]))


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", ["_connection_arguments", "host", "port", "path", "db"])
def test_connections_with_an_address_of_their_own_are_refused(kind: Any, name: str) -> None:
    pool = kind(port=1).connection_pool
    own = property(lambda _: 2, lambda _connection, _value: None)
    pool.connection_class = type("Mine", (pool.connection_class,), {name: own})
    with pytest.raises(ConfigError, match=f"Mine overrides {name}; pass its address instead"):
        manager(kind, [kind(connection_pool=pool)])


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
        client = kind.from_url(cluster3.urls[0])
        lock = manager(kind, [client]).lock("r")
        assert await result(lock.acquire())
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


@pytest.mark.parametrize("kind", ALL)
def test_a_pool_object_with_methods_of_its_own_is_refused(kind: Any) -> None:
    client, other = kind(port=1), kind(port=2)
    client.connection_pool.make_connection = other.connection_pool.make_connection
    with pytest.raises(ConfigError, match="the object of its pool overrides make_connection; pass"):
        manager(kind, [client])
