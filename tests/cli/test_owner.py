"""Tests what the command tells of a lock's owner, which it keeps with the lock."""

from __future__ import annotations

import json
import os
import re
import signal
import time

from quorlock import Redlock
from tests.cli.command import Ended, call
from tests.cli.conftest import Start
from tests.cli.test_holders import Holder
from tests.support.cluster import Cluster
from tests.support.wait import eventually

OWNER = ("--owner", "billing", "--owner", "ticket=8 12")


def test_the_owner_is_told(cluster3: Cluster, start: Start) -> None:
    holder = Holder(cluster3, start, *OWNER)
    named = rf"billing on {re.escape(os.uname().nodename)}, pid {holder.command.pid}, for \d+ s"

    def told() -> Ended:
        return call("status", "job", nodes=cluster3.urls)

    eventually(lambda: "the holder is" in told().out)
    lines = told().out.splitlines()
    assert lines[0].startswith(f"'job' is held by {holder.token} on 3 of 3 nodes")
    assert re.fullmatch(rf"the holder is {named} \(ticket=8 12\)", lines[1])
    (lock,) = json.loads(call("status", "job", "--json", nodes=cluster3.urls).out)
    owner = {"service": "billing", "ticket": "8 12", "pid": str(holder.command.pid)}
    assert lock["owner"] == owner | {"host": os.uname().nodename}
    assert 0 <= time.time() - lock["held_since"] < 30
    assert [node["owner"] for node in lock["nodes"]] == [lock["owner"]] * 3
    with Redlock(cluster3.urls) as locks:
        told_in_python = locks.lock("job").holder()
    assert told_in_python is not None
    assert told_in_python.owner == lock["owner"]
    waiter = call("run", "--try", "--owner", "reports", "job", "--", "true", nodes=cluster3.urls)
    assert waiter.code == 75
    assert re.search(rf"; held by {named}$", waiter.err.rstrip())
    forced = call("release", "job", "--force", "--yes", nodes=cluster3.urls)
    assert re.fullmatch(
        rf"released 'job', which was held by {holder.token} \({named}\)\n", forced.out
    )


def test_the_owner_is_kept_with_the_lock(cluster3: Cluster, start: Start) -> None:
    holder = Holder(cluster3, start, "--ttl", "2m", *OWNER)
    eventually(lambda: all(server.keys("quorlock:owner:*") for server in cluster3))
    words = ("extend", "job", "--token", holder.token, "--ttl", "10m")
    assert call(*words, nodes=cluster3.urls).code == 0
    for server in cluster3:
        assert server.command("PTTL", "quorlock:owner:{job}") > 500_000
    holder.command.signal(signal.SIGTERM)
    assert holder.command.end().code == 128 + signal.SIGTERM
    assert all(not server.keys("*job*") for server in cluster3)
