"""Tests the test harness itself: a test that passes on a broken harness proves nothing."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.cluster import Cluster
from tests.support.proxy import FaultProxy
from tests.support.resp import Connection, ReplyError, encode, frame_end
from tests.support.servers import Options, Server
from tests.support.tls import Certificates

Servers = Callable[..., Cluster]
Proxies = Callable[..., FaultProxy]


def test_servers_are_independent_and_start_empty(cluster3: Cluster) -> None:
    cluster3[0].command("SET", "a", "1", "PX", 60_000)
    assert cluster3.values("a") == ["1", None, None]
    assert len({server.pid for server in cluster3}) == 3


def test_shared_servers_are_whole_again_for_the_next_test(cluster3: Cluster) -> None:
    assert cluster3.values("a") == [None, None, None]
    cluster3[0].kill()
    cluster3[1].pause()
    cluster3.heal()
    assert [server.command("PING") for server in cluster3] == ["PONG"] * 3


def test_paused_server_accepts_but_does_not_answer(cluster3: Cluster) -> None:
    server = cluster3[0]
    server.pause()
    with pytest.raises(TimeoutError):
        server.command("PING", timeout=0.1)
    server.resume()
    assert server.command("PING") == "PONG"


def test_killed_server_refuses_and_comes_back_on_its_port(servers: Servers) -> None:
    server = servers(1)[0]
    port, pid = server.port, server.pid
    server.command("SET", "a", "1")
    server.kill()
    with pytest.raises(ConnectionRefusedError):
        server.command("PING")
    server.restart()
    assert (server.port, server.command("GET", "a")) == (port, None)
    assert server.pid != pid


def test_appendonly_server_remembers_over_a_kill(servers: Servers) -> None:
    server = servers(1, appendonly=True)[0]
    server.command("SET", "a", "1")
    server.kill()
    server.restart()
    assert server.command("GET", "a") == "1"


def test_server_that_died_by_itself_is_healed(servers: Servers) -> None:
    cluster = servers(1)
    os.kill(cluster[0].pid, signal.SIGKILL)
    cluster.heal()
    assert cluster[0].command("PING") == "PONG"


def test_password_and_users(servers: Servers) -> None:
    protected = servers(1, password="p w/@:")[0]
    assert protected.command("PING") == "PONG"
    assert protected.url == f"redis://:p%20w%2F%40%3A@{protected.address}"
    with Connection(("127.0.0.1", protected.port)) as stranger, pytest.raises(ReplyError):
        stranger.command("GET", "a")

    users = {"app": "on >secret ~app:* &* +@all -@scripting", "default": "off"}
    server = servers(1, users=users)[0]
    with Connection(("127.0.0.1", server.port)) as app:
        app.command("AUTH", "app", "secret")
        app.command("SET", "app:a", "1")
        with pytest.raises(ReplyError, match="NOPERM"):
            app.command("SET", "b", "1")
        with pytest.raises(ReplyError, match="NOPERM"):
            app.command("EVAL", "return 1", 0)
    assert server.command("GET", "app:a") == "1"

    users_of_words = {"app": ("on", ">se cret", "~*", "&*", "+@all"), "other": "on >plain +@all"}
    server = servers(1, password="p w", users=users_of_words)[0]
    for user, password in [("default", "p w"), ("app", "se cret"), ("other", "plain")]:
        with Connection(("127.0.0.1", server.port)) as connection:
            assert connection.command("AUTH", user, password) == "OK"


def test_unix_socket(servers: Servers) -> None:
    server = servers(1, unix_socket=True)[0]
    with Connection(server.socket_path) as connection:
        assert connection.command("PING") == "PONG"


def test_replica_knows_its_master(servers: Servers) -> None:
    master = servers(1)[0]
    with Server(Options(replica_of=master)) as replica:
        assert "role:slave" in replica.command("INFO", "replication")
        with pytest.raises(ReplyError, match="READONLY"):
            replica.command("SET", "a", "1")


def test_no_server_outlives_the_process_that_started_it(tmp_path: Path) -> None:
    program = "from tests.support.servers import *; import time; s = Server(); print(s.pid, s.port)"
    child = subprocess.Popen(
        [sys.executable, "-c", program + "; import sys; sys.stdout.flush(); time.sleep(60)"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert child.stdout is not None
    pid, port = map(int, child.stdout.readline().split())
    os.kill(pid, 0)
    child.kill()
    child.wait()
    child.stdout.close()
    limit = time.monotonic() + 10
    while _answers(port, pid):
        assert time.monotonic() < limit, f"server {pid} is still there"
        time.sleep(0.01)


def _answers(port: int, pid: int) -> bool:
    try:
        with Connection(("127.0.0.1", port), timeout=1) as connection:
            return f"process_id:{pid}\r\n" in connection.command("INFO", "server")
    except OSError:
        return False


# -- the proxy ---------------------------------------------------------------------------------


def test_proxy_passes_everything_on(cluster3: Cluster, fault_proxy: Proxies) -> None:
    proxy = fault_proxy(cluster3[0])
    with Connection(("127.0.0.1", proxy.port)) as connection:
        assert connection.command("SET", "a", "x" * 1_000_000) == "OK"
        assert connection.command("GET", "a") == "x" * 1_000_000
    assert proxy.connections == 1


def test_delay_is_added_in_each_direction(cluster3: Cluster, fault_proxy: Proxies) -> None:
    proxy = fault_proxy(cluster3[0])
    with Connection(("127.0.0.1", proxy.port)) as connection:
        proxy.delay(0.1)
        start = time.monotonic()
        connection.command("PING")
        assert time.monotonic() - start >= 0.2
        proxy.heal()
        # Several chances, for a machine that does other things too.
        took = [0.1]
        while took[-1] >= 0.1:
            assert len(took) < 6, took
            start = time.monotonic()
            connection.command("PING")
            took.append(time.monotonic() - start)


@pytest.mark.parametrize("direction", ["both", "to_server", "to_client"])
def test_stall_holds_back_until_healed(
    cluster3: Cluster, fault_proxy: Proxies, direction: str
) -> None:
    proxy = fault_proxy(cluster3[0])
    with Connection(("127.0.0.1", proxy.port), timeout=0.2) as connection:
        connection.command("PING")
        proxy.stall(direction)
        with pytest.raises(TimeoutError):
            connection.command("SET", "a", direction)
        expected = direction if direction == "to_client" else None
        assert cluster3[0].command("GET", "a") == expected
        proxy.heal()
        assert connection.read() == "OK"
        assert cluster3[0].command("GET", "a") == direction


def test_reset_cuts_but_new_connections_are_accepted(
    cluster3: Cluster, fault_proxy: Proxies
) -> None:
    proxy = fault_proxy(cluster3[0])
    with Connection(("127.0.0.1", proxy.port)) as connection:
        connection.command("PING")
        proxy.reset()
        with pytest.raises(ConnectionResetError):
            connection.command("PING")
    with Connection(("127.0.0.1", proxy.port)) as connection:
        assert connection.command("PING") == "PONG"


def test_refuse_and_accept_again_on_the_same_port(cluster3: Cluster, fault_proxy: Proxies) -> None:
    proxy = fault_proxy(cluster3[0])
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        Connection(("127.0.0.1", proxy.port))
    proxy.heal()
    with Connection(("127.0.0.1", proxy.port)) as connection:
        assert connection.command("PING") == "PONG"


def test_half_close_is_an_orderly_end(cluster3: Cluster, fault_proxy: Proxies) -> None:
    proxy = fault_proxy(cluster3[0])
    with Connection(("127.0.0.1", proxy.port)) as connection:
        connection.command("PING")
        proxy.half_close()
        with pytest.raises(ConnectionError, match="closed the connection"):
            connection.read()


def test_cut_after_some_bytes_of_a_reply(cluster3: Cluster, fault_proxy: Proxies) -> None:
    proxy = fault_proxy(cluster3[0])
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
        proxy.cut_after(3)
        client.sendall(encode("PING"))
        received = b""
        with pytest.raises(ConnectionResetError):
            while chunk := client.recv(100):
                received += chunk
        assert received == b"+PO"


def test_swallowed_reply_is_exact_on_a_pipelined_connection(
    cluster3: Cluster, fault_proxy: Proxies
) -> None:
    proxy = fault_proxy(cluster3[0])
    swallowed = proxy.swallow_reply("key-two")
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
        client.sendall(encode("SET", "one", 1) + encode("SET", "key-two", 2) + encode("GET", "one"))
        received = b""
        with pytest.raises(ConnectionResetError):
            while chunk := client.recv(100):
                received += chunk
        assert received == b"+OK\r\n"
    swallowed.wait()
    assert cluster3[0].command("GET", "key-two") == "2"
    with Connection(("127.0.0.1", proxy.port)) as connection:
        assert connection.command("SET", "key-two", 3) == "OK"  # only the first was swallowed


def test_swallowing_does_not_count_pushed_messages(cluster3: Cluster, fault_proxy: Proxies) -> None:
    proxy = fault_proxy(cluster3[0])
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as client:
        client.sendall(encode("HELLO", 3) + encode("SUBSCRIBE", "news") + encode("SET", "a", 1))
        received = b""
        while not received.endswith(b"+OK\r\n"):
            received += client.recv(65536)
        cluster3[0].command("PUBLISH", "news", "hello")
        while b"hello" not in received:
            received += client.recv(65536)
        proxy.swallow_reply("key-b")
        client.sendall(encode("SET", "c", 1) + encode("SET", "key-b", 1))
        rest = b""
        with pytest.raises(ConnectionResetError):
            while chunk := client.recv(100):
                rest += chunk
        assert rest == b"+OK\r\n"


def test_expectation_tells_when_a_command_came_by(cluster3: Cluster, fault_proxy: Proxies) -> None:
    proxy = fault_proxy(cluster3[0])
    expected = proxy.expect("some-key")
    with Connection(("127.0.0.1", proxy.port)) as connection:
        connection.command("GET", "other")
        assert not expected.came
        with pytest.raises(TimeoutError):
            expected.wait(timeout=0.01)
        connection.command("GET", "some-key")
        expected.wait()


def test_server_gone_behind_the_proxy(servers: Servers, fault_proxy: Proxies) -> None:
    server = servers(1)[0]
    proxy = fault_proxy(server)
    server.kill()
    with Connection(("127.0.0.1", proxy.port)) as connection, pytest.raises(ConnectionError):
        connection.command("PING")


def test_tls_in_front_of_a_server(
    cluster3: Cluster, fault_proxy: Proxies, certs: Certificates
) -> None:
    proxy = fault_proxy(cluster3[0], tls=certs.server_context())
    assert proxy.url == f"rediss://127.0.0.1:{proxy.port}"
    trusting = ssl.create_default_context(cafile=certs.ca)
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as raw:
        with trusting.wrap_socket(raw, server_hostname="localhost") as client:
            client.sendall(encode("PING"))
            assert client.recv(100) == b"+PONG\r\n"
    distrusting = ssl.create_default_context(cafile=certs.other_ca)
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as raw:
        with pytest.raises(ssl.SSLCertVerificationError):
            distrusting.wrap_socket(raw, server_hostname="localhost")


@pytest.mark.parametrize(
    "item",
    [
        b"+OK\r\n",
        b":12\r\n",
        b"_\r\n",
        b"$-1\r\n",
        b"$0\r\n\r\n",
        b"*-1\r\n",
        b"*2\r\n$1\r\na\r\n:1\r\n",
        b"%1\r\n+a\r\n*0\r\n",
        b">2\r\n+a\r\n+b\r\n",
        b"|1\r\n+a\r\n+b\r\n:1\r\n",
    ],
)
def test_frames_are_found_whatever_the_chunks(item: bytes) -> None:
    assert all(frame_end(item[:length]) is None for length in range(len(item)))
    assert frame_end(item + b"+rest\r\n") == len(item)
