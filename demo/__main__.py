"""Plays the demo: four processes in two languages want one resource on five servers."""

from __future__ import annotations

import sys
import time
from itertools import pairwise
from typing import Any

from demo.workers import Terminal, Worker, next_event
from tests.support.binary import server_version
from tests.support.cluster import Cluster, start_servers

Turn = dict[str, Any]
NODES = 5
TURNS = 4


def main() -> int:
    terminal = Terminal()
    with start_servers(NODES) as cluster:
        name, version = server_version()
        dotted = ".".join(map(str, version))
        terminal.heading(f"{NODES} independent servers ({name} {dotted})")
        for server in cluster:
            terminal.line(f"{server.url}  process {server.pid}")
        workers = [
            Worker.python("python-1", 34, cluster.urls),
            Worker.python("python-2", 36, cluster.urls),
            Worker.node("node-1", 33, cluster.urls),
            Worker.node("node-2", 35, cluster.urls),
        ]
        try:
            play(terminal, cluster, workers)
        finally:
            for worker in workers:
                worker.close()
    terminal.heading("All of it held." if not terminal.failures else "Something did not hold.")
    return 1 if terminal.failures else 0


def play(terminal: Terminal, cluster: Cluster, workers: list[Worker]) -> None:
    terminal.heading("Four processes take turns at one resource")
    turns = take_turns(terminal, workers)

    terminal.heading("One server is killed: a majority is enough")
    cluster[0].kill()
    terminal.line(f"killed {cluster[0].url}")
    turns += take_turns(terminal, workers)
    # In the order in which the lock was got, by the clock that all processes share.
    turns.sort(key=lambda turn: turn["at"])
    growing = all(a["token"] < b["token"] for a, b in pairwise(turns))
    terminal.verdict(growing, f"{len(turns)} turns, and every fencing token was above the last")

    terminal.heading("A process that is blocked for three times the ttl keeps its lock")
    for worker in (workers[0], workers[2]):
        keep_while_blocked(terminal, worker)

    for worker in (workers[1], workers[3]):
        terminal.heading(f"{worker.name} loses its lease, and is told in time")
        lose(terminal, cluster, worker)

    terminal.heading("The servers are back, and take part again by themselves")
    cluster.heal()
    patience = time.monotonic() + 10
    back = False
    while not back and time.monotonic() < patience:
        turns = take_turns(terminal, workers, turns=1, shown=False)
        back = all(turn["granted"] == NODES for turn in turns)
    take_turns(terminal, workers, turns=1)
    terminal.verdict(back, f"all {NODES} servers grant again")


def take_turns(
    terminal: Terminal, workers: list[Worker], turns: int = TURNS, *, shown: bool = True
) -> list[Turn]:
    """Everyone contends; shows who gets the lock as it happens."""
    for worker in workers:
        worker.tell(do="turns", turns=turns)
    held: list[Turn] = []
    busy = set(workers)
    while busy:
        worker, event = next_event()
        if event["event"] == "done":
            busy.remove(worker)
            continue
        if event["event"] != "turn":
            raise RuntimeError(f"{worker.name}: {event}")
        held.append(event)
        if shown:
            terminal.line(
                f"{terminal.name(worker)} fencing token {event['token']}  "
                f"{event['granted']} of {event['nodes']} servers  "
                f"waited {event['waited_ms']:6.1f} ms"
            )
    return held


def keep_while_blocked(terminal: Terminal, worker: Worker) -> None:
    worker.tell(do="block", seconds=3)
    before = worker.expect("held")
    terminal.line(f"{terminal.name(worker)} holds it with a ttl of 1 s and blocks for 3 s")
    after = worker.expect("kept")
    kept = before["token"] == after["token"]
    terminal.verdict(kept, f"{worker.name} still holds it: renewed on a thread of its own")


def lose(terminal: Terminal, cluster: Cluster, worker: Worker) -> None:
    worker.tell(do="hold")
    worker.expect("held")
    terminal.line(f"{terminal.name(worker)} holds it with a ttl of 1 s")
    stopped = cluster[1:4]
    for server in stopped:
        server.pause()
    begun = time.monotonic()
    terminal.line(f"stopped {len(stopped)} more servers: no majority is left to renew it")
    event = worker.expect("lost")
    for server in stopped:
        server.resume()
    after = time.monotonic() - begun
    terminal.line(f"{terminal.name(worker)} {event['words']}")
    terminal.verdict(
        -5 < event["late_ms"] < 50,
        f"told {event['late_ms']:.1f} ms after the end of its validity "
        f"and {after:.2f} s after the stop",
    )


if __name__ == "__main__":
    sys.exit(main())
