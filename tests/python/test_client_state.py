"""Tests that a client of redis-py or valkey-py that uses another database than its settings say is
refused: otherwise its library's locks and ours would exclude nobody, and nobody would be told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
import redis
import redis.asyncio
import valkey
import valkey.asyncio

from quorlock import ConfigError, QuorumUnreachable, Redlock, aio
from tests.python.client_objects import ALL, ASYNCIO, BLOCKING, told
from tests.support.cluster import Cluster

POOLS = {
    redis.Redis: (redis.ConnectionPool, redis.BlockingConnectionPool),
    valkey.Valkey: (valkey.ConnectionPool, valkey.BlockingConnectionPool),
}


@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("pool", [0, 1])
def test_a_client_that_has_selected_is_refused(cluster3: Cluster, kind: Any, pool: int) -> None:
    made: Any = POOLS[kind][pool]
    clients = [kind(connection_pool=made.from_url(url)) for url in cluster3.urls]
    clients[1].select(3)
    with pytest.raises(ConfigError, match="has selected database 3, on one of") as refused:
        Redlock(clients)
    assert f"the client of {cluster3.urls[1]}" in str(refused.value)
    clients[1].connection_pool.disconnect()  # connects again in the database of its settings
    with Redlock([kind.from_url(cluster3.urls[1]), *clients[::2]]) as locks, locks.lock("r"):
        pass
    for client in clients:
        client.close()


@pytest.mark.parametrize("kind", BLOCKING)
def test_a_client_that_selects_later_is_refused(cluster3: Cluster, kind: Any) -> None:
    clients = [kind.from_url(url) for url in cluster3.urls]
    locks = Redlock(clients)
    lock = locks.lock("r")
    assert lock.acquire()
    assert clients[0].select(3) is True  # the reply is as always
    another = locks.lock("s")
    for attempt in (lock.acquire, lock.locked, lock.holder, lock.__enter__, another.acquire):
        with pytest.raises(ConfigError, match=r"has run select\(\)"):
            attempt()
    # A held lock is not given up because of it.
    assert lock.release() == "released"
    with pytest.raises(ConfigError, match="select"):
        Redlock(clients)
    for client in clients:
        client.close()


@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("command", [["SELECT 4"], [" select  4"], [b"SELECT", 4], ["select", 4]])
def test_however_it_selects_later_it_is_refused(
    cluster3: Cluster, kind: Any, command: list[Any]
) -> None:
    for transaction in (None, False, True):
        client, another = kind.from_url(cluster3.urls[0]), kind.from_url(cluster3.urls[0])
        pipeline = client.pipeline(transaction=bool(transaction))
        locks = Redlock([client])
        assert client.set("x", "1")
        assert client.get("x") == b"1"
        with locks.lock("r"):
            pass
        if transaction is not None:
            pipeline.execute_command(*command)
            (reply,) = pipeline.execute()
        else:
            reply = client.execute_command(*command)
        assert reply == another.execute_command(*command), "the reply is as always"
        with pytest.raises(ConfigError, match=r"has run select\(\)"):
            locks.lock("r").acquire()
        client.close()
        another.close()


async def selecting_in_one_text(url: str, kind: Any) -> None:
    client = kind.from_url(url)
    locks = aio.Redlock([client])
    async with locks.lock("r"):
        pass
    await client.execute_command("SELECT 4")
    with pytest.raises(ConfigError, match=r"has run select\(\)"):
        await locks.lock("r").acquire()
    await client.aclose()


@pytest.mark.parametrize("kind", ASYNCIO)
def test_a_client_of_asyncio_that_selects_in_one_text(cluster3: Cluster, kind: Any) -> None:
    asyncio.run(selecting_in_one_text(cluster3.urls[0], kind))


@pytest.mark.parametrize("kind", ALL)
def test_a_client_object_with_commands_of_its_own_is_refused(cluster3: Cluster, kind: Any) -> None:
    def prefix(client: Any) -> None:
        usual = client.execute_command
        client.execute_command = lambda name, *rest: usual(name, f"app:{rest[0]}", *rest[1:])

    client, later = kind.from_url(cluster3.urls[0]), kind.from_url(cluster3.urls[0])
    prefix(client)
    with pytest.raises(ConfigError, match="the object itself overrides execute_command, which"):
        Redlock([client])
    locks = Redlock([later])
    with locks.lock("r"):
        prefix(later)
    with pytest.raises(ConfigError, match="has another execute_command than when this Redlock"):
        locks.lock("r").acquire()


class Traced:
    """A function as wrapt makes it, for OpenTelemetry's instrumentation of one client."""

    def __init__(self, usual: Any, module: str) -> None:
        def trace(*arguments: Any, **options: Any) -> Any:
            return usual(*arguments, **options)

        trace.__module__ = module
        self._self_wrapper = trace
        self.__wrapped__ = usual

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._self_wrapper(*arguments, **options)


