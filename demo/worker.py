"""A Python process that takes part in the demo: commands in, events out, as JSON lines.

`{"do": "turns", "turns": 3}` takes the lock so often, `{"do": "hold"}` holds it until it is lost
and tells how late that was known, `{"do": "block", "seconds": 3}` holds it while nothing else in
the interpreter can run.
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from collections.abc import Callable

import quorlock

RESOURCE = "demo:printer"


def say(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def describe(lease: quorlock.Lease) -> dict[str, object]:
    granted = sum(vote.outcome == "granted" for vote in lease.votes)
    return {"token": lease.fencing_token, "granted": granted, "nodes": len(lease.votes)}


def turns(locks: quorlock.Redlock, turns: int) -> None:
    for _ in range(turns):
        asked = time.monotonic()
        with locks.lock(RESOURCE, ttl=5) as lease:
            at, waited = time.time(), (time.monotonic() - asked) * 1000
            time.sleep(0.03)  # the work; late votes arrive meanwhile
            say("turn", at=at, waited_ms=waited, **describe(lease))
        time.sleep(0.02)
    say("done")


def hold(locks: quorlock.Redlock) -> None:
    told = threading.Event()
    told_at = 0.0

    def on_lost(_: object) -> None:
        nonlocal told_at
        told_at = time.monotonic()
        told.set()

    end = 0.0
    try:
        with locks.lock(RESOURCE, ttl=1, on_lost=on_lost) as lease:
            say("held", **describe(lease))
            while not told.wait(0.002):
                if lease.is_valid:
                    end = time.monotonic() + lease.validity
    except quorlock.LeaseLost as error:
        say("lost", late_ms=(told_at - end) * 1000, words=str(error))


def block(locks: quorlock.Redlock, seconds: float) -> None:
    with locks.lock(RESOURCE, ttl=1) as lease:
        say("held", **describe(lease))
        # A C call that keeps the interpreter lock: no other Python thread runs meanwhile.
        ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))
        lease.check()
        say("kept", **describe(lease))


ACTIONS: dict[str, Callable[..., None]] = {"turns": turns, "hold": hold, "block": block}


def main() -> None:
    # Nobody here locks for longer: servers that were restarted are held back for no more.
    locks = quorlock.Redlock(sys.argv[1:], ttl=5, max_ttl=5)
    for line in sys.stdin:
        command = json.loads(line)
        ACTIONS[command.pop("do")](locks, **command)


if __name__ == "__main__":
    main()
