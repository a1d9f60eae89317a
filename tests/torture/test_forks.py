"""Tests every kind of fork that programs use, with work under way in other threads and loops."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.python.programs import run
from tests.support.cluster import Cluster
from tests.torture.counts import times

HEAD = """
    import asyncio, gc, multiprocessing, os, sys, threading, time, warnings
    import quorlock, quorlock.aio
    warnings.simplefilter("ignore")  # newer Pythons warn of forks in threaded programs
    nodes = os.environ["QUORLOCK_NODES"].split(",")
    locks = quorlock.Redlock(nodes, retry_delay=0.005, retry_jitter=0.004)
    tasks = quorlock.aio.Redlock(nodes, retry_delay=0.005, retry_jitter=0.004)
    stopping = threading.Event()

    def run(work):
        return asyncio.run(work, debug=False)  # its warnings of slow steps are not the matter here

    def use(name):
        with locks.lock(name, ttl=5, timeout=30, on_lost=print) as lease:
            return lease.fencing_token

    async def use_async(name):
        async with tasks.lock(name, ttl=5, timeout=30) as lease:
            return lease.fencing_token

    def busy(number):
        while not stopping.is_set():
            use(f"busy-{number}")
            use("shared")

    def busy_loops(number):
        while not stopping.is_set():
            run(use_async(f"loop-{number}"))

    def busy_loop():
        async def forever(number):
            while not stopping.is_set():
                await use_async(f"task-{number}")
        async def main():
            await asyncio.gather(*(forever(number) for number in range(10)))
        run(main())

    def start(*calls):
        threads = [threading.Thread(target=call, args=arguments) for call, *arguments in calls]
        for thread in threads: thread.start()
        return threads

    def stop(threads):
        stopping.set()
        for thread in threads: thread.join()

    def child(work):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                work()
                status = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                os._exit(status)
        return pid

    def collect(pids, within=30):
        limit = time.monotonic() + within
        pids = set(pids)
        while pids:
            for pid in list(pids):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if ended:
                    assert status == 0, f"a child ended with {status}"
                    pids.remove(pid)
            if time.monotonic() > limit:
                import signal
                for pid in pids: os.kill(pid, signal.SIGABRT)  # tells where it hangs
                print(f"{len(pids)} children hang", file=sys.stderr)
                os._exit(3)
            time.sleep(0.002)
"""

STORMS = {
    "threads": "start(*((busy, n) for n in range(3)))",
    "a loop": "start((busy_loop,))",
    "new loops": "start(*((busy_loops, n) for n in range(3)))",
}


@pytest.mark.parametrize("storm", STORMS)
def test_children_work_whatever_the_parent_was_at(cluster3: Cluster, storm: str) -> None:
    out = run(
        HEAD
        + f"""
    use("warm")
    threads = {STORMS[storm]}
    def work():
        use("child")
        run(use_async(f"child-{{os.getpid()}}"))
        gc.collect()
    for _ in range({times(8, 150)}):
        collect([child(work) for _ in range(2)])
    stop(threads)
    print("done", use("shared") > 0)
    """,
        nodes=cluster3.urls,
        within=times(90, 600),
    )
    assert out == "done True"


def test_children_hear_of_their_own_notices(servers: Callable[..., Cluster]) -> None:
    """Forked while their parent's threads log, each has a thread of its own that does."""
    evicting = servers(1, flags=("--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl"))
    out = run(
        HEAD
        + f"""
    import logging
    logged = []
    class Handler(logging.Handler):
        def emit(self, record): logged.append((os.getpid(), record.notice))
    logging.getLogger("quorlock").addHandler(Handler())

    def managers(number):
        while not stopping.is_set():
            with quorlock.Redlock(nodes) as own:
                own.lock(f"own-{{number}}", ttl=1).acquire()
    threads = start(*((managers, n) for n in range(3)))
    def work():
        with quorlock.Redlock(nodes) as own, own.lock(f"child-{{os.getpid()}}"):
            limit = time.monotonic() + 20
            while (os.getpid(), "may-evict") not in logged:
                assert time.monotonic() < limit, "nobody logged"
                time.sleep(0.001)
    for _ in range({times(15, 300)}):
        collect([child(work) for _ in range(2)])
    stop(threads)
    print("done")
    """,
        nodes=evicting.urls,
        within=times(90, 600),
    )
    assert out == "done"


