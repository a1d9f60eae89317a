"""Tests what is accepted as a node: addresses, dicts, and clients of redis-py and valkey-py."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import unittest.mock
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.cluster
import redis.sentinel
import valkey
import valkey.asyncio

from quorlock import ConfigError, ConfigTypeError, QuorumUnreachable, Redlock, aio
from tests.python.programs import run
from tests.support.cluster import Cluster
from tests.support.tls import Certificates

#: Keyword arguments of clients that decide which server or which keys they use, by code.
NOT_FOLLOWED = (
    "connection_pool",
    "credential_provider",
    "redis_connect_func",
    "valkey_connect_func",
)
#: Keyword arguments of clients that are parts of a node here, too.
KNOWN = {
    *("host", "port", "db", "username", "password", "unix_socket_path", "ssl"),
    *("ssl_ca_certs", "ssl_ca_data", "ssl_certfile", "ssl_keyfile"),
    *("ssl_cert_reqs", "ssl_check_hostname"),
}


def works(*nodes: Any) -> list[str]:
    """Locks on each node; returns their addresses as they are shown."""
    locks = Redlock(list(nodes))
    with locks.lock("r", ttl=5, timeout=5) as lease:
        assert sum(vote.outcome == "granted" for vote in lease.votes) > len(nodes) // 2
    return [node.address for node in locks.nodes]


def test_addresses_are_taken_in_every_form(cluster3: Cluster) -> None:
    ports = [int(server.address.rpartition(":")[2]) for server in cluster3]
    expected = [f"redis://127.0.0.1:{port}" for port in ports]
    assert works(*cluster3.urls) == expected
    assert works(*(server.address for server in cluster3)) == expected
    assert works(*(("127.0.0.1", port) for port in ports)) == expected
    assert works(*({"host": "127.0.0.1", "port": port} for port in ports)) == expected
    assert works({"host": "127.0.0.1", "port": str(ports[0]), "db": 3}) == [expected[0] + "/3"]


@pytest.mark.parametrize(
    "kind", [redis.Redis, redis.asyncio.Redis, valkey.Valkey, valkey.asyncio.Valkey]
)
def test_the_settings_of_clients_are_read(servers: Any, kind: Any) -> None:
    cluster = servers(1, password="secret", unix_socket=True)
    host, _, port = cluster[0].address.rpartition(":")
    over_tcp = kind(host=host, port=int(port), password="secret", db=2)
    assert works(over_tcp) == [f"redis://{cluster[0].address}/2"]
    by_url = kind.from_url(f"redis://:secret@{cluster[0].address}/1")
    assert works(by_url) == [f"redis://{cluster[0].address}/1"]
    by_path = kind(unix_socket_path=cluster[0].socket_path, password="secret")
    assert works(by_path)[0].startswith("unix://")
    wrong = Redlock([kind(host=host, port=int(port), password="hunter2")], unreachable_timeout=0.2)
    with pytest.raises(QuorumUnreachable) as refused:
        wrong.lock("r").acquire()
    assert "hunter2" not in str(refused.value) + repr(wrong)


@pytest.mark.parametrize(
    "kind", [redis.Redis, redis.asyncio.Redis, valkey.Valkey, valkey.asyncio.Valkey]
)
def test_tls_settings_of_clients_are_read(
    cluster3: Cluster, fault_proxy: Any, certs: Certificates, kind: Any
) -> None:
    proxy = fault_proxy(cluster3[0], tls=certs.server_context())
    host, _, port = proxy.address.rpartition(":")
    place = {"host": host, "port": int(port), "ssl": True}
    trusted = kind(**place, ssl_ca_certs=certs.ca)
    assert works(trusted) == [f"rediss://{proxy.address}"]
    assert works(kind(**place, ssl_cert_reqs="none", ssl_check_hostname=False))
    assert works({**place, "ssl_ca_certs": certs.ca})
    stranger = Redlock([kind(**place)], unreachable_timeout=0.5)
    with pytest.raises(QuorumUnreachable):
        stranger.lock("r").acquire()


@pytest.mark.parametrize(
    "kind", [redis.Redis, redis.asyncio.Redis, valkey.Valkey, valkey.asyncio.Valkey]
)
def test_a_dict_is_read_as_a_client_made_of_it(cluster3: Cluster, kind: Any) -> None:
    host, _, port = cluster3[0].address.rpartition(":")
    place = {"host": host, "port": int(port), "db": 2, "decode_responses": True}
    expected = [f"{cluster3[0].url}/2"]
    assert works(kind(**place).connection_pool.connection_kwargs) == expected
    names = inspect.signature(kind.__init__).parameters.keys() - {"self", *NOT_FOLLOWED, *KNOWN}
    # Whatever its value is: a name that the client knows was not misspelt.
    unimportant: dict[str, Any] = dict.fromkeys(names, object())
    assert works({**unimportant, **place, "ssl": False, "ssl_cert_reqs": ssl.CERT_NONE}) == expected


def test_a_dict_names_a_unix_socket_as_clients_do(servers: Any) -> None:
    path = servers(1, unix_socket=True)[0].socket_path
    shown = works({"host": "localhost", "port": 6379, "unix_socket_path": path})
    assert shown == [f"unix://{path}"]


def test_a_dict_that_leads_elsewhere_is_refused() -> None:
    secret = redis.UsernamePasswordCredentialProvider("user", "hunter2")
    unable = {"ssl_ca_path": "/etc/ca", "ssl_password": "hunter2", "ssl_validate_ocsp": True}
    for name, value in {**dict.fromkeys(NOT_FOLLOWED, print), **unable}.items():
        given = {"host": "a", "ssl": True, name: secret if "provider" in name else value}
        with pytest.raises(ConfigTypeError, match="pass its address instead") as refused:
            Redlock([given])
        assert "hunter2" not in str(refused.value)


def test_what_cannot_be_read_from_a_client_is_refused() -> None:
    sentinel: Any = redis.sentinel.Sentinel([("localhost", 26379)])  # type: ignore[no-untyped-call]
    provider = redis.UsernamePasswordCredentialProvider("user", "secret")
    cluster = redis.cluster.RedisCluster.__new__(redis.cluster.RedisCluster)  # connects to nothing
    for client, reason in [
        (sentinel.master_for("main"), "Sentinel"),
        (redis.Redis(credential_provider=provider), "credential provider"),
        (cluster, "not independent"),
        (redis.Redis().pipeline(), "a pipeline"),
        (redis.asyncio.Redis().pipeline(), "a pipeline"),
        (unittest.mock.Mock(spec=["get"]), "no connection settings"),
        (object(), "a redis-py client, not object"),
    ]:
        with pytest.raises(ConfigTypeError) as refused:
            Redlock([client])
        assert reason in str(refused.value)
        assert "secret" not in str(refused.value)


class Prefixed(redis.Redis):
    """What wrappers do that put a prefix before keys."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        return super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


