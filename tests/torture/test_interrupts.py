"""Tests Ctrl-C at any moment of any operation: it is raised, no key stays, and all continues."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from quorlock import _async, _sync
from tests.python.programs import Program, interrupt_the_wait, is_prompt
from tests.support.cluster import Cluster
from tests.torture.counts import times

HEAD = """
    import asyncio, os, random, signal, sys, threading, time
    import quorlock, quorlock.aio
    nodes = os.environ["QUORLOCK_NODES"].split(",")
    locks = quorlock.Redlock(nodes, ttl=30, retry_delay=0.01, retry_jitter=0.005)
    tasks = quorlock.aio.Redlock(nodes, ttl=30, retry_delay=0.01, retry_jitter=0.005)
    def handler(*_): os.kill(os.getpid(), signal.SIGINT)
"""

#: What is done again and again; each gives back what it takes, as programs do.
WORKS = {
    "every call": """
        def work():
            lock = locks.lock("r", on_lost=print)
            try:
                lock.acquire()
                lease = lock.lease
                lease.extend()
                lease.check()
                lock.locked()
                lock.owned()
            finally:
                try: lock.release()
                except quorlock.LockNotHeld: pass
    """,
    "block": """
        def work():
            with locks.lock("r"), locks.lock(["s", "t"]):
                pass
    """,
    "decorated": """
        @locks.lock("r")
        def work():
            pass
    """,
    "contended": """
        def work():
            with locks.lock("r", ttl=0.03, auto_extend=False, raise_on_lost=False):
                with locks.lock("r"):
                    pass
    """,
    "asyncio": """
        async def use():
            async with tasks.lock("r"), tasks.lock("s"):
                await asyncio.sleep(0)
        def work():
            asyncio.run(use(), debug=False)
    """,
    "many tasks": """
        async def use(number):
            async with tasks.lock(f"r{number % 4}"):
                await asyncio.sleep(0)
        async def all_of_them():
            await asyncio.gather(*(use(number) for number in range(12)))
        def work():
            asyncio.run(all_of_them(), debug=False)
    """,
}


#: Python itself can be interrupted between __enter__ and its block, or before a `finally` has done
#: anything (once in thousands of rounds here): nobody has that lease then. Where it was interrupted
#: tells whose fault it is that a key stays behind.
BLAME = """
    import traceback, redis
    names = ["r", "s", "t", *(f"r{number}" for number in range(4))]
    gaps = []

    def has_begun(error):
        frame, line = list(traceback.walk_tb(error.__traceback__))[-1]
        return line != frame.f_code.co_firstlineno

    def left():
        try:
            return [name for name in names if locks.lock(name).locked()]
        except quorlock.QuorumUnreachable:
            return names  # a machine that is busy: nobody knows, and it is asked again

    def is_gap(error):
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        frames = [frame for frame in frames if frame.f_code is not handler.__code__]
        ours = [it.f_code.co_qualname for it in frames if "/quorlock/" in it.f_code.co_filename]
        # The first or last step of what a `with` calls; a release that was not begun.
        edges = {f"Lock.__{name}__" for name in ("enter", "exit", "aenter", "aexit")}
        is_edge = frames[-1].f_code.co_qualname in {*edges, "Lock.__call__.<locals>.locked"}
        is_unbegun = ours[:1] == ["Lock.release"] and "Lease.release" not in ours
        return not ours or ours[0] == "Lock.owned" or is_edge or is_unbegun

    def blame(error):
        limit = time.monotonic() + (1 if is_gap(error) else 10)
        while (keys := left()) and time.monotonic() < limit:
            time.sleep(0.001)
        if not keys:
            return
        if not is_gap(error):
            traceback.print_exception(error)
            sys.exit(f"{keys} were left behind")
        gaps.append(keys)
        for url in nodes: redis.Redis.from_url(url).delete(*names)