OPENTELEMETRY = "opentelemetry.instrumentation.redis"


@pytest.mark.parametrize("kind", ALL)
def test_a_client_object_that_is_traced_is_taken(cluster3: Cluster, kind: Any) -> None:
    client = kind.from_url(cluster3.urls[0])
    manager = aio.Redlock if kind in ASYNCIO else Redlock
    before = manager([client])
    for method in ("execute_command", "pipeline"):
        setattr(client, method, Traced(getattr(client, method), OPENTELEMETRY))
    after = manager([client])
    for locks in (before, after):
        locks._clients._watched[0].compare()
    others = [
        Traced(client.execute_command.__call__, OPENTELEMETRY),  # around something else
        Traced(kind(port=1).execute_command, OPENTELEMETRY),  # of another client
        Traced(kind.execute_command.__get__(client), "app.redis"),  # something else around it
    ]
    for other in others:
        client.execute_command = other
        with pytest.raises(ConfigError, match="another execute_command than when this Redlock"):
            after._clients._watched[0].compare()
        with pytest.raises(ConfigError, match="the object itself overrides execute_command"):
            manager([client])


@pytest.mark.parametrize("kind", ALL)
def test_settings_that_change_later_are_refused(cluster3: Cluster, kind: Any) -> None:
    client = kind.from_url(cluster3.urls[0])
    locks = Redlock([client])
    with locks.lock("r"):
        pass
    client.connection_pool.connection_kwargs["db"] = 3
    with pytest.raises(ConfigError, match="uses database 3 now, but its settings named database 0"):
        locks.lock("r").acquire()


async def selecting(url: str, kind: Any) -> None:
    earlier, later = kind.from_url(url), kind.from_url(url)
    await earlier.select(3)
    locks = aio.Redlock([earlier])
    attempts = [locks.lock(str(number)).acquire() for number in range(50)]
    for result in await asyncio.gather(*attempts, return_exceptions=True):
        assert isinstance(result, ConfigError)
        assert "has selected database 3" in str(result)
    with pytest.raises(ConfigError, match="has selected database 3"):
        await locks.lock("r").locked()
    with pytest.raises(ConfigError, match="has selected database 3"):
        await locks.lock("r").holder()
    await later.ping()
    locks = aio.Redlock([later])
    async with locks.lock("r"):
        await later.select(3)
    with pytest.raises(ConfigError, match=r"has run select\(\)"):
        async with locks.lock("r"):
            pass
    for client in (earlier, later):
        await client.aclose()


@pytest.mark.parametrize("kind", ASYNCIO)
def test_a_client_of_asyncio_that_selects_is_refused(cluster3: Cluster, kind: Any) -> None:
    asyncio.run(selecting(cluster3.urls[0], kind))


def test_a_connected_client_of_asyncio_is_refused_by_blocking_code(cluster3: Cluster) -> None:
    client = redis.asyncio.Redis.from_url(cluster3.urls[0])
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(client.ping())
        with pytest.raises(ConfigError, match="blocking code cannot ask it which database"):
            Redlock([client]).lock("r").acquire()
        loop.run_until_complete(client.aclose())
    finally:
        loop.close()
    # Each connection that is made from now on begins with the database of the settings.
    with Redlock([client]).lock("r"):
        pass


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", ["set", "get", "eval", "register_script", "pipeline"])
def test_a_client_that_overrides_what_locks_are_made_of_is_refused(
    cluster3: Cluster, kind: Any, name: str
) -> None:
    def prefixed(self: Any, key: str, *rest: Any) -> Any:
        return getattr(kind, name)(self, f"app:{key}", *rest)

    ours: Any = type("Prefixed", (kind,), {name: prefixed})
    with pytest.raises(ConfigError, match=f"its class Prefixed overrides {name}, which may put a"):
        Redlock([ours.from_url(cluster3.urls[0])])
    client = kind.from_url(cluster3.urls[0])
    locks = Redlock([client])
    with locks.lock("r"):
        setattr(client, name, prefixed.__get__(client))
    with pytest.raises(ConfigError, match=f"another {name} than when this Redlock was made"):
        locks.lock("r").acquire()
    with pytest.raises(ConfigError, match=f"the object itself overrides {name}, which may put"):
        Redlock([client])


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("name", ["send_command", "pack_command", "pack_commands"])
def test_a_client_whose_connections_pack_commands_is_refused(kind: Any, name: str) -> None:
    pool = kind(port=1).connection_pool
    usual = pool.connection_class
    pool.connection_class = type("Packing", (usual,), {name: getattr(usual, name)})
    with pytest.raises(ConfigError, match=f"its class Packing overrides {name}, which may put a"):
        Redlock([kind(connection_pool=pool)])