class Wrapper:
    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class Plain(redis.Redis):
    """A class of one's own that leaves the commands alone."""


@pytest.mark.parametrize("kind", [redis.Redis, valkey.Valkey])
def test_the_database_that_a_client_uses_now_counts(cluster3: Cluster, kind: Any) -> None:
    host, _, port = cluster3[0].address.rpartition(":")
    place: dict[str, Any] = {"host": host, "port": int(port)}
    client = kind(**place)
    client.connection_pool.connection_kwargs["db"] = 3
    assert works(client) == [f"{cluster3[0].url}/3"]
    client.ping()  # made in database 3
    client.connection_pool.connection_kwargs["db"] = 2
    selected = kind(**place, single_connection_client=True)
    selected.select(3)
    place[f"{kind.__name__.lower()}_connect_func"] = print
    for used, reason in [
        (client, "its settings were changed after it had connected"),
        (selected, "keeps one connection, on which select() may have run"),
        (kind(**place), "a function of yours sets up its connections"),
    ]:
        with pytest.raises(ConfigError, match="cannot tell which database") as refused:
            Redlock([used])
        assert reason in str(refused.value)
        assert "pass its address instead, with the database" in str(refused.value)
        used.close()


async def used_alone(url: str, *, use: bool) -> redis.asyncio.Redis:
    client = redis.asyncio.Redis.from_url(url, single_connection_client=True)
    if use:
        await client.select(3)
        with pytest.raises(ConfigError, match="cannot tell which database"):
            aio.Redlock([client])
    await client.aclose()
    return client


def test_an_asyncio_client_of_one_connection_is_refused(
    cluster3: Cluster,
) -> None:
    asyncio.run(used_alone(cluster3[0].url, use=True))
    assert works(asyncio.run(used_alone(cluster3[0].url, use=False))) == [cluster3[0].url]


def test_clients_that_may_put_a_prefix_before_keys_are_refused() -> None:
    for client, reason in [
        (Prefixed(), "its class Prefixed overrides execute_command"),
        (Wrapper(redis.Redis()), "wraps one"),
    ]:
        with pytest.raises(ConfigError, match="which keys") as refused:
            Redlock([client])
        assert reason in str(refused.value)
        assert "key_prefix=app:" in str(refused.value)
    assert repr(Redlock([Plain(db=4)])) == "<Redlock redis://localhost:6379/4>"


def test_a_password_that_a_client_was_given_later_counts(servers: Any) -> None:
    server = servers(1, password="secret")[0]
    host, _, port = server.address.rpartition(":")
    client = redis.Redis(host=host, port=int(port), password="outdated")
    client.connection_pool.connection_kwargs["password"] = "secret"
    assert works(client) == [f"redis://{server.address}"]


