"""Tests that nodes call callers that wait, and that nothing is left of those that give up.

Order among callers is in test_fair.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from quorlock import LocksClosed, QuorumUnreachable, Redlock
from tests.python.apis import Api, async_apis, every_api
from tests.python.programs import Program
from tests.support.cluster import Cluster
from tests.support.peer_process import PeerProcess
from tests.support.servers import Server
from tests.support.wait import eventually

#: How many nodes each takes.
PEERS = {"redis-py": 1, "redlock-py": 3, "node-redlock": 3}
#: In seconds. A waiter looks again by itself after 3 s: a shorter wait shows that it was called.
SOON = 1.5
#: In seconds: a refresh, and what a busy machine adds.
NOTICED = 3 + SOON
#: Nobody who waits tries again by himself within a test.
UNHURRIED: dict[str, Any] = {"retry_delay": 60, "ttl": 60}
#: What a test does to the keys is none of their business.
UNGUARDED: dict[str, Any] = {"restart_guard": "off", "clock_guard": False}
#: Everything but what a server needs to call a caller; and the rights that it lacks then.
LIMITS = {
    "no channel": "resetchannels &elsewhere",
    "no subscribing": "-subscribe",
    "no publishing": "-publish",
    "no tracking": "-client|tracking",
    "no queues": "resetkeys ~r",
    "no look at queues": "-zrange -zrangebyscore",
    "no queue of two": "-zrank",
    "no leaving": "-zrange",
}


def places(server: Server) -> object:
    return server.command("ZCARD", "quorlock:queue:{r}")


def are_waiting(cluster: Sequence[Server], count: int = 1) -> bool:
    return all(places(server) == count for server in cluster)


def are_watching(cluster: Sequence[Server]) -> bool:
    """Whether the first in line would notice any change of the key."""
    infos = [str(server.command("INFO", "stats")) for server in cluster]
    return not any("tracking_total_keys:0\r" in info for info in infos)


def wait_for_waiter(cluster: Sequence[Server]) -> None:
    eventually(lambda: are_waiting(cluster) and are_watching(cluster))


def hold(cluster: Sequence[Server]) -> None:
    """Somebody who knows nothing of queues takes the lock."""
    for server in cluster:
        server.command("SET", "r", "another", "PX", 60_000)


def let_go(cluster: Sequence[Server]) -> None:
    for server in cluster:
        server.command("DEL", "r")


def connections(server: Server) -> int:
    gc.collect()  # an earlier test may have left a manager that nobody refers to
    lines = str(server.command("CLIENT", "LIST")).splitlines()
    return sum("cmd=client" not in line for line in lines)


@contextlib.contextmanager
def waiter(locks: Redlock) -> Iterator[Future[float]]:
    """A thread that waits for the lock; its future tells when it got it."""

    def wait() -> float:
        with locks.lock("r", timeout=60):
            return time.monotonic()

    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(wait)


@pytest.mark.parametrize("name", PEERS)
def test_a_release_by_another_library_wakes_the_waiter(
    servers: Callable[..., Cluster], peer: Callable[[str, Cluster], PeerProcess], name: str
) -> None:
    cluster = servers(PEERS[name])
    theirs = peer(name, cluster)
    with Redlock(cluster.urls, **UNHURRIED) as locks:
        for _ in range(3):
            assert theirs.acquire("r", ttl=60)
            with waiter(locks) as got:
                wait_for_waiter(cluster)
                released = time.monotonic()
                assert theirs.release("r")
                assert got.result(30) - released < SOON


def test_a_release_in_another_process_wakes_the_waiter(cluster3: Cluster) -> None:
    code = """
        import os, sys, quorlock
        locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","), ttl=60)
        for _ in range(3):
            with locks.lock("r"):
                print("held", flush=True)
                sys.stdin.readline()
            sys.stdin.readline()
    """
    with Program(code, nodes=cluster3.urls) as holder, Redlock(cluster3.urls, **UNHURRIED) as locks:
        for _ in range(3):
            assert holder.line() == "held"
            with waiter(locks) as got:
                wait_for_waiter(cluster3)
                released = time.monotonic()
                holder.write("\n")
                assert got.result(30) - released < SOON
            holder.write("\n")


def test_the_others_notice_that_the_first_was_killed(cluster3: Cluster) -> None:
    code = """
        import os, quorlock
        with quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","), ttl=60) as locks:
            locks.lock("r").acquire()
    """
    hold(cluster3)
    with Program(code, nodes=cluster3.urls) as first, Redlock(cluster3.urls, **UNHURRIED) as locks:
        wait_for_waiter(cluster3)
        with waiter(locks) as got:
            eventually(lambda: are_waiting(cluster3, 2))
            first.signal(signal.SIGKILL)
            killed = time.monotonic()
            wait_for_waiter(cluster3)
            # Its place would count for 10 s.
            assert time.monotonic() - killed < NOTICED
            released = time.monotonic()
            let_go(cluster3)
            assert got.result(30) - released < SOON


@pytest.mark.parametrize("change", ["DEL r", "PEXPIRE r 1", "FLUSHALL"])
@pytest.mark.parametrize("is_endless", [False, True])
def test_a_key_that_goes_wakes_the_waiter(cluster3: Cluster, change: str, is_endless: bool) -> None:
    with Redlock(cluster3.urls, **UNHURRIED, **UNGUARDED) as locks:
        hold(cluster3)
        if is_endless:
            for server in cluster3:
                server.command("PERSIST", "r")
        with waiter(locks) as got:
            wait_for_waiter(cluster3)
            changed = time.monotonic()
            for server in cluster3:
                server.command(*change.split())
            assert got.result(30) - changed < SOON


def test_a_hundred_threads_cost_one_place(cluster3: Cluster) -> None:
    with Redlock(cluster3.urls, **UNHURRIED) as locks, ThreadPoolExecutor(100) as pool:
        hold(cluster3)
        begun = threading.Barrier(101)

        def wait() -> None:
            begun.wait(30)
            with locks.lock("r", timeout=60):
                pass

        waiting = [pool.submit(wait) for _ in range(100)]
        begun.wait(30)
        wait_for_waiter(cluster3)
        assert [connections(server) for server in cluster3] == [2, 2, 2]
        assert locks.lock("r").waiters() == 1
        released = time.monotonic()
        let_go(cluster3)
        for one in waiting:
            one.result(30)
        assert time.monotonic() - released < 10
        eventually(lambda: are_waiting(cluster3, 0))
        assert locks.lock("r").waiters() == 0


@async_apis
@pytest.mark.parametrize("managers", [1, 20])
async def test_a_hundred_tasks_cost_one_place(api: Api, cluster3: Cluster, managers: int) -> None:
    several = [api.Redlock(cluster3.urls, **UNHURRIED) for _ in range(managers)]
    locks = several[0]
    hold(cluster3)

    async def wait(number: int) -> None:
        async with several[number % managers].lock("r", timeout=60):
            pass

    waiting = [asyncio.ensure_future(wait(number)) for number in range(100)]
    await asyncio.to_thread(wait_for_waiter, cluster3)
    assert await locks.lock("r").waiters() == 1
    let_go(cluster3)
    await asyncio.wait_for(asyncio.gather(*waiting), 10)
    await asyncio.to_thread(eventually, lambda: are_waiting(cluster3, 0))
    assert await locks.lock("r").waiters() == 0
    for locks in several:
        locks.close()


@every_api
async def test_waiters_of_several_managers_are_counted(api: Api, cluster3: Cluster) -> None:
    hold(cluster3)
    code = """
        import os, quorlock
        nodes = os.environ["QUORLOCK_NODES"].split(",")
        quorlock.Redlock(nodes, ttl=60).lock("r").acquire()
    """
    with contextlib.ExitStack() as started:
        for _ in range(3):
            started.enter_context(Program(code, nodes=cluster3.urls))
        eventually(lambda: are_waiting(cluster3, 3))
        locks = api.Redlock(cluster3.urls)
        assert await api(locks.lock("r").waiters()) == 3
        assert await api(locks.lock("other").waiters()) == 0
        await api(locks.close())


@every_api
async def test_waiters_are_not_told_by_too_few_nodes(
    api: Api, servers: Callable[..., Cluster]
) -> None:
    cluster = servers(3)
    locks = api.Redlock(cluster.urls)
    for server in cluster[:2]:
        server.kill()
    with pytest.raises(QuorumUnreachable):
        await api(locks.lock("r").waiters())
    await api(locks.close())


@async_apis
async def test_a_cancelled_waiter_leaves_nothing(api: Api, cluster3: Cluster) -> None:
    locks = api.Redlock(cluster3.urls, **UNHURRIED)
    hold(cluster3)
    for _ in range(3):
        waiting = asyncio.ensure_future(locks.lock("r").acquire())
        await asyncio.to_thread(wait_for_waiter, cluster3)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.to_thread(eventually, lambda: are_waiting(cluster3, 0))
    for server in cluster3:
        assert set(server.keys("quorlock:queue:*")) | set(server.keys("quorlock:alive:*")) == set()
    # It ends with its managers.
    locks.close()
    await asyncio.to_thread(eventually, lambda: all(connections(it) == 0 for it in cluster3))


@pytest.mark.parametrize("wait", ["push", "poll"])
@pytest.mark.parametrize("fair", [False, True], ids=["any-order", "fair"])
def test_the_timeout_of_a_wait_is_kept(cluster3: Cluster, wait: str, fair: bool) -> None:
    if fair and wait == "poll":
        pytest.skip("fair needs a place")
    with Redlock(cluster3.urls) as locks:
        hold(cluster3)
        lock = locks.lock("r", timeout=0.5, wait=wait, fair=fair)  # type: ignore[arg-type]
        begun = time.monotonic()
        assert not lock.acquire()
        assert 0.49 < time.monotonic() - begun < 0.5 + SOON
        eventually(lambda: are_waiting(cluster3, 0))


def test_who_polls_has_no_second_connection_and_no_place(cluster3: Cluster) -> None:
    with Redlock(cluster3.urls, wait="poll", retry_delay=0.02, retry_jitter=0.01) as locks:
        hold(cluster3)
        assert not locks.lock("r", timeout=0.5).acquire()
        assert [connections(server) for server in cluster3] == [1, 1, 1]
        for server in cluster3:
            assert not server.keys("quorlock:queue:*")
        with waiter(locks) as got:
            let_go(cluster3)
            got.result(30)


def test_one_lock_may_be_polled_beside_others(cluster3: Cluster) -> None:
    with Redlock(cluster3.urls) as locks:
        hold(cluster3)
        assert not locks.lock("r", timeout=0.3, wait="poll").acquire()
        assert [connections(server) for server in cluster3] == [1, 1, 1]
        assert not locks.lock("r", timeout=0.3).acquire()
        assert [connections(server) for server in cluster3] == [2, 2, 2]


def test_callers_that_are_called_do_not_wait_for_one_that_polls(cluster3: Cluster) -> None:
    """The first caller of the process polls, and does not look again within the test."""
    with ThreadPoolExecutor() as pool, Redlock(cluster3.urls, **UNHURRIED, **UNGUARDED) as locks:

        def wait(**style: Any) -> None:
            with locks.lock("r", timeout=60, **style):
                pass

        hold(cluster3)
        polls = pool.submit(wait, wait="poll")
        eventually(lambda: locks.stats().waits == 1)
        called = [pool.submit(wait), pool.submit(wait, fair=True)]
        eventually(lambda: are_waiting(cluster3, 2) and are_watching(cluster3))
        released = time.monotonic()
        let_go(cluster3)
        for one in called:
            one.result(30)
        assert time.monotonic() - released < SOON
        assert not polls.done()
        locks.close()
        with pytest.raises(LocksClosed):
            polls.result(30)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("fencing", [True, False])
def test_a_user_with_fewer_rights_still_gets_the_lock(
    servers: Callable[..., Cluster], limit: str, fencing: bool
) -> None:
    if fencing and limit == "no queues":
        pytest.skip("fencing needs keys of its own")
    cluster = servers(3, users={"app": f"on >secret ~* &* +@all {LIMITS[limit]}"})
    urls = [server.url_for("app", "secret") for server in cluster]
    with (
        Redlock(urls, fencing=fencing, **UNGUARDED) as locks,
        # Of another setting, so that it tells the waiters nothing within the process.
        Redlock(urls, fencing=fencing, ttl=20, **UNGUARDED) as others,
    ):
        hold(cluster)
        with waiter(locks) as got:
            time.sleep(0.3)  # so that it waits by what it has found out; nothing else shows that
            freed = time.monotonic()
            let_go(cluster)
            assert got.result(30) - freed < SOON
        for node in locks.nodes:
            assert node.state == "healthy"
            assert "ACL SETUSER" in str(node.detail), "what lacks is told"
        holder = others.lock("r")
        assert holder.acquire()
        with waiter(locks) as got:
            time.sleep(0.3)  # the same
            freed = time.monotonic()
            holder.release()
            assert got.result(30) - freed < SOON
