"""Tests that clients of redis-py and valkey-py go where their settings say: servers and databases
that change later, servers that move, and connections whose class makes them in its own way."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import pytest
import redis

from quorlock import ConfigError, ConfigTypeError, Redlock
from quorlock._pools import place_of
from tests.python.client_objects import ALL, busy, close, locked, manager, result, run
from tests.support.cluster import Cluster


@pytest.mark.parametrize("kind", ALL)
def test_a_connection_with_another_database_of_its_own_is_refused(
    cluster3: Cluster, kind: Any
) -> None:
    async def test() -> None:
        client, lock = await locked(kind, cluster3)
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
        client, lock = await locked(kind, cluster3)
        client.connection_pool.connection_kwargs[setting] = value
        with pytest.raises(ConfigError, match=f"has {setting} {value} in its settings now, which"):
            await result(lock.acquire())
        assert await result(lock.release()) == "released"

    run(kind, test())


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
    pool = kind(port=1, ssl=True).connection_pool
    usual = pool.connection_class
    assert usual.__name__ == "SSLConnection"

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
        await close(*clients)

    run(kind, test())


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
        client, lock = await locked(kind, cluster3)
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


class Moving(dict[str, Any]):
    """Settings that redis-py changes in another thread while they are looked at."""

    def get(self, name: str, usual: Any = None) -> Any:
        value = super().get(name, usual)
        self.update(host="other", orig_host_address="mine", maintenance_notification_hash=1)
        return value


def test_a_server_that_begins_to_move_while_the_settings_are_read_stays_in_its_place() -> None:
    pool = redis.Redis("mine").connection_pool
    pool.connection_kwargs = Moving(pool.connection_kwargs)
    assert place_of(pool)["host"] == "mine"