def test_clients_are_never_closed(cluster3: Cluster) -> None:
    clients = [redis.Redis.from_url(url, client_name="theirs") for url in cluster3.urls]
    for client in clients:
        client.ping()
    with Redlock(clients) as locks, locks.lock("r"):
        pass
    locks.close()
    for client in clients:
        # The very connection that it had before.
        assert len(client.client_list()) >= 1
        assert client.connection_pool._available_connections[0]._sock is not None
        assert client.client_info()["name"] == "theirs"
        client.close()


@pytest.mark.parametrize("kind", [Redlock, aio.Redlock])
def test_bad_nodes_are_refused_with_a_sentence(kind: Any) -> None:
    for nodes, text in [
        ([], "no nodes were given"),
        (["redis://a", "redis://a:6379"], "named twice"),
        (["redis://a", "redis://a"], "named twice"),
        (
            ["redis://a", "redis://A./1"],
            "redis://a:6379 and redis://A.:6379/1 are one and the same",
        ),
        (["localhost", "127.0.0.1"], "redis://localhost:6379 and redis://127.0.0.1:6379 are one"),
        (["redis://:pw@[::1:123"], "unusable character"),
        (["redis://a:6379,b:6379"], "several addresses; pass a list, one address each"),
        (["redis://:pw@a,redis://:pw@b"], "several addresses; pass a list, one address each"),
        (["a:b:c"], "colons but is no IPv6 address"),
        ([("a:1", 6379)], "colons but is no IPv6 address"),
        (["http://a"], "scheme"),
        ([("a", 0)], "port 0"),
        ([("a", 70000)], "port of a node must be a number from 0 to 65535"),
        ([("a", 1, 2)], r"\(host, port\), not 3"),
        ([{"hots": "a"}], "no setting 'hots'"),
        ([{"host": "a", "path": "/b"}], "either a host or the path"),
        ([{"host": 5}], "host must be a str"),
        ([{"host": "a", "ssl": "yes"}], "ssl must be True or False"),
        ([None], "not NoneType"),
        ([b"redis://a"], "not bytes"),
        ([5], "not int"),
        ("redis://a:6379", "given as a list"),
        ({"host": "a"}, "given as a list"),
        (5, "given as a list"),
    ]:
        with pytest.raises(ConfigError, match=text):
            kind(nodes)


def test_no_password_is_ever_shown() -> None:
    for node in (
        "redis://user:hunter2@host:1",
        {"host": "host", "port": 1, "password": "hunter2"},
        redis.Redis(host="host", port=1, password="hunter2"),
    ):
        locks = Redlock([node])
        shown = [repr(locks), repr(locks.nodes), repr(locks.lock("r"))]
        assert "hunter2" not in "".join(shown)
    for wrong in ("redis://user:hunter2@host:port", {"host": "", "password": "hunter2"}):
        with pytest.raises(ConfigError) as refused:
            Redlock([wrong])
        assert "hunter2" not in str(refused.value)


def test_nothing_is_started_before_the_first_operation() -> None:
    out = run(
        """
        import os, sys, quorlock
        locks = quorlock.Redlock(["redis://127.0.0.1:1"])
        lock = locks.lock("r")
        repr(lock), locks.nodes, lock.owned(), lock.lease
        print(len(os.listdir("/proc/self/task")), "asyncio" in sys.modules)
        """,
        nodes=[],
    )
    assert out == "1 False"


@pytest.mark.parametrize("kind", [Redlock, aio.Redlock])
def test_what_a_constructor_refused_is_shown_and_closed_safely(kind: Any) -> None:
    class Kept(kind):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            made.append(self)
            super().__init__(*args, **options)

    made: list[Any] = []
    connected: Any = unittest.mock.Mock(spec=[])
    for nodes, options in [
        (["redis://:hunter2@h:99999"], {}),
        (["memory://"], {"ttl": -1}),
        ([connected], {}),
        (["memory://"], {"on_event": 1}),
    ]:
        with pytest.raises(ConfigError):
            Kept(nodes, **options)
        half = made.pop()
        assert (repr(half), half.is_closed) == ("<Kept refused>", True)
        half.close()
        for use in (
            lambda: half.nodes,  # noqa: B023
            lambda: half.lock("r"),  # noqa: B023
            lambda: half.lock("r", timeout=1),  # noqa: B023
            half.stats,
        ):
            with pytest.raises(ConfigError, match="was refused when it was made"):
                use()
        with pytest.raises(AttributeError, match="'Kept' object has no attribute 'locks'"):
            half.locks  # noqa: B018
    with pytest.raises(AttributeError, match="has no attribute '_lock'"):
        kind(["memory://"])._lock  # noqa: B018
