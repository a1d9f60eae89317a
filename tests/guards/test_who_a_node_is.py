"""Tests that nodes are told apart even where servers may not be asked who they are.

Clocks that run wrong are noticed also by a client that looks at them all the time.
"""

from __future__ import annotations

import contextlib
import sys
import time
from functools import partial
from typing import Any

import pytest

from quorlock import ConfigError, LeaseLost, LockNotAcquired, QuorumUnreachable, Redlock
from tests.guards.side_by_side import Case, side_by_side
from tests.guards.testbed import Testbed, gets_in

pytestmark = pytest.mark.slow

#: Seconds for which a clock is watched. Within the drift allowance (1 %) it gains as much in this
#: time as a step that is not allowed.
WATCHED = 20.0


def one_server_three_times(testbed: Testbed, rights: str, option: str) -> None:
    users = {"app": f"on >secret ~* &* +@all {rights}"}
    server, other = testbed.servers(2, users=users)
    login = [it.url_for("app", "secret") for it in (server, other)]
    proxies = [testbed.proxy(server) for _ in range(2)]
    same = [login[0], *(login[0].replace(server.address, proxy.address) for proxy in proxies)]
    if option == "beside two others":
        same = [*same[:2], login[1]]
    with pytest.raises(ConfigError, match="one and the same server"):
        # A quorum may be found before the others have told who they are: then it is the next one.
        limit = time.monotonic() + WATCHED
        locks = testbed.client(same)
        while time.monotonic() < limit:
            with contextlib.suppress(LeaseLost, LockNotAcquired, QuorumUnreachable):
                with locks.lock("r", timeout=1):
                    time.sleep(0.1)


def clock(testbed: Testbed, rate: float, *, is_told: bool) -> None:
    cluster = testbed.servers(clock=True)
    locks = testbed.warm(cluster.urls)
    cluster[2].gain_time(rate)
    begun = time.monotonic()
    seen = False
    while not seen and time.monotonic() - begun < WATCHED:
        gets_in(locks, "busy")
        seen = locks.nodes[2].state == "quarantined"
        time.sleep(0.005)
    assert seen == is_told, locks.nodes
    assert [node.state for node in locks.nodes[:2]] == ["healthy"] * 2
    if seen:
        assert "clock" in (locks.nodes[2].detail or "")


@side_by_side(
    {
        f"one server three times, {option}, {rights or 'with +info'}": partial(
            one_server_three_times, rights=rights, option=option
        )
        for rights in ("-info", "")
        for option in ("alone", "beside two others")
    }
)
def test_a_server_has_one_vote(case: Case) -> None:
    case.end()


@pytest.mark.skipif(sys.platform != "linux", reason="clocks can be set on Linux alone")
@side_by_side(
    {
        "5 % fast": partial(clock, rate=0.05, is_told=True),
        "0.5 % fast": partial(clock, rate=0.005, is_told=False),
    }
)
def test_a_clock_that_runs_fast_is_seen_by_a_busy_client(case: Case) -> None:
    case.end()


@pytest.mark.parametrize(
    "resource",
    [
        "quorlock:fence:{a}",
        "quorlock:",
        "quorlock:{node}:canary",
        ["a", "quorlock:x"],
    ],
)
def test_a_name_of_the_library_itself_is_refused(resource: Any) -> None:
    with Redlock(["memory://a"]) as locks:
        with pytest.raises(ConfigError, match="quorlock:"):
            locks.lock(resource)


def test_names_that_are_like_it_are_taken() -> None:
    with Redlock(["memory://a"]) as locks:
        for resource in ("quorlock", "quorlock-jobs", "my:quorlock:x", "{quorlock:}"):
            with locks.lock(resource):
                pass
