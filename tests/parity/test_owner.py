"""Tests that each language reads who holds a lock from the other's record."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorlock import Redlock
from tests.support.cluster import Cluster, start_servers
from tests.support.wait import eventually

PROGRAM = str(Path(__file__).with_name("holder.mjs"))
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with start_servers(3) as cluster:
        yield cluster


def test_node_reads_pythons_owner(cluster: Cluster) -> None:
    with Redlock(cluster.urls, owner={"service": "billing", "zone": "zürich"}) as locks:
        before = time.time()
        with locks.lock("r", ttl=30):
            command = ["node", PROGRAM, "read", *cluster.urls]
            run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
            assert run.returncode == 0, run.stderr
            ours = locks.lock("r").holder()
    told = json.loads(run.stdout)
    assert ours is not None
    assert told["owner"] == ours.owner
    assert told["owner"]["zone"] == "zürich"
    assert told["owner"]["pid"] == str(os.getpid())
    assert before - 0.01 <= told["since"] / 1000 <= time.time()
    assert told["text"].startswith("billing on ")


def test_python_reads_nodes_owner(cluster: Cluster) -> None:
    command = ["node", PROGRAM, "hold", *cluster.urls]
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as node,
        Redlock(cluster.urls) as locks,
    ):
        assert node.stdin
        assert node.stdout
        held = json.loads(node.stdout.readline())
        eventually(lambda: getattr(locks.lock("r").holder(), "since", None) is not None)
        holder = locks.lock("r").holder()
        assert holder is not None
        assert holder.owner["service"] == "reports"
        assert holder.owner["zone"] == "zürich"
        assert holder.owner["pid"] == str(held["pid"])
        assert holder.since is not None
        assert abs(time.time() - holder.since) < 30
        assert str(holder).startswith("reports on ")
        node.stdin.close()
        assert node.wait(30) == 0
        assert locks.lock("r").holder() is None
