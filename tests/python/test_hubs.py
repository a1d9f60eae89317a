"""gevent and eventlet: a wait for a lock never freezes the hub."""

from __future__ import annotations

import signal
import time

import pytest

from tests.python.programs import Program, run
from tests.support.servers import Cluster

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
    sleep(0.1)
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


PROGRAMS = {
    "gevent": GEVENT,
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
        time.sleep(0.2)
        program.signal(signal.SIGINT)
        assert program.end(20) == (0, "interrupted\n", "")
    assert cluster3.values("r") == [None] * 3
