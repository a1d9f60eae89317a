"""Measures thousands of leases that renew themselves: processor time, commands and memory."""

from __future__ import annotations

import time

from bench.measure import Run
from bench.nodes import load, ports, servers
from bench.worker import Failed, Worker
from tests.support.cluster import Cluster

NAME = "held"
PATIENCE = 180.0


def run(run: Run) -> None:
    """Five nodes; who renews by itself."""
    with servers(5) as cluster:
        for entrant in run.entrants:
            if not entrant.holds:
                continue
            run.tell(f"  {run.effort.leases} leases of {entrant.name}")
            cluster.reset()
            try:
                with Worker(entrant, ports(cluster)) as worker:
                    run.versions[entrant.name] = worker.version
                    _hold(run, cluster, worker)
            except Failed as problem:
                run.failed(NAME, {"leases": run.effort.leases}, entrant.name, problem)


def _hold(run: Run, cluster: Cluster, worker: Worker) -> None:
    # The first few make it connect and load what it needs: that is no lease's memory.
    worker.ask({"do": "hold", "count": 64}, PATIENCE)
    worker.ask({"do": "drop"}, PATIENCE)
    empty = worker.memory()
    held = worker.ask({"do": "hold", "count": run.effort.leases}, PATIENCE)["held"]
    full = worker.memory()
    _idle(worker, 2.0)  # what acquiring left behind
    start, spent, asked = time.monotonic(), worker.cpu(), _load(cluster)
    _idle(worker, run.effort.holding)
    took, spent = time.monotonic() - start, worker.cpu() - spent
    scripts, reads, server = (
        (after - before) / took / len(cluster)
        for before, after in zip(asked, _load(cluster), strict=True)
    )
    run.add(
        NAME, {"leases": held}, worker.entrant.name,
        core=spent / took,
        server_core=server,
        commands=scripts,
        reads=reads,
        keys=min(int(node.command("DBSIZE")) for node in cluster),
        bytes=(full - empty) / max(1, held),
    )  # fmt: skip


def _load(cluster: Cluster) -> list[float]:
    """Of all nodes together."""
    return [sum(column) for column in zip(*map(load, cluster), strict=True)]


def _idle(worker: Worker, seconds: float) -> None:
    # A library for asyncio or Node renews only while its loop runs.
    if worker.entrant.style in ("asyncio", "node", "tokio"):
        worker.ask({"do": "idle", "seconds": seconds}, seconds + PATIENCE)
    else:
        time.sleep(seconds)
