"""Tests the end of the interpreter: no delay, no crash, and no thread for each lock."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.python.programs import Program, has_no_place, has_place, is_free, run, unexpected
from tests.support.cluster import Cluster
from tests.support.proxy import FaultProxy
from tests.support.wait import eventually

#: Seconds from the last line of the program to its end, on a shared machine.
QUICK = 1.0

ENDINGS = {
    "held": "lock = quorlock.redlock('r', ttl=30, auto_extend=True); lock.acquire()",
    "watched": "lock = quorlock.redlock('r', ttl=30, on_lost=print); lock.acquire()",
    "idle": "quorlock.redlock('r').locked()",
    "waiting thread": (
        "quorlock.redlock('r', ttl=30, auto_extend=True).acquire();"
        "threading.Thread(target=quorlock.redlock('r').acquire, daemon=True).start();"
        "time.sleep(0.05)"
    ),
    "busy threads": (
        "[threading.Thread(target=busy, args=(n,), daemon=True).start() for n in range(4)];"
        "time.sleep(0.1)"
    ),
    "busy loop": (
        "threading.Thread(target=lambda: asyncio.run(many()), daemon=True).start(); time.sleep(0.2)"
    ),
    "callback under way": (
        "started = threading.Event();"
        "lock = quorlock.redlock('r', ttl=0.1, on_lost=lambda: (started.set(), time.sleep(30)));"
        "lock.acquire(); started.wait()"
    ),
}

PROGRAM = """
    import asyncio, threading, time, quorlock, quorlock.aio

    def busy(number):
        while True:
            with quorlock.redlock(f"busy-{{number}}", on_lost=print):
                pass

    async def many():
        await asyncio.gather(*(forever(number) for number in range(20)))

    async def forever(number):
        while True:
            async with quorlock.redlock(f"many-{{number}}"):
                pass

    {ending}
    print(time.monotonic(), flush=True)
