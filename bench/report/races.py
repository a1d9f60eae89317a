"""Lists for the page where others are faster, and what failed on healthy nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench.entrants import OURS, named
from bench.report.figures import Results


def behind(results: Results) -> Iterator[str]:
    """Every case in which another library of the same language is ahead."""
    found = []
    for workload, field, least, told in _RACES:
        for case in _cases(results, workload):
            found += _losses(results, workload, field, least, told, case)
    yield from found or ["Nowhere in what was measured."]


def failures(results: Results) -> Iterator[str]:
    """Everything that failed on healthy nodes, with the share of the rounds."""
    for workload, fields in _CASES.items():
        if workload == "faulty":
            continue
        for case in _failed_cases(results, workload, fields):
            for name, it in results.failures(workload, **case).items():
                where = ", ".join(words for words in (workload, _where(case)) if words)
                problem = it.problem.removeprefix(f"{name}: ")
                yield f"- {where}: {name}, {it.share} rounds: {problem}"


def _failed_cases(
    results: Results, workload: str, fields: Sequence[str]
) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for row in results.rows:
        if "failed" in row and row["workload"] == workload:
            case = {field: row[field] for field in fields if field in row}
            found += [case] if case not in found else []
    return found


def _losses(
    results: Results, workload: str, field: str, least: bool, told: str, case: dict[str, object]
) -> list[str]:
    lines = []
    everybody = results.entrants(workload, **case)
    for style, language in _STYLES.items():
        racing = [one.name for one in everybody if one.style == style]
        ours = [one for one in racing if named(one).role == OURS and not named(one).variant]
        best = results.best(field, workload, racing, least=least, **case)
        if best is None or not ours or named(best).role == OURS:
            continue
        mine, other = (results.median(field, workload, name, **case) for name in (ours[0], best))
        if not mine or not other:
            continue
        part = mine / other if least else other / mine
        where = "".join(f", {words}" for words in [_where(case)] if words)
        lines.append(f"- {language}: {told}{where}: {best} is ahead by {part:.2f}x.")
    return lines


def _where(case: Mapping[str, object]) -> str:
    told = [f"{case[name]}{words}" for name, words in _WORDS.items() if name in case]
    return ", ".join(told).replace("1 nodes", "1 node")


def _cases(results: Results, workload: str) -> list[dict[str, object]]:
    fields = _CASES[workload]
    found: list[dict[str, object]] = []
    for row in results.select(workload):
        case = {field: row[field] for field in fields}
        if case not in found and case.get("phase") in (None, "after"):
            found.append(case)
    return found


_STYLES = {"tokio": "Rust", "sync": "Python", "asyncio": "Python asyncio", "node": "Node"}
_WORDS = {
    "nodes": " nodes",
    "in_flight": " in flight",
    "contenders": " contenders",
    "case": "",
}
_RACES = (
    ("single", "p50", True, "one at a time"),
    ("single", "cpu", True, "processor time of one at a time"),
    ("flight", "per_second", False, "pairs a second"),
    ("far", "p50", True, "over links"),
    ("faulty", "p50", True, "with a fault"),
    ("contention", "mean", True, "idle between holders"),
    ("held", "core", True, "processor time of held leases"),
    ("held", "bytes", True, "memory of held leases"),
    ("startup", "millis", True, "first lock"),
)
_CASES = {
    "single": ("nodes",),
    "flight": ("nodes", "in_flight"),
    "far": ("case",),
    "faulty": ("case", "phase"),
    "contention": ("contenders",),
    "held": (),
    "startup": (),
    "flat": (),
}