"""


@pytest.mark.parametrize("work", WORKS)
def test_at_any_moment(cluster3: Cluster, work: str) -> None:
    code = (
        HEAD
        + BLAME
        + WORKS[work].replace("\n    ", "\n")
        + f"""
    work()
    begun = time.perf_counter()
    for _ in range(5): work()
    span = (time.perf_counter() - begun) / 5 * 1.3
    interrupted = 0
    signal.signal(signal.SIGALRM, handler)
    for _ in range({times(60, 1500)}):
        # asyncio leaves its own handler there when it is itself interrupted at a bad moment.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # A timer, not a thread: it strikes also between two instructions of this one.
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, span))
            work()
            time.sleep(1)
        except KeyboardInterrupt as error:
            interrupted += 1
            blame(error)
        except asyncio.CancelledError as error:
            # asyncio forgets a Ctrl-C that comes between its handler and its first step.
            if has_begun(error): raise
            interrupted += 1
    print(interrupted, len(gaps))
    """
    )
    with Program(code, nodes=cluster3.urls) as program:
        status, told, errors = program.end(times(120, 900))
    assert status == 0, errors
    out, gaps = told.split()
    assert int(gaps) <= times(3, 15), "gaps of Python's own are rarer"
    # Python itself loses an exception that comes while it collects garbage ("ignored in ...").
    assert int(out) + errors.count("Exception ignored") >= times(60, 1500)
    assert int(out) > times(60, 1500) * 0.9
    # What asyncio itself left open is found, and told of, in whatever line allocates next.
    ours = [line for line in errors.splitlines() if "ResourceWarning: unclosed <socket" not in line]
    assert not any("/quorlock/" in line for line in ours), errors
    left_alone(cluster3)


#: Waits on nodes that hang, beside those of tests/python/test_cancelling.py.
HUNG = {
    "end of a block": """
        lock = locks.lock("r", node_timeout=10)
        lock.__enter__()
        def wait():
            lock.__exit__(None, None, None)
    """,
    "several": """
        def wait():
            locks.lock(["r", "s", "t"], node_timeout=10).acquire()
    """,
    "decorated": """
        @locks.lock("r", node_timeout=10)
        def wait():
            pass
    """,
    "one round": """
        def wait():
            locks.lock("r", node_timeout=10).acquire(blocking=False)
    """,
    "asyncio": """
        def wait():
            asyncio.run(tasks.lock("r", node_timeout=10).acquire(), debug=False)
    """,
    "asyncio block": """
        async def use():
            async with tasks.lock("r", node_timeout=10):
                print("held")
        def wait():
            asyncio.run(use(), debug=False)
    """,
}


@pytest.mark.parametrize("wait", HUNG)
def test_in_a_wait_on_hung_nodes(cluster3: Cluster, wait: str) -> None:
    code = (
        HEAD
        + HUNG[wait].replace("\n    ", "\n")
        + """
    locks.lock("warm").locked()
    print("ready", flush=True)
    input()
    print("waiting", flush=True)
    try:
        wait()
    except KeyboardInterrupt:
        print(time.monotonic(), flush=True)
    """
    )

    def interrupt() -> float:
        with Program(code, nodes=cluster3.urls) as program:
            sent = interrupt_the_wait(program, cluster3, hung=True)
            took = float(program.line()) - sent
            cluster3.heal()
            assert program.end(20)[0] == 0
        return took

    is_prompt(interrupt, within=0.5)
    left_alone(cluster3)


def test_early_in_a_long_wait(cluster3: Cluster) -> None:
    """Signals are looked for from the first moment on, not only once the wait has become long."""
    code = (
        HEAD
        + f"""
    held = locks.lock("r", auto_extend=True, on_lost=print)
    held.acquire()
    late = []
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    for number in range({times(40, 400)}):
        delay = 0.0001 + number % 40 * 0.002
        begun = time.monotonic()
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            locks.lock("r", timeout=5).acquire()
            late.append(delay)
        except KeyboardInterrupt:
            if time.monotonic() - begun > delay + 2: late.append(delay)
    held.release()
    print(late)
    """
    )
    with Program(code, nodes=cluster3.urls) as program:
        assert program.end(times(240, 600)) == (0, "[]\n", "")
    left_alone(cluster3)


def test_at_the_end_of_the_interpreter(cluster3: Cluster) -> None:
    """Withdrawals have a moment to get out; a Ctrl-C meanwhile does not turn that into a crash."""
    code = (
        HEAD
        + """
    import atexit
    lock = locks.lock("r", on_lost=print)
    lock.acquire()
    lock.release()
    # Registered last, so it runs first: it is the library's own hook that is interrupted.
    atexit.register(lambda: signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, 1e-3)))
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    """
    )
    for _ in range(times(6, 60)):
        with Program(code, nodes=cluster3.urls) as program:
            status, _, errors = program.end(20)
        # Python itself unlearns its handlers at last: the timer may end what is left of it.
        assert status in (0, -signal.SIGALRM)
        assert "Fatal" not in errors
        assert "panic" not in errors
    left_alone(cluster3)


@pytest.mark.parametrize(("module", "step"), [(_sync, "wait"), (_async, "finished")])
def test_between_the_steps_at_the_end_of_a_block(
    cluster3: Cluster, monkeypatch: pytest.MonkeyPatch, module: Any, step: str
) -> None:
    """What the random moments above meet once in hundreds of times."""
    lock = module.Redlock(cluster3.urls).lock("r", ttl=30)

    def strike(_: object) -> None:
        raise KeyboardInterrupt

    def is_held() -> None:
        assert lock.owned()
        monkeypatch.setattr(module, step, strike)

    def block() -> None:
        if module is _async:
            asyncio.run(_enter(lock, is_held), debug=False)
        else:
            with lock:
                is_held()

    with pytest.raises(KeyboardInterrupt) as caught:
        block()
    left_alone(cluster3)
    del caught  # whose traceback keeps all that was at work


async def _enter(lock: Any, body: Callable[[], None]) -> None:
    async with lock:
        body()


def left_alone(cluster: Cluster) -> None:
    """No lock key is left; what the library itself has nodes remember is no lock."""
    limit = time.monotonic() + 15
    while left := [
        key for node in cluster for key in list(node.keys()) if not key.startswith("quorlock:")
    ]:
        assert time.monotonic() < limit, f"left behind: {left}"
        time.sleep(0.01)
