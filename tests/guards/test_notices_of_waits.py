"""Tests the notices about long locks: why a client waits, and what taking one means.

A client that waits because of another's long lock is told why. A client that takes one is told
what that means, unless all clients have set a limit.
"""

from __future__ import annotations

import re
from functools import partial

import pytest

from tests.guards.side_by_side import Case, side_by_side
from tests.guards.testbed import Testbed, restart_empty
from tests.python.programs import Program

pytestmark = pytest.mark.slow

HEAD = """
    import os, sys, time, quorlock
    locks = quorlock.Redlock(os.environ["QUORLOCK_NODES"].split(","), node_timeout=2 {more})
    with locks.lock("warm"):
        pass
    while any(node.state != "healthy" for node in locks.nodes):
        time.sleep(0.01)
"""
#: Seconds after which somebody who waits has been told. The first ten are waited anyway, for locks
#: that nobody has noted.
SOON = 25.0
LENGTH = r"\d+(\.\d+)? ?(s|min|h)\b"


def told(program: Program, within: float) -> str:
    """What it has written at its end."""
    status, _, errors = program.end(within)
    assert status == 0, errors
    return errors


def waiting(testbed: Testbed, *, logged: str) -> None:
    """A program that waits for its lock, without a limit, and does nothing else."""
    cluster = testbed.servers()
    long = testbed.hold(testbed.warm(cluster.urls), "long", ttl=600)
    code = (
        HEAD.format(more="")
        + f"""
    import threading, logging
    class Ends(logging.Handler):
        def emit(self, record):
            print(record.getMessage(), file=sys.stderr, flush=True)
    logging.getLogger("quorlock").addHandler(Ends())
    threading.Timer({SOON}, lambda: os._exit(0)).start()
    other = locks.lock("other", ttl=5)
    assert other.acquire()
    print("ready", flush=True)
    other.release()
    sys.stdin.readline()
    locks.lock("r").acquire()
    """
    )
    with Program(code, nodes=cluster.urls) as program:
        assert program.line() == "ready"
        for server in cluster[:2]:
            restart_empty(server)
        program.write("\n")
        lines = told(program, 60).splitlines()
    assert long.lease is not None
    assert long.lease.validity > 0
    assert any(re.search(logged, line) and re.search(LENGTH, line) for line in lines), lines


def long_lock(testbed: Testbed, ttl: float, *, more: str = "", says: bool) -> None:
    """A program that takes a long lock and gives it back."""
    cluster = testbed.servers()
    code = (
        HEAD.format(more=more)
        + f"""
    with locks.lock("a-long-one", ttl={ttl}):
        pass
    with locks.lock("a-long-one", ttl={ttl}):
        time.sleep(0.5)
    """
    )
    with Program(code, nodes=cluster.urls) as program:
        # The binding may have asked before whether so long a ttl was meant.
        lines = [line for line in told(program, 30).splitlines() if "majority" in line]
    assert len(lines) == (1 if says else 0), lines


@side_by_side(
    {
        # What to do about it, and for how long.
        "that somebody's long lock is why": partial(waiting, logged="max_ttl"),
        "that it waits, and for how long": partial(waiting, logged=""),
    }
)
def test_who_waits_is_told(case: Case) -> None:
    case.end()


@side_by_side(
    {
        "more than an hour": partial(long_lock, ttl=3601, says=True),
        "an hour": partial(long_lock, ttl=3600, says=False),
        "more, and a limit for all": partial(
            long_lock, ttl=7200, more=", max_ttl=7200", says=False
        ),
    }
)
def test_who_takes_a_lock_of_more_than_an_hour_is_told_once(case: Case) -> None:
    case.end()
