"""Tests gevent and eventlet: a wait for a lock never blocks the hub."""

from __future__ import annotations

import signal
import textwrap
import time
from collections.abc import Callable

import pytest

from quorlock import Redlock
from tests.python.programs import Program, has_place, is_free, run
from tests.support.cluster import Cluster
from tests.support.wait import eventually

COMMON = """
    import time, quorlock
    ticks = 0

    def tick():
        global ticks
        while True:
            ticks += 1
            sleep(0.01)

    spawn(tick)
    holder = quorlock.redlock("r", ttl=2)
    assert holder.acquire()
    start, trusted = time.monotonic(), holder.lease.validity
    assert quorlock.redlock("r").acquire(timeout=20)     # waits until the holder's lease is over
    assert time.monotonic() - start > trusted - 0.05
    assert ticks > 15, ticks

    # Waits end with the greenlet, and leave nothing behind.
    def wait():
        with quorlock.redlock("r", ttl=30):
            raise AssertionError("it is held")
    waiting = spawn(wait)
    while not quorlock.redlock("r").waiters():
        sleep(0.01)
    kill(waiting)

    # Every greenlet has its own lease on a shared lock.
    shared, inside, done = quorlock.redlock("shared", retry_delay=0.01, retry_jitter=0.005), [], []
    def work(number):
        with shared as lease:
            inside.append(number)
            assert len(inside) == 1, inside
            sleep(0.002)
            assert shared.lease is lease
            inside.pop()
        done.append(number)
    for number in range(20):
        spawn(work, number)
    while len(done) < 20:
        sleep(0.01)

    # Callbacks come in greenlets: they may wait.
    lost = []
    def on_lost(error):
        sleep(0.01)
        lost.append(error)
    watched = quorlock.redlock("watched", ttl=0.2, on_lost=on_lost)
    watched.acquire()
    while not lost:
        sleep(0.01)
    print(type(lost[0]).__name__)
"""

GEVENT = (
    """
    from gevent import monkey; monkey.patch_all()
    import gevent
    from gevent import sleep, spawn
    def kill(greenlet): greenlet.kill()
"""
    + COMMON
)
UNPATCHED = GEVENT.replace("from gevent import monkey; monkey.patch_all()", "")
EVENTLET = (
    """
    import warnings; warnings.simplefilter("ignore")
    import eventlet; eventlet.monkey_patch()
    from eventlet import sleep, spawn
    def kill(greenlet): greenlet.kill()
"""
    + COMMON
)


#: What gevent has by default on Windows.
LIBUV = """
    import os; os.environ["GEVENT_LOOP"] = "libuv"
"""
PROGRAMS = {
    "gevent": GEVENT,
    "gevent-libuv": LIBUV + GEVENT,
    "gevent-unpatched": UNPATCHED,
    "eventlet": EVENTLET,
    "eventlet-unpatched": EVENTLET.replace("eventlet.monkey_patch()", ""),
}