"""


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("nodes", ["healthy", "one refused", "one hung"])
def test_exit_is_quick_and_clean(cluster3: Cluster, ending: str, nodes: str) -> None:
    if nodes == "one refused":
        cluster3[0].kill()
    elif nodes == "one hung":
        cluster3[0].pause()
    # Several chances, for a machine that does other things too.
    took = [time_to_end(cluster3, ENDINGS[ending])]
    while took[-1] >= QUICK:
        assert len(took) < 5, took
        took.append(time_to_end(cluster3, ENDINGS[ending]))


def time_to_end(cluster: Cluster, ending: str) -> float:
    """How long a program that ends so takes after its last line."""
    with Program(PROGRAM.format(ending=ending), nodes=cluster.urls) as program:
        last = float(program.line())
        status, _, errors = program.end(30)
        took = time.monotonic() - last
    assert (status, unexpected(errors)) == (0, "")
    for server in cluster:
        if server.running and not server.paused:
            server.command("DEL", "r")
    return took


def test_what_is_given_up_just_before_the_end_is_withdrawn(cluster3: Cluster) -> None:
    for _ in range(5):
        run(
            """
            import random, time, quorlock
            with quorlock.redlock("warm"): pass
            plan = quorlock.redlock("r", ttl=30)._planned()[0]
            operation = plan.acquire(blocking=True, timeout=-1, block=False)
            end = time.perf_counter() + random.uniform(0.0001, 0.001)
            while time.perf_counter() < end: pass
            del operation
            """,
            nodes=cluster3.urls,
        )
        assert cluster3.values("r") == [None] * 3


def test_an_acquisition_given_up_at_the_end_leaves_no_key(cluster3: Cluster) -> None:
    run(
        """
        import asyncio, quorlock.aio

        async def main():
            async with quorlock.redlock("warm"): pass
            waiting = asyncio.create_task(quorlock.redlock("r").__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()

        asyncio.run(main())
        """,
        nodes=cluster3.urls,
    )
    assert cluster3.values("r") == [None] * 3


#: Who acquires while the interpreter ends.
ACQUIRERS = {
    "a thread": "threading.Thread(target=acquire, daemon=True).start(); time.sleep(wait)",
    "a loop that is left open": (
        "loop = asyncio.new_event_loop(); loop.run_until_complete(warm());"
        "task = loop.create_task(obtain()); loop.run_until_complete(asyncio.sleep(wait))"
    ),
    "uvloop that is left open": (
        "import uvloop; loop = uvloop.new_event_loop(); loop.run_until_complete(warm());"
        "task = loop.create_task(obtain()); loop.run_until_complete(asyncio.sleep(wait))"
    ),
    "a loop in a thread": (
        "loop = asyncio.new_event_loop();"
        "threading.Thread(target=loop.run_forever, daemon=True).start();"
        "asyncio.run_coroutine_threadsafe(warm(), loop).result();"
        "task = asyncio.run_coroutine_threadsafe(obtain(), loop); time.sleep(wait)"
    ),
    "a greenlet of gevent": "import gevent; gevent.spawn(acquire); gevent.sleep(wait)",
    "a greenlet of eventlet": (
        "import warnings; warnings.simplefilter('ignore');"
        "import eventlet; eventlet.spawn(acquire); eventlet.sleep(wait)"
    ),
}


@pytest.mark.parametrize("acquirer", ACQUIRERS)
def test_an_acquisition_under_way_at_the_end_leaves_no_key(
    cluster3: Cluster, fault_proxy: Callable[..., FaultProxy], acquirer: str
) -> None:
    proxies = [fault_proxy(server) for server in cluster3]
    for proxy in proxies:
        proxy.delay(0.015)
    for wait in (0.005, 0.012, 0.02):
        # What asyncio says of tasks that its loop has not finished is not looked at.
        with Program(
            f"""
            import asyncio, os, threading, time, quorlock, quorlock.aio
            wait = {wait}
            locks = quorlock.aio.Redlock(os.environ["QUORLOCK_NODES"].split(","))
            with quorlock.redlock("warm"): pass

            async def warm():
                async with locks.lock("warm"): pass

            async def obtain():
                lease = await locks.lock("r", ttl=60).acquire()
                print("told", flush=True)

            def acquire():
                lease = quorlock.redlock("r", ttl=60).acquire()
                print("told", flush=True)

            {ACQUIRERS[acquirer]}
            """,
            nodes=[proxy.url for proxy in proxies],
        ) as program:
            status, told, _ = program.end(20)
        assert status == 0
        if told == "":
            assert cluster3.values("r") == [None] * 3, wait
        for server in cluster3:
            server.command("DEL", "r")


def test_what_threads_have_won_but_not_been_told_of_leaves_no_key(cluster3: Cluster) -> None:
    output = run(
        """
        import atexit, sys, threading, time

        names = {f"won-{number}" for number in range(40)}
        begun, told, late = set(), set(), set()
        # After the package's own function; a thread that prints may be ended before it has.
        atexit.register(lambda: print(*told | late))
        import quorlock

        def acquire(name):
            lock = quorlock.redlock(name, ttl=60)
            ready.wait()
            begun.add(name)
            lock.acquire()
            told.add(name)

        with quorlock.redlock("warm"): pass
        ready = threading.Barrier(41)
        for name in names:
            threading.Thread(target=acquire, args=(name,), daemon=True).start()
        ready.wait()
        time.sleep(0.002)
        # They win while this thread lets no other run Python code.
        sys.setswitchinterval(60)
        until = time.monotonic() + 0.2
        while time.monotonic() < until: pass
        late = names - begun  # what they begin later may stay
        """,
        nodes=cluster3.urls,
    )
    left = {name for server in cluster3 for name in server.command("KEYS", "won-*")}
    assert left <= {*output.split()}


#: What another function, which is called at the end after the package's own, waits for.
AWAITED = {
    "a thread": (
        "thread = threading.Thread(target=acquire, daemon=True); thread.start(); end = thread.join"
    ),
    "a loop in a thread": (
        "loop = asyncio.new_event_loop();"
        "threading.Thread(target=loop.run_forever, daemon=True).start();"
        "end = asyncio.run_coroutine_threadsafe(obtain(), loop).exception"
    ),
    "a loop that runs again": (
        "loop = asyncio.new_event_loop(); task = loop.create_task(obtain());"
        "loop.run_until_complete(asyncio.sleep(0.1));"
        "end = lambda: loop.run_until_complete(asyncio.wait([task]))"
    ),
    "a greenlet of gevent": "import gevent; end = gevent.spawn(acquire).join; gevent.sleep(0.1)",
    "a greenlet of eventlet": (
        "import warnings; warnings.simplefilter('ignore');"
        "import eventlet; end = eventlet.spawn(acquire).wait; eventlet.sleep(0.1)"
    ),
}


@pytest.mark.parametrize("awaited", AWAITED)
def test_what_is_cancelled_at_the_end_is_told_to_who_waits_for_it(
    cluster3: Cluster, awaited: str
) -> None:
    for server in cluster3:
        server.command("SET", "r", "another", "PX", 60_000)
    with Program(
        f"""
        import asyncio, atexit, os, threading, time

        @atexit.register
        def finally_():
            try:
                end()
            except Exception as error:
                print(type(error).__name__)
            print("ended", flush=True)

        import quorlock, quorlock.aio
        locks = quorlock.aio.Redlock(os.environ["QUORLOCK_NODES"].split(","))

        async def obtain():
            await locks.lock("r", ttl=60).acquire()

        def acquire():
            quorlock.redlock("r", ttl=60).acquire()

        {AWAITED[awaited]}
        time.sleep(0.1)
        """,
        nodes=cluster3.urls,
    ) as program:
        status, out, _ = program.end(20)
    assert (status, out.strip().splitlines()[-1]) == (0, "ended")


def test_other_interpreters_of_the_process_are_refused(cluster3: Cluster) -> None:
    out = run(
        """
        import quorlock
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        execute = getattr(interpreters, "exec", None) or interpreters.run_string
        with quorlock.redlock("r"):
            execute(interpreters.create(), '''
        try:
            import quorlock
        except ImportError as error:
            print(error)
        ''')
        """,
        nodes=cluster3.urls,
    )
    assert "interpreter" in out


def test_a_hundred_locks_take_no_thread_each(cluster3: Cluster) -> None:
    out = run(
        """
        import os, quorlock
        def threads(): return len(os.listdir("/proc/self/task"))
        before = threads()
        locks = [quorlock.redlock(f"r{n}", auto_extend=True, on_lost=print) for n in range(100)]
        assert all(lock.acquire() for lock in locks)
        print(threads() - before)
        """,
        nodes=cluster3.urls,
    )
    assert int(out) == 3  # the engine, the one that calls back and the one that logs


def test_no_thread_is_started_once_the_interpreter_ends(cluster3: Cluster) -> None:
    # One that begins while the interpreter takes down the states of threads crashes the process.
    out = run(
        """
        import atexit, os, threading

        def finally_():  # registered before the package's own, it runs after that
            lock = locks.lock("r", on_lost=print)
            with lock:
                names = {thread.name for thread in threading.enumerate()}
            print(sorted(names & {"quorlock-callbacks", "quorlock-notices"}))

        atexit.register(finally_)
        import quorlock
        locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","))
        """,
        nodes=cluster3.urls,
    )
    assert out == "[]"


@pytest.mark.parametrize("ttl", ["5", "datetime.timedelta(seconds=5)", "'5'", "[]"])
def test_an_object_that_is_left_to_the_end_gets_an_error_of_python(
    cluster3: Cluster, ttl: str
) -> None:
    # Nothing can be imported any more. It was a panic.
    out = run(
        f"""
        import builtins, datetime, quorlock

        class Last:
            def __del__(self, locks=quorlock.redlock, ttl={ttl}):
                try:
                    locks("r", ttl=ttl).acquire()
                except ImportError as error:
                    print(error)

        builtins.last = Last()  # it goes when the modules have gone
        """,
        nodes=cluster3.urls,
    )
    assert "shutting down" in out
    eventually(lambda: is_free(cluster3, "r"))


def test_no_place_is_left_of_a_thread_that_waits(cluster3: Cluster) -> None:
    for server in cluster3:
        server.command("SET", "r", "another", "PX", 60_000)
    code = """
        import threading, quorlock
        threading.Thread(target=quorlock.redlock("r").acquire, daemon=True).start()
        input()
    """
    for _ in range(5):
        with Program(code, nodes=cluster3.urls) as program:
            eventually(lambda: has_place(cluster3, "r"))
            program.write("\n")
            assert program.end()[0] == 0
        assert has_no_place(cluster3, "r")
