"""Tests forked children: they make their own connections and never use their parent's leases."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from typing import Any

import pytest

from quorlock import Redlock, aio
from tests.python.programs import run
from tests.support.cluster import Cluster


def test_a_forked_child_leaves_its_parents_lease_alone(cluster3: Cluster) -> None:
    out = run(
        """
        import gc, os, quorlock
        locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","))
        lock = locks.lock("r", ttl=2, auto_extend=True)
        lock.acquire()
        lease = lock.lease
        token = lease.token
        with locks.lock("block", ttl=30) as inner:
            child = os.fork()
            if child == 0:
                problems = []
                for call in (lock.release, lease.release, lease.extend, lease.check):
                    try:
                        call()
                        problems.append(call)
                    except quorlock.LockNotHeld:
                        pass
                if lease.is_valid or lease.validity or lock.owned() or lease.token != token:
                    problems.append(lease)
                lock = lease = None
                gc.collect()
        # The child left the block, too.
        if child == 0:
            os._exit(1 if problems else 0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        import time
        before = locks.stats().extensions
        while locks.stats().extensions < before + 4:
            assert lease.is_valid
            time.sleep(0.01)
        print(status, lease.is_valid, lease.check() > 0, lock.release())
        """,
        nodes=cluster3.urls,
    )
    assert out == "0 True True released"


def test_a_child_that_leaves_a_parents_block_releases_nothing(cluster3: Cluster) -> None:
    out = run(
        """
        import os, sys, quorlock
        locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","))
        read, write = os.pipe()
        with locks.lock("r", ttl=30) as lease:
            child = os.fork()
            if child:
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                print(status, lease.check() > 0)
        if not child:
            sys.exit(3)  # an ordinary end: atexit runs
        """,
        nodes=cluster3.urls,
    )
    assert out == "3 True"


def test_a_forked_child_has_connections_of_its_own(cluster3: Cluster) -> None:
    out = run(
        """
        import os, threading, quorlock
        locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","))
        lock = locks.lock("counted", timeout=20, retry_delay=0.005, retry_jitter=0.004)

        def work(rounds):
            for _ in range(rounds):
                with lock:
                    with open(path) as file: count = int(file.read())
                    with open(path, "w") as file: file.write(str(count + 1))

        import tempfile
        path = tempfile.mktemp()
        with open(path, "w") as file: file.write("0")
        work(1)
        children = []
        for _ in range(4):
            child = os.fork()
            if child == 0:
                work(10)
                os._exit(0)
            children.append(child)
        work(10)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        with open(path) as file: print(statuses, file.read())
        os.unlink(path)
        """,
        nodes=cluster3.urls,
        within=60,
    )
    assert out == "[0, 0, 0, 0] 51"


def test_a_fork_during_a_wait_in_another_thread_is_harmless(cluster3: Cluster) -> None:
    out = run(
        """
        import os, threading, warnings, quorlock
        warnings.simplefilter("ignore")  # newer Pythons warn of forks in threaded programs
        locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","))
        with locks.lock("r", ttl=30):
            threads = [
                threading.Thread(target=locks.lock("r", on_lost=print).acquire, daemon=True)
                for _ in range(5)
            ]
            for thread in threads:
                thread.start()
            for _ in range(30):
                child = os.fork()
                if child == 0:
                    with locks.lock("other-%d" % os.getpid(), on_lost=print):
                        pass
                    os._exit(0)
                assert os.waitpid(child, 0)[1] == 0
        print("done")
        """,
        nodes=cluster3.urls,
        within=60,
    )
    assert out == "done"


def test_a_grandchild_works_too_and_asyncio_after_fork(cluster3: Cluster) -> None:
    out = run(
        """
        import asyncio, os, quorlock.aio
        locks = quorlock.aio.Redlock(os.environ["QUORLOCK_NODES"].split(","))

        async def work():
            async with locks.lock("r", ttl=5, timeout=5) as lease:
                return lease.is_valid

        print(asyncio.run(work()), flush=True)
        if not (child := os.fork()):
            print(asyncio.run(work()), flush=True)
            if not (child := os.fork()):
                print(asyncio.run(work()), flush=True)
                os._exit(0)
            os._exit(os.waitpid(child, 0)[1])
        assert os.waitpid(child, 0)[1] == 0
        print(asyncio.run(work()))
        """,
        nodes=cluster3.urls,
    )
    assert out.split() == ["True"] * 4


def test_a_child_forked_by_a_coroutine_is_told_so(cluster3: Cluster) -> None:
    out = run(
        """
        import asyncio, os
        from quorlock.aio import Redlock
        locks = Redlock(os.environ["QUORLOCK_NODES"].split(","), ttl=2)

        async def use():
            async with locks.lock("r", timeout=20):
                pass

        async def main():
            await use()
            child = os.fork()
            if child == 0:
                try:
                    await use()
                except RuntimeError as error:
                    os._exit(0 if "was forked inside a coroutine" in str(error) else 1)
                os._exit(2)
            told = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            child = os.fork()
            if child == 0:
                asyncio.run(use())
                os._exit(0)
            worked = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            await use()
            print(told, worked)

        asyncio.run(main())
        """,
        nodes=cluster3.urls,
    )
    assert out == "0 0"


#: What a child does that was forked by a thread, before it returns there.
IN_A_THREAD = {
    "nothing": "pass",
    "locks": "use()",
    "locks with callbacks": "use(on_lost=print)",
    "locks on a loop": "asyncio.run(use_async())",
    "leaves a thread behind": (
        "use(); threading.Thread(target=late, daemon=True).start(); started.wait()"
    ),
    "leaves a lock behind": "locks.lock('left', ttl=30, auto_extend=True).acquire()",
    "forks again": "use(); wait_for(fork(use))",
    "forks again in a thread": (
        "thread = threading.Thread(target=lambda: wait_for(fork(use)));"
        "thread.start(); thread.join()"
    ),
}


@pytest.mark.parametrize("deed", IN_A_THREAD)
def test_a_child_forked_by_a_thread_ends_when_it_returns(cluster3: Cluster, deed: str) -> None:
    out = run(
        f"""
        import asyncio, os, threading, time, quorlock.aio
        nodes = os.environ["QUORLOCK_NODES"].split(",")
        locks, tasks = quorlock.Redlock(nodes), quorlock.aio.Redlock(nodes)
        started, read_write = threading.Event(), os.pipe()

        def use(**options):
            with locks.lock("r", ttl=5, timeout=10, **options): pass
        async def use_async():
            async with tasks.lock("r", ttl=5, timeout=10): pass
        def late():
            started.set()
            time.sleep(0.5)  # work that ends after the main thread's
            use()
            os.write(read_write[1], b"late")
        def fork(work):
            child = os.fork()
            if child == 0:
                work()
                raise SystemExit  # the end of this thread, and of no interpreter
            return child
        def wait_for(child):
            until = time.monotonic() + 15
            while not (ended := os.waitpid(child, os.WNOHANG))[0]:
                assert time.monotonic() < until, "it never ends"
                time.sleep(0.01)
            assert ended[1] == 0, ended
        def deed(): {IN_A_THREAD[deed]}

        use()
        thread = threading.Thread(target=lambda: wait_for(fork(deed)))
        thread.start()
        thread.join()
        os.close(read_write[1])
        print("done", os.read(read_write[0], 9).decode())
        """,
        nodes=cluster3.urls,
        within=40,
    )
    assert out.split() == (["done", "late"] if deed == "leaves a thread behind" else ["done"])


def _count(locks: Redlock, value: Any, rounds: int) -> None:
    for _ in range(rounds):
        with locks.lock("shared", timeout=20, retry_delay=0.005, retry_jitter=0.004):
            value.value += 1


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_multiprocessing_passes_a_redlock_on(cluster3: Cluster, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    locks = Redlock(cluster3.urls)
    value = context.Value("i", 0, lock=False)
    workers = [context.Process(target=_count, args=(locks, value, 10)) for _ in range(3)]
    for worker in workers:
        worker.start()
    _count(locks, value, 10)
    for worker in workers:
        worker.join(30)
        assert worker.exitcode == 0
    assert value.value == 40


def test_a_pickled_redlock_connects_by_itself(cluster3: Cluster) -> None:
    locks = pickle.loads(pickle.dumps(Redlock([cluster3[0].url], ttl=5)))
    with locks.lock("r") as lease:
        assert lease.ttl == 5
    copied = pickle.loads(pickle.dumps(aio.Redlock(cluster3.urls)))
    assert isinstance(copied, aio.Redlock)
    assert [node.address for node in copied.nodes] == cluster3.urls
    assert os.getpid()
