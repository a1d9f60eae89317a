"""Tests that managers with equal settings share a connection to a server, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.python.programs import Program, run
from tests.support.cluster import Cluster
from tests.support.servers import Server
from tests.support.tls import Certificates
from tests.support.wait import eventually

HEAD = """
    import gc, os, sys, threading, time
    import quorlock, quorlock.aio
    nodes = os.environ["QUORLOCK_NODES"].split(",")

    def files():
        return len(os.listdir("/proc/self/fd"))

    def use(locks, name="r"):
        with locks.lock(name, ttl=10, timeout=10):
            pass

    def pause():
        print("ready", flush=True)
        sys.stdin.readline()
"""


def connections(server: Server) -> list[str]:
    """What the server says of its clients, but for the one that asks."""
    lines = str(server.command("CLIENT", "LIST")).splitlines()
    return [line for line in lines if "cmd=client" not in line]


def counts(cluster: Sequence[Server]) -> list[int]:
    return [len(connections(server)) for server in cluster]


def program(code: str, cluster: Cluster) -> Program:
    return Program(HEAD + code, nodes=cluster.urls)


def test_many_managers_have_one_connection_to_each_server(servers: Callable[..., Cluster]) -> None:
    cluster = servers(3)
    code = """
    use(quorlock.Redlock(nodes))
    before = files()
    options = [{}, {"ttl": 3}, {"restart_guard": "off"}, {"clock_guard": False}]
    managers = [quorlock.Redlock(nodes, **options[number % 4]) for number in range(300)]
    managers += [quorlock.Redlock([f"{node}?key_prefix=app:" for node in nodes])]
    threads = [
        threading.Thread(target=use, args=(locks, f"r{number}"))
        for number, locks in enumerate(managers)
    ]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(files() - before, flush=True)
    pause()
    """
    with program(code, cluster) as made:
        assert made.line() == "0"
        assert made.line() == "ready"
        assert counts(cluster) == [1, 1, 1]
        made.write("\n")


def test_managers_made_and_dropped_leave_nothing_open(servers: Callable[..., Cluster]) -> None:
    cluster = servers(3)
    out = run(
        HEAD
        + """
    gc.disable()
    use(quorlock.Redlock(nodes))
    before, most = files(), 0
    for number in range(10_000):
        locks = quorlock.Redlock(nodes)
        # Only a collection would find it.
        circle = [locks]
        circle.append(circle)
        # As costly a one as there is: it has connected.
        if number % 10 == 0: use(locks)
        most = max(most, files())
    print(most - before)
    """,
        nodes=cluster.urls,
        within=60,
    )
    assert out == "0"


def test_another_login_or_database_has_another_connection(servers: Callable[..., Cluster]) -> None:
    cluster = servers(1, users=dict.fromkeys("ab", "on >one >two ~* &* +@all"))
    address = cluster[0].address
    places = ["", "a:one@", "a:two@", "b:one@"]
    urls = [f"redis://{place}{address}" for place in places] + [f"redis://{address}/1"]
    code = f"""
    kept = []
    for url in {urls!r}:
        for _ in range(3):
            kept.append(quorlock.Redlock([url]))
            use(kept[-1])
    pause()
    """
    with program(code, cluster) as made:
        assert made.line() == "ready"
        assert counts(cluster) == [len(urls)]
        made.write("\n")


def test_tls_has_another_connection(
    servers: Callable[..., Cluster], fault_proxy: Any, certs: Certificates
) -> None:
    cluster = servers(1)
    proxy = fault_proxy(cluster[0], tls=certs.server_context())
    strict = f"rediss://{proxy.address}?ssl_ca_certs={certs.ca}"
    lax = f"rediss://{proxy.address}?ssl_cert_reqs=none"
    code = f"""
    kept = [quorlock.Redlock([url]) for url in [{strict!r}, {lax!r}] * 3]
    for locks in kept: use(locks)
    pause()
    """
    with program(code, cluster) as made:
        assert made.line() == "ready"
        assert counts(cluster) == [2]
        made.write("\n")


def test_who_closes_leaves_the_others_alone(servers: Callable[..., Cluster]) -> None:
    cluster = servers(3)
    code = """
    one, two, three = quorlock.Redlock(nodes), quorlock.aio.Redlock(nodes), quorlock.Redlock(nodes)
    held = three.lock("r", ttl=1, auto_extend=True)
    held.acquire()
    ends = []

    def wait():
        try:
            one.lock("r", timeout=5).acquire()
        except Exception as error:
            ends.append(type(error).__name__)

    waiting = threading.Thread(target=wait)
    waiting.start()
    pause()
    one.close()
    two.close()
    waiting.join()
    before = three.stats().extensions
    while three.stats().extensions < before + 4:
        assert held.owned()
        time.sleep(0.01)
    print(ends, held.release(), flush=True)
    use(three)
    pause()
    three.close()
    pause()
    """
    with program(code, cluster) as made:
        assert made.line() == "ready"
        before = [line.split(" ")[0] for server in cluster for line in connections(server)]
        assert len(before) == 3
        made.write("\n")
        line = made.line()
        assert re.fullmatch(r"\['LocksClosed'\] released", line), line
        assert made.line() == "ready"
        after = [line.split(" ")[0] for server in cluster for line in connections(server)]
        assert after == before
        # The last to close ends them at once: nothing else would within these seconds.
        made.write("\n")
        assert made.line() == "ready"
        eventually(lambda: counts(cluster) == [0, 0, 0], within=3)
        made.write("\n")


def test_a_dropped_manager_keeps_its_connection_five_seconds(
    servers: Callable[..., Cluster],
) -> None:
    cluster = servers(1)
    code = """
    use(quorlock.Redlock(nodes))
    pause()
    use(quorlock.Redlock(nodes))
    pause()
    """
    with program(code, cluster) as made:
        assert made.line() == "ready"
        before = connections(cluster[0])[0].split(" ")[0]
        made.write("\n")
        assert made.line() == "ready"
        assert [line.split(" ")[0] for line in connections(cluster[0])] == [before]
        eventually(lambda: counts(cluster) == [0])
        made.write("\n")


@pytest.mark.parametrize("dropped", [False, True])
def test_a_forked_child_shares_none_with_its_parent(
    servers: Callable[..., Cluster], dropped: bool
) -> None:
    cluster = servers(3)
    code = f"""
    kept = [quorlock.Redlock(nodes) for _ in range(5)]
    for locks in kept: use(locks)
    if {dropped}:
        # Unused, but there yet.
        del locks
        kept.clear()
    pause()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        kept += [quorlock.Redlock(nodes) for _ in range(5)]
        for locks in kept: use(locks, "child")
        print("ready", flush=True)
        os.read(read, 1)
        os._exit(0)
    sys.stdin.readline()
    for locks in kept: use(locks)
    use(quorlock.Redlock(nodes))
    os.write(write, b"x")
    print(os.waitpid(child, 0)[1], flush=True)
    pause()
    """

    def names() -> list[set[str]]:
        return [{line.split(" ")[0] for line in connections(server)} for server in cluster]

    with program(code, cluster) as made:
        assert made.line() == "ready"
        before = names()
        assert [len(each) for each in before] == [1, 1, 1]
        made.write("\n")
        assert made.line() == "ready"
        both = names()
        assert [len(each) for each in both] == [2, 2, 2]
        assert all(old <= new for old, new in zip(before, both, strict=True))
        made.write("\n")
        assert made.line() == "0"
        assert made.line() == "ready"
        # The parent has gone on with its own, and the child's have ended with it.
        eventually(lambda: names() == before)
        made.write("\n")