def test_a_child_finds_no_lock_of_the_engine_closed(cluster3: Cluster) -> None:
    """Whatever the threads of its parent were at, which it does not have: forks at any moment."""
    out = run(
        HEAD
        + f"""
    use("warm")
    threads = start(*((busy, n) for n in range(4)), (busy_loop,))
    for _ in range({times(25, 1500)}):
        collect([child(lambda: use(f"child-{{os.getpid()}}")) for _ in range(4)])
    stop(threads)
    print("done")
    """,
        nodes=cluster3.urls,
        within=times(90, 600),
    )
    assert out == "done"


def test_a_fork_while_a_loop_gets_its_mailbox(cluster3: Cluster) -> None:
    """The one moment at which another thread has the guard of the queues."""
    out = run(
        HEAD
        + """
    from quorlock import _loops
    inside, go_on = threading.Event(), threading.Event()

    class Slow(_loops.LoopRouter):
        def __init__(self, loop):
            if os.getpid() == parent:
                inside.set()
                go_on.wait()
            super().__init__(loop)

    parent, _loops.LoopRouter = os.getpid(), Slow
    threads = start((run, use_async("other")))
    inside.wait()
    pid = child(lambda: run(use_async("child")))
    collect([pid], 10)
    go_on.set()
    stop(threads)
    print("done")
    """,
        nodes=cluster3.urls,
        within=60,
    )
    assert out == "done"


def test_a_fork_from_a_thread_and_in_a_callback(cluster3: Cluster) -> None:
    out = run(
        HEAD
        + """
    pids = []
    thread = threading.Thread(target=lambda: pids.append(child(lambda: use("a"))))
    thread.start(); thread.join()
    lost = locks.lock("b", ttl=0.1, on_lost=lambda: pids.append(child(lambda: use("c"))))
    lost.acquire()
    async def in_a_loop():
        async with tasks.lock("d"):
            pids.append(child(lambda: use("e")))
    run(in_a_loop())
    limit = time.monotonic() + 10
    while len(pids) < 3 and time.monotonic() < limit: time.sleep(0.005)
    collect(pids)
    print(len(pids))
    """,
        nodes=cluster3.urls,
        within=60,
    )
    assert out == "3"


def test_children_that_end_leave_the_parents_locks_alone(
    cluster3: Cluster,
) -> None:
    out = run(
        HEAD
        + f"""
    lock = locks.lock("kept", ttl=3, auto_extend=True, on_lost=print)
    lock.acquire()
    for _ in range({times(5, 60)}):
        pid = os.fork()
        if pid == 0:
            use("own")
            sys.exit(0)  # atexit, finalizers and all
        collect([pid])
    last = lock.lease.validity
    while (left := lock.lease.validity) <= last:  # until it is renewed
        last = left
        time.sleep(0.01)
    print(lock.lease.check() > 0, lock.release())
    """,
        nodes=cluster3.urls,
        within=times(60, 300),
    )
    assert out == "True released"


def test_a_child_is_told_of_its_own_losses(
    cluster3: Cluster,
) -> None:
    out = run(
        HEAD
        + """
    def hears(name):
        told = threading.Event()
        lock = locks.lock(name, ttl=0.1, on_lost=told.set)
        lock.acquire()
        assert told.wait(10), "nobody was told"

    async def hears_async(name):
        told = asyncio.Event()
        lock = tasks.lock(name, ttl=0.1, on_lost=told.set)
        await lock.acquire()
        await asyncio.wait_for(told.wait(), 10)

    kept = locks.lock("kept", ttl=5, on_lost=print)  # the parent's thread for callbacks is there
    kept.acquire()
    collect([child(lambda: hears("a")), child(lambda: run(hears_async("b")))])
    hears("c")
    print("done")
    """,
        nodes=cluster3.urls,
        within=60,
    )
    assert out == "done"


def test_pools_of_processes(cluster3: Cluster) -> None:
    out = run(
        HEAD
        + f"""
    from concurrent.futures import ProcessPoolExecutor
    use("warm")
    threads = start((busy, 0))
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(3, mp_context=context) as pool:
        tokens = list(pool.map(use, ["pool"] * {times(20, 300)}))
    with context.Pool(3) as pool:
        tokens += pool.map(use, ["pool"] * {times(20, 300)})
    stop(threads)
    print(len(tokens) - len(set(tokens)))
    """,
        nodes=cluster3.urls,
        within=times(60, 300),
    )
    assert out == "0"
