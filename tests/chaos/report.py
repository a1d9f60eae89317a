"""Prints the result of a run: a table, and one line at its end."""

from __future__ import annotations

from collections import Counter

from tests.chaos.checker import Verdict
from tests.chaos.history import History
from tests.chaos.kinds import KINDS

_SHOWN = 20  # violations


def table(history: History, verdict: Verdict, injected: Counter[str], careless_lost: int) -> str:
    """Operations, faults, violations, availability."""
    writes = sum(access.kind == "write" for access in history.accesses)
    rows: list[tuple[str, object]] = [("acquired", len(history.claims))]
    for name, count in sorted(Counter(_kind(claim.worker) for claim in history.claims).items()):
        rows.append((f"  by {name}", count))
    rows += [(name, count) for name, count in history.endings.most_common()]
    rows += [
        ("writes", writes),
        ("  late, refused by their token", sum(
            access.kind == "write" and not access.accepted for access in history.accesses)),
        ("  lost where tokens are not looked at", careless_lost),
    ]  # fmt: skip
    parts = ["operations", *_lines(rows), "", "faults"]
    parts += [
        f"  {count:6}  {name:15} {KINDS[name].what}"
        for name, count in sorted(injected.items(), key=lambda item: list(KINDS).index(item[0]))
    ]
    parts += [
        "",
        "availability",
        f"  {verdict.available:6.1%}  of all seconds in which somebody acquired or held a lock",
        f"  {verdict.available_with_majority:6.1%}  of those in which a majority was up",
        f"  {verdict.longest_wait:5.1f} s  longest time without an acquisition, with a majority up",
        "",
        "violations",
    ]
    kinds = Counter(violation.kind for violation in verdict.violations)
    parts += _lines(list(kinds.items()) or [("none", 0)])
    parts += [f"  {item.kind}: {item.text}" for item in verdict.violations[:_SHOWN]]
    if len(verdict.violations) > _SHOWN:
        parts.append(f"  ... and {len(verdict.violations) - _SHOWN} more")
    return "\n".join(parts)


def last_line(history: History, verdict: Verdict, injected: Counter[str], seed: int) -> str:
    """The whole run in one line."""
    return (
        f"{len(history.claims)} acquisitions, {injected.total()} faults of {len(injected)} kinds, "
        f"{len(verdict.violations)} violations, available {verdict.available_with_majority:.0%}, "
        f"seed {seed}"
    )


def _lines(rows: list[tuple[str, object]]) -> list[str]:
    return [f"  {value:6}  {name}" for name, value in rows]


def _kind(worker: str) -> str:
    return worker.partition(".")[0]