@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize("command", ["RESET", "reset", b"RESET", " reset "])
def test_a_client_that_resets_later_is_refused(
    cluster3: Cluster, kind: Any, command: str | bytes
) -> None:
    client = kind.from_url(f"{cluster3.urls[0]}/3")
    locks = Redlock([client])
    with locks.lock("r"):
        assert client.execute_command(command) in {b"RESET", "RESET"}
    with pytest.raises(ConfigError, match=r"has run reset\(\), on one of its connections"):
        locks.lock("r").acquire()
    client.close()


def by_another_client(client: Any) -> None:
    type(client)(connection_pool=client.connection_pool).select(3)


def on_a_connection_of_the_pool(client: Any) -> None:
    connection = client.connection_pool.get_connection("SELECT")
    connection.send_command("SELECT", 3)
    connection.read_response()
    client.connection_pool.release(connection)


def with_another_callback(client: Any) -> None:
    client.set_response_callback("SELECT", bool)
    client.select(3)


def with_other_callbacks(client: Any) -> None:
    client.response_callbacks = dict(client.response_callbacks)
    client.select(3)


def in_a_transaction_that_fails(client: Any) -> None:
    pipeline = client.pipeline(transaction=True)
    pipeline.execute_command("INCRBY", "x", "no number")
    pipeline.execute_command("SELECT", 3)
    with pytest.raises((redis.ResponseError, valkey.ResponseError)):
        pipeline.execute()


@pytest.mark.filterwarnings("ignore:Call to 'get_connection':DeprecationWarning")
@pytest.mark.parametrize("kind", BLOCKING)
@pytest.mark.parametrize(
    "select",
    [
        by_another_client,
        on_a_connection_of_the_pool,
        with_another_callback,
        with_other_callbacks,
        in_a_transaction_that_fails,
    ],
)
@pytest.mark.parametrize("is_used_before", [False, True])
def test_whoever_selects_later_on_a_connection_of_the_pool_is_noticed(
    cluster3: Cluster, kind: Any, select: Callable[[Any], None], is_used_before: bool
) -> None:
    client = kind.from_url(cluster3.urls[0])
    if is_used_before:
        client.ping()
    locks = Redlock([client])
    with locks.lock("r"):
        select(client)
    with pytest.raises(ConfigError, match=r"has run select\(\), on one of its connections"):
        locks.lock("r").acquire()
    client.close()


@pytest.mark.parametrize("kind", ALL)
def test_a_client_with_another_class_of_connections_is_refused(
    cluster3: Cluster, kind: Any
) -> None:
    client = kind.from_url(cluster3.urls[0])
    locks = Redlock([client])
    with locks.lock("r"):
        client.connection_pool.connection_class = kind().connection_pool.connection_class
    with pytest.raises(ConfigError, match="has another class of connections now"):
        locks.lock("r").acquire()


@pytest.mark.parametrize("kind", ALL)
def test_a_client_with_another_pool_is_refused(cluster3: Cluster, kind: Any) -> None:
    client, other = kind.from_url(cluster3.urls[0]), kind.from_url(cluster3.urls[1])
    locks = Redlock([client])
    with locks.lock("r"):
        client.connection_pool = other.connection_pool
    with pytest.raises(ConfigError, match="has another connection pool now"):
        locks.lock("r").acquire()


def test_a_hung_client_is_waited_for_no_longer_than_a_second(
    cluster3: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    clients = [redis.Redis.from_url(url) for url in cluster3.urls]
    for client in clients:
        client.ping()
    cluster3[1].pause()
    before = time.monotonic()
    with Redlock(clients) as locks, locks.lock("r", timeout=5):
        assert time.monotonic() - before < 2.0
    (warning,) = [it for it in told(caplog, "unknown-database") if cluster3.urls[1] in it]
    assert "no locks are taken on this node until it has" in warning
    cluster3[1].resume()


def test_credentials_that_change_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    client = redis.Redis(port=1, password="old-hunter2")
    locks = Redlock([client], unreachable_timeout=0.1)
    client.connection_pool.connection_kwargs["password"] = "new-hunter2"
    for name in ("a", "b"):
        with pytest.raises(QuorumUnreachable):
            locks.lock(name).acquire()
    (warning,) = told(caplog, "credentials-changed")
    assert warning.startswith("redis://localhost:1: its client has other credentials")
    assert "hunter2" not in warning


def test_a_clients_own_callback_still_reads_the_reply(cluster3: Cluster) -> None:
    client: Any = redis.Redis.from_url(cluster3.urls[0])
    read: Callable[..., str] = lambda reply: f"read {reply.decode()}"  # noqa: E731
    client.set_response_callback("SELECT", read)
    kept = [Redlock([client]) for _ in range(100)]
    assert client.select(3) == "read OK"
    for locks in kept:
        with pytest.raises(ConfigError, match=r"has run select\(\)"):
            locks.lock("r").acquire()
    client.close()
