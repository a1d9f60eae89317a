"""The command `python -m tests.chaos`. Owns the order of a run; README.md says what it is for."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

from tests.chaos import kinds, report
from tests.chaos.checker import Verdict, judge
from tests.chaos.clients import Clients
from tests.chaos.counter import CounterServer
from tests.chaos.history import History, now, read_logs
from tests.chaos.kinds import KINDS
from tests.chaos.nemesis import Nemesis
from tests.chaos.plan import World, schedule
from tests.chaos.testbed import Testbed
from tests.support.binary import server_version
from tests.support.wait import eventually

NODES = 5
NAMES = ["counter-a", "counter-b"]
TTL = 1.0  # seconds
#: Seconds that a key may last longer, on a node whose clock was set back last.
EXTRA = 5.0


def main() -> int:
    """The command line."""
    options = _parse()
    chosen = options.only or _faults(options)
    version = ".".join(map(str, server_version()[1]))
    print(
        f"seed {options.seed}, {options.seconds:.0f} s, {NODES} servers "
        f"({server_version()[0]} {version}), guards {options.guards}",
        flush=True,
    )
    history, nemesis, careless_lost = run(options, chosen)
    injected, verdict = nemesis.injected, judge(history)
    print(f"\n{report.table(history, verdict, injected, careless_lost)}\n")
    if options.expect_overlap:
        return _expected(verdict, options.seed)
    if verdict.violations:
        print(f"again: python -m tests.chaos --seconds {options.seconds:.0f} --seed {options.seed}")
    print(report.last_line(history, verdict, injected, options.seed))
    return 1 if verdict.violations else 0


def run(options: argparse.Namespace, chosen: Sequence[str]) -> tuple[History, Nemesis, int]:
    """One run, from the first server to the last key."""
    guarded = options.guards == "on"
    world = World(NODES, Clients.COUNT, Clients.CLOCKS, guarded)
    faults = schedule(options.seed, options.seconds, chosen, world)
    with Testbed(NODES, Clients.COUNT) as testbed:
        counters = CounterServer(testbed.directory / "counter")
        orders = {
            "names": NAMES, "ttl": TTL, "seed": options.seed,
            "counter": str(testbed.directory / "counter"),
            "guards": ("auto" if guarded else "off") if kinds.GUARDS_EXIST else None,
        }  # fmt: skip
        clients = Clients(
            orders, testbed.directory, testbed.urls_for, testbed.others.urls,
            # Without guards tokens grow by the clients' clocks, where nodes forget.
            right_clocks=not guarded,
        )  # fmt: skip
        nemesis = Nemesis(testbed, clients, guarded=guarded, names=NAMES)
        history = History(now(), 0, NODES)
        try:
            clients.start()
            nemesis.run(faults, options.seconds)
            history.ended = now()
            history.problems += clients.stop()
        finally:
            clients.kill()
        testbed.heal()
        history.problems += _left_behind(testbed)
        counters.close()
        read_logs(clients.logs, history)
    history.accesses, history.harms = counters.counters.accesses, nemesis.harms
    return history, nemesis, counters.counters.careless_lost


def _left_behind(testbed: Testbed) -> list[str]:
    """Keys that stay although nobody holds a lock any more."""
    try:
        eventually(
            lambda: not any(any(testbed.cluster.values(name)) for name in NAMES), TTL + EXTRA
        )
    except TimeoutError:
        keys = [node.server.keys() for node in testbed.nodes]
        return [f"keys stay behind: {keys}"]
    return []


def _expected(verdict: Verdict, seed: int) -> int:
    """Without guards nodes that forget make two hold one lock; tokens keep the data whole."""
    overlaps = verdict.count("overlap")
    others = len(verdict.violations) - overlaps
    holds = overlaps > 0 and others == 0
    told = "as expected" if holds else "NOT as expected"
    print(f"{told}: {overlaps} overlaps, {others} other violations, seed {seed}")
    return 0 if holds else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument(
        "--guards", choices=["on", "off"], default="on" if kinds.GUARDS_EXIST else "off",
        help="whether managers mistrust nodes that may have forgotten; on: every fault is made",
    )  # fmt: skip
    parser.add_argument(
        "--forgetting", action="store_true", help="majorities of nodes forget, one after another"
    )
    parser.add_argument(
        "--expect-overlap", action="store_true",
        help="the same without guards: succeeds if two hold one lock, and no update is lost",
    )  # fmt: skip
    parser.add_argument("--only", nargs="+", choices=KINDS, metavar="FAULT", help="only these")
    options = parser.parse_args()
    if options.expect_overlap:
        options.guards, options.forgetting = "off", True
    return options


def _faults(options: argparse.Namespace) -> list[str]:
    if options.forgetting:
        return kinds.FORGETTING
    return kinds.GUARDED if options.guards == "on" else kinds.PROMISED


if __name__ == "__main__":
    sys.exit(main())