@pytest.mark.parametrize("code", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_the_hub_goes_on_while_a_greenlet_waits(cluster3: Cluster, code: str) -> None:
    assert run(code, nodes=cluster3.urls, within=60) == "LeaseLost"
    assert cluster3.values("shared") == [None] * 3


def test_a_program_with_gevent_but_no_hub_works(cluster3: Cluster) -> None:
    code = "import gevent, quorlock\nwith quorlock.redlock('r') as lease: print(lease.is_valid)"
    assert run(code, nodes=cluster3.urls) == "True"


def test_a_gevent_program_that_has_no_hub_yet_hears_of_a_loss(cluster3: Cluster) -> None:
    out = run(
        """
        from gevent import monkey; monkey.patch_all()
        import time, quorlock
        lost = []
        lock = quorlock.redlock("r", ttl=0.3, on_lost=lost.append)
        assert lock.acquire()
        while not lost: time.sleep(0.01)
        print("told")
        """,
        nodes=cluster3.urls,
    )
    assert out == "told"


@pytest.mark.parametrize("loop", ["", LIBUV], ids=["libev", "libuv"])
def test_a_gevent_program_that_has_used_a_lock_can_end_when_all_is_done(
    cluster3: Cluster, loop: str
) -> None:
    code = """
    import gevent, quorlock
    with quorlock.redlock("r"):
        gevent.sleep(0.01)
    gevent.spawn(gevent.sleep, 0.1)
    print(gevent.wait(timeout=5))
"""
    assert run(loop + code, nodes=cluster3.urls) == "True"


NOTICES = """
    import logging, os, quorlock
    logged = []
    class Handler(logging.Handler):
        def emit(self, record): logged.append(record)
    logging.getLogger("quorlock").addHandler(Handler())
    quorlock._notices._told.clear()  # the process may have been told before
    locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","))
    with locks.lock("r"):
        while not logged: sleep(0.01)
    print(logged[0].notice)
"""
GEVENT = "from gevent import monkey, sleep; monkey.patch_all()"
EVENTLET = (
    "import warnings; warnings.simplefilter('ignore'); import eventlet; eventlet.monkey_patch();"
    "from eventlet import sleep"
)


@pytest.mark.parametrize("head", [GEVENT, EVENTLET], ids=["gevent", "eventlet"])
def test_notices_are_logged_by_the_hub(servers: Callable[..., Cluster], head: str) -> None:
    flags = ("--maxmemory", "100mb", "--maxmemory-policy", "volatile-ttl")
    nodes = servers(1, flags=flags).urls
    assert run(f"{head}\n{textwrap.dedent(NOTICES)}", nodes=nodes) == "may-evict"
    first = "with quorlock.redlock('first'): sleep(0.2)"
    code = f"{head}\nimport quorlock\n{first}\n{textwrap.dedent(NOTICES)}"
    with Program(code, nodes=nodes) as program:
        status, out, errors = program.end(20)
    assert (status, out) == (0, "may-evict\n")
    assert len(errors.splitlines()) == 1, errors  # that of the manager before


def test_ctrl_c_in_a_gevent_program_ends_the_wait(cluster3: Cluster) -> None:
    code = """
        from gevent import monkey; monkey.patch_all()
        import quorlock
        with quorlock.redlock("r", ttl=30):
            print("waiting", flush=True)
            try:
                quorlock.redlock("r").acquire()
            except KeyboardInterrupt:
                print("interrupted")
    """
    with Program(code, nodes=cluster3.urls) as program:
        assert program.line() == "waiting"
        eventually(lambda: has_place(cluster3, "r"))
        program.signal(signal.SIGINT)
        status, out, errors = program.end(20)
    assert (status, out) == (0, "interrupted\n")
    assert errors.startswith("KeyboardInterrupt"), errors  # gevent's own word
    assert cluster3.values("r") == [None] * 3


WAIT = """
import threading, quorlock

def wait():
    with quorlock.redlock("r", ttl=30, timeout=60): pass

def work():
    spawn(wait)
    while not quorlock.redlock("r").waiters():
        sleep(0.01)
"""
IN_A_THREAD = "thread = threading.Thread(target=work); thread.start(); thread.join()"
DESTROYED = """
import gevent
for _ in range(3):
    work()
    sleep(0.05)  # a timer of the hub resumes this
    gevent.get_hub().destroy()
"""
INTERRUPTED = """
import sys
from quorlock import _hubs

def strike(frame, *_):
    if "/quorlock/_" in frame.f_code.co_filename:
        raise KeyboardInterrupt

work()
(of_thread,) = _hubs._of_threads.values()
sys.setprofile(strike)
del of_thread.kept  # as where the thread has another hub next
sys.setprofile(None)
"""
ON_GEVENT = "from gevent import sleep, spawn"
ON_LIBUV = textwrap.dedent(LIBUV) + ON_GEVENT
ENDS = {
    "gevent-destroyed": (ON_GEVENT, DESTROYED),
    "libuv-destroyed": (ON_LIBUV, DESTROYED),
    "gevent-thread": (ON_GEVENT, IN_A_THREAD),
    "libuv-thread": (ON_LIBUV, IN_A_THREAD),
    "gevent-interrupted": (ON_GEVENT, INTERRUPTED),
    "eventlet-thread": ("from eventlet import sleep, spawn", IN_A_THREAD),
}


@pytest.mark.parametrize(("head", "end"), ENDS.values(), ids=ENDS.keys())
def test_a_hub_that_ends_during_a_wait_leaves_no_key(
    cluster3: Cluster, head: str, end: str
) -> None:
    lines = [head, WAIT, end, "print('ended', flush=True)", "input()"]
    with Redlock(cluster3.urls).lock("r", ttl=60) as lease:
        with Program("\n".join(lines), nodes=cluster3.urls) as program:
            assert program.line(within=20) == "ended"
            lease.release()
            time.sleep(0.3)  # time in which it could be won
            eventually(lambda: is_free(cluster3, "r"))


@pytest.mark.parametrize("module", ["gevent", "eventlet.hubs"])
def test_a_thread_locks_while_another_imports(cluster3: Cluster, module: str) -> None:
    run(
        f"""
        import importlib.machinery, sys, types, quorlock
        half = types.ModuleType("{module}")
        half.__spec__ = importlib.machinery.ModuleSpec("{module}", None)
        half.__spec__._initializing = True
        sys.modules["{module}"] = half
        with quorlock.redlock("r"): pass
        """,
        nodes=cluster3.urls,
    )
