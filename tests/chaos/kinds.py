"""The list of faults: what each affects, how long it lasts, whether the library must survive it.

Owns the table and its words; how a fault is made is nemesis.py's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

#: The one switch: whether the manager has guards against nodes that forget and clocks that jump.
#: When it is on, a run takes every fault by default, and tells the manager which guard to use.
GUARDS_EXIST = True

#: Seconds for which a guarded manager does not trust a node that may have forgotten.
QUARANTINE = 3.0


class Target(Enum):
    """What one fault hits."""

    NODE = "node"
    MAJORITY = "majority"
    ALL = "all"
    CLIENT = "client"
    #: The way of one client to one node.
    LINK = "link"
    #: The small cluster that one of the clients uses besides.
    OTHER = "other"


@dataclass(frozen=True)
class Kind:
    """One kind of fault."""

    name: str
    what: str
    target: Target
    #: Seconds, shortest and longest.
    lasts: tuple[float, float]
    #: Whether the nodes cannot take part meanwhile (as far as anyone may expect).
    harms: bool = False
    #: Outside what is promised today: nodes forget, or their clocks jump.
    needs_guards: bool = False
    #: A process begins anew: a guarded manager does not trust it at once.
    restarts: bool = False
    #: Seconds after its end until the node can be used again.
    rest: float = 0.0
    #: Seconds after the beginning of the run before which it is not made.
    not_before: float = 0.0


NODE, MAJORITY, ALL, CLIENT = Target.NODE, Target.MAJORITY, Target.ALL, Target.CLIENT

#: Seconds after which clients have looked at every node twice (they do so every ten): data from
#: before is told by what they saw. Data that is younger and comes back under connections that stay
#: is not (SAFETY.md).
AGED = 22.0

KINDS = {
    kind.name: kind
    for kind in [
        Kind(
            "kill", "kill -9, restart; it kept everything", NODE, (0.05, 2.0), True, restarts=True
        ),
        Kind("power cut", "the same for all nodes", ALL, (0.05, 0.5), True, restarts=True),
        Kind("pause", "SIGSTOP, SIGCONT", NODE, (0.05, 2.5), True),
        Kind("blackout", "a majority is stopped", MAJORITY, (0.3, 2.0), True),
        Kind("reset", "connections are cut", NODE, (0, 0)),
        Kind("refuse", "connections are cut, new ones refused", NODE, (0.1, 2.0), True),
        Kind("half close", "one direction is closed", NODE, (0, 0)),
        Kind("half open", "nothing arrives in one direction, or in both", NODE, (0.1, 2.5), True),
        Kind("cut", "a connection is cut in the middle of a reply", NODE, (0.2, 0.5)),
        Kind("delay", "everything takes longer", NODE, (0.5, 2.5), True),
        Kind("lost reply", "done, but its reply never arrives", NODE, (0.3, 0.6)),
        Kind("script flush", "scripts are forgotten: NOSCRIPT", NODE, (0, 0)),
        Kind("out of memory", "writes are answered by OOM", NODE, (0.2, 2.0), True),
        Kind("disk full", "a save failed: writes are answered by MISCONF", NODE, (0.2, 2.0), True),
        Kind("read only", "it became a replica: READONLY", NODE, (0.2, 2.0), True),
        Kind("lost queues", "all places of waiters are deleted", NODE, (0, 0)),
        Kind("lost wakes", "connections that bring news to waiters are cut", NODE, (0, 0)),
        Kind("no news", "no waiter may be told: NOPERM", NODE, (0.3, 3.0)),
        Kind("clock back", "a node's clock is set back", NODE, (0, 0), True, rest=3.0),
        Kind("client pause", "SIGSTOP, SIGCONT", CLIENT, (0.1, 3.0)),
        Kind("client kill", "kill -9, and another is started", CLIENT, (0.05, 0.5)),
        Kind("client clock", "a client's clock is set, either way", CLIENT, (0, 0)),
        Kind("link", "one client does not reach one node", Target.LINK, (0.2, 3.0)),
        Kind(
            "other clocks",
            "all clocks of another cluster are set ahead",
            Target.OTHER,
            (0, 0),
            needs_guards=True,
        ),
        Kind(
            "forget", "kill -9, restart; it kept nothing", NODE, (0.02, 0.5), True, True, True, 1.0
        ),
        Kind("flush", "FLUSHALL", NODE, (0, 0), True, True),
        Kind("clock ahead", "a node's clock is set ahead", NODE, (0, 0), True, True),
        Kind(
            "failback",
            "its replica takes over, and back; connections are cut",
            NODE,
            (0.1, 1.5),
            True,
            True,
        ),
        Kind(
            "old failback",
            "the same with an old replica; connections are kept",
            NODE,
            (0, 0),
            True,
            True,
            not_before=AGED,
        ),
        Kind(
            "rolling", "a majority forgets, one after another", MAJORITY, (0, 0), True, True, True
        ),
        Kind(
            "successive",
            "they forget a while apart, the first again at the end",
            MAJORITY,
            (1.0, 2.5),
            True,
            True,
            True,
        ),
        Kind("failbacks", "failback of a majority", MAJORITY, (0, 0), True, True),
        Kind(
            "old failbacks",
            "old failback of a majority",
            MAJORITY,
            (0, 0),
            True,
            True,
            not_before=AGED,
        ),
    ]
}

#: What every version must stand.
PROMISED = [name for name, kind in KINDS.items() if not kind.needs_guards]
#: What it must stand with its guards. A majority may not forget: tokens would not grow any more
#: once a clock had been ahead.
GUARDED = [
    name for name, kind in KINDS.items() if not (kind.target is MAJORITY and kind.needs_guards)
]
#: A majority forgets and no node's clock is touched: exclusion is the guards' to keep, and tokens
#: grow.
FORGETTING = [
    "rolling", "successive", "failbacks", "old failbacks", "failback", "old failback", "forget",
    "flush", "kill", "pause", "reset", "link", "other clocks", "client pause", "client kill",
]  # fmt: skip
