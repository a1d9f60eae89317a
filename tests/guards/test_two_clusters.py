"""Tests that clock jumps of one cluster do not affect another manager of the same process.

The other manager continues as before, with its leases and with its waits.
"""

from __future__ import annotations

import json
import sys

import pytest

from tests.guards.testbed import Testbed, restart_empty
from tests.python.programs import Program

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="clocks can be set on Linux alone"),
]

#: Seconds by which all clocks of one cluster are set forward.
STEP = 60
#: Of the lock for whose sake the second cluster waits.
TTL = 40

# In a process of its own: today a jump concerns every manager of the process, those of the tests
# beside this one among them.
CODE = f"""
    import json, os, time, quorlock
    from tests.guards.testbed import Testbed, gets_in, quarantine_left
    from tests.support.wait import eventually

    def read():
        return {{
            "at": time.monotonic(), "jumping": jumping.lease.validity,
            "lease": steady.lease.validity, "wait": min(quarantine_left(waiting)[:2]),
        }}

    urls = os.environ["QUORLOCK_NODES"].split(",")
    with Testbed() as testbed:
        jumper = testbed.warm(urls[:3])
        waiting = testbed.warm(urls[3:6])
        jumping = testbed.hold(jumper, "r", ttl=300)
        steady = testbed.hold(testbed.warm(urls[6:]), "r", ttl={TTL})
        print("connected", flush=True)
        input()
        eventually(lambda: all(quarantine_left(waiting)[:2]))
        before = read()
        print("waiting", flush=True)
        input()
        def has_noticed():
            gets_in(jumper, "warm")
            return jumping.lease.validity < 300 - {STEP} / 2
        eventually(has_noticed, 30)
        after = read()
        second = gets_in(waiting, patience=5)
        print(json.dumps({{"before": before, "after": after, "second": second}}))
"""


def test_a_jump_of_one_cluster_ends_nothing_early_on_another() -> None:
    with Testbed() as testbed:
        jumping, waiting, steady = testbed.servers(clock=True), testbed.servers(), testbed.servers()
        testbed.hold(testbed.warm(waiting.urls), "r", ttl=TTL)
        with Program(CODE, nodes=[*jumping.urls, *waiting.urls, *steady.urls]) as program:
            assert program.line() == "connected"
            for server in waiting[:2]:
                restart_empty(server)
            program.write("\n")
            assert program.line() == "waiting"
            for server in jumping:
                server.set_clock(STEP)
            program.write("\n")
            status, out, errors = program.end(60)
        assert status == 0, errors
    told = json.loads(out)
    before, after = told["before"], told["after"]
    passed = after["at"] - before["at"]
    assert before["wait"] > TTL / 2, before
    assert not told["second"], "a second holder"
    assert before["lease"] - after["lease"] < passed + 0.5, "a healthy lease ended early"
    assert before["wait"] - after["wait"] < passed + 1.5, "a wait ended early"
