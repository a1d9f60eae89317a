"""Judges a history: a pure function, so that tests/chaos/test_checker.py can pass it bad ones.

Knows nothing of servers, processes or faults, only what was promised and what came of it.
"""

from __future__ import annotations

import bisect
import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import attrgetter

from tests.chaos.history import WRITE, Access, Claim, Harm, History

#: Seconds without an acquisition, while a majority is up, that are too many.
STALL = 8.0
#: Seconds that a majority must have been up again before one is expected: leases of holders that
#: were killed run out, and connections come back.
GRACE = 3.0
#: Seconds by which an end may be read earlier than before: what numbers are rounded by.
GRAIN = 0.01


@dataclass(frozen=True)
class Violation:
    """A promise that was broken."""

    kind: str
    text: str


@dataclass
class Verdict:
    """What came of a run."""

    violations: list[Violation] = field(default_factory=list)
    #: Updates that a counter without a look at tokens would have lost (or did lose: it is kept).
    refused: int = 0
    #: Share of all seconds in which somebody acquired or held a lock, and of those with a majority.
    available: float = 0.0
    available_with_majority: float = 0.0
    #: The longest time without an acquisition while a majority was up.
    longest_wait: float = 0.0

    def count(self, kind: str) -> int:
        """How many violations of one kind."""
        return sum(violation.kind == kind for violation in self.violations)


def judge(history: History) -> Verdict:
    """Everything."""
    verdict = Verdict(refused=sum(not access.accepted for access in history.accesses))
    verdict.violations += overlaps(history.claims)
    verdict.violations += tokens_out_of_order(history.claims)
    verdict.violations += lost_updates(history.accesses)
    verdict.violations += shortened(history.claims)
    verdict.violations += [Violation("problem", text) for text in history.problems]
    windows = with_majority(history)
    waits = sorted(_waits(history.claims, windows))
    verdict.longest_wait = waits[-1][0] if waits else 0.0
    verdict.violations += [
        Violation("stall", f"nobody acquired for {wait:.1f} s from {since:.3f} on")
        for wait, since in waits
        if wait > STALL
    ]
    verdict.available = _share(history.claims, [(history.begun, history.ended)])
    verdict.available_with_majority = _share(history.claims, windows)
    return verdict


def overlaps(claims: Iterable[Claim]) -> Iterator[Violation]:
    """Two promises of one name that hold at one moment."""
    for name, group in _by_name(claims).items():
        # Those that may still hold, the one that ends first on top.
        open_claims: list[tuple[float, str, Claim]] = []
        for claim in sorted(group, key=attrgetter("at")):
            while open_claims and open_claims[0][0] <= claim.at:
                heapq.heappop(open_claims)
            for over, _, other in open_claims:
                if claim.over > claim.at:
                    shared = min(over, claim.over) - claim.at
                    yield Violation(
                        "overlap",
                        f"{name}: {claim.lease} (token {claim.token}) was told at {claim.at:.6f}, "
                        f"while {other.lease} (token {other.token}) held until {over:.6f}: "
                        f"{shared * 1000:.3f} ms for both",
                    )
            heapq.heappush(open_claims, (claim.over, claim.lease, claim))


def tokens_out_of_order(claims: Iterable[Claim]) -> Iterator[Violation]:
    """A lease whose winning round began after another was told, with no larger token."""
    for name, group in _by_name(claims).items():
        told = sorted(group, key=attrgetter("at"))
        times = [claim.at for claim in told]
        highest = list(accumulate(told, _higher))
        for claim in told:
            before = bisect.bisect_left(times, claim.began)
            if before and highest[before - 1].token >= claim.token:
                other = highest[before - 1]
                yield Violation(
                    "token order",
                    f"{name}: {claim.lease} has token {claim.token}, {other.lease}, which was "
                    f"told {claim.began - other.at:.6f} s before, has {other.token}",
                )


def lost_updates(accesses: Iterable[Access]) -> Iterator[Violation]:
    """An increment that another overwrote, or a late writer that the counter let in."""
    highest: dict[str, int] = defaultdict(int)
    value: dict[str, int] = defaultdict(int)
    for access in accesses:
        if not access.accepted:
            continue
        name = access.name
        if access.token < highest[name]:
            yield Violation(
                "late writer",
                f"{name}: {access.lease} came with token {access.token} after {highest[name]}",
            )
        highest[name] = max(highest[name], access.token)
        if access.kind == WRITE:
            if access.value != value[name] + 1:
                yield Violation(
                    "lost update",
                    f"{name}: {access.lease} wrote {access.value} over {value[name]}",
                )
            value[name] = access.value


def shortened(claims: Iterable[Claim]) -> Iterator[Violation]:
    """A lease that ended earlier than it was promised, though it was not lost.

    That happens to a client that stood still without its clock noticing. None does here: what
    jumps are clocks of a minority of nodes, and those of another cluster.
    """
    for claim in claims:
        if claim.shortened > GRAIN:
            yield Violation(
                "shortened",
                f"{claim.names}: {claim.lease} was told an end {claim.shortened:.3f} s before that "
                "which it had been promised",
            )


def with_majority(history: History) -> list[tuple[float, float]]:
    """The times in which a majority of nodes was whole, each less its first `GRACE` seconds."""
    changes: list[tuple[float, Harm, bool]] = []
    for harm in history.harms:
        changes += [(harm.begin, harm, True), (harm.end, harm, False)]
    windows = []
    hurt: dict[int, int] = defaultdict(int)
    since: float | None = history.begun
    for at, harm, begins in sorted(changes, key=lambda change: (change[0], change[2])):
        for node in harm.nodes:
            hurt[node] += 1 if begins else -1
        majority = sum(count == 0 for count in hurt.values()) + history.nodes - len(hurt)
        whole = majority > history.nodes // 2
        if since is not None and not whole:
            windows.append((since + GRACE, at))
            since = None
        elif since is None and whole:
            since = at
    if since is not None:
        windows.append((since + GRACE, history.ended))
    return [(begin, end) for begin, end in windows if begin < end]


def _waits(
    claims: Iterable[Claim], windows: Iterable[tuple[float, float]]
) -> Iterator[tuple[float, float]]:
    """Each time without an acquisition, and when it began."""
    told = sorted(claim.at for claim in claims)
    for begin, end in windows:
        inside = [at for at in told if begin <= at <= end]
        for before, after in pairwise([begin, *inside, end]):
            yield after - before, before


def _share(claims: Iterable[Claim], windows: Iterable[tuple[float, float]]) -> float:
    """The part of whole seconds within the windows in which a lock was acquired or held."""
    used = {
        second
        for claim in claims
        for second in range(int(claim.at), int(max(claim.at, claim.over)) + 1)
    }
    asked = {second for begin, end in windows for second in range(int(begin) + 1, int(end))}
    return len(asked & used) / len(asked) if asked else 0.0


def _higher(a: Claim, b: Claim) -> Claim:
    return b if b.token > a.token else a


def _by_name(claims: Iterable[Claim]) -> dict[str, list[Claim]]:
    groups: dict[str, list[Claim]] = defaultdict(list)
    for claim in claims:
        for name in claim.names:
            groups[name].append(claim)
    return groups
