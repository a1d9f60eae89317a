"""Draws the pictures of the page with `svg`. Owns which there are and what each shows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from bench.entrants import OURS, PEER, Entrant, named
from bench.report.figures import Failures, Results, spoken
from bench.report.svg import Bar, Line, bars, differ_a_lot, lines

#: Those that a picture of lines can hold: every one of ours, and the best known of the others.
_IN_LINES = (
    "floor", "quorlock Rust", "quorlock Python", "quorlock Python asyncio", "quorlock Node",
    "rslock", "redlock-py", "pottery", "aioredlock", "node-redlock 5", "redis-semaphore",
)  # fmt: skip
_DASHES = {"Rust": "", "Python": "", "Node": "7 4"}


def pictures(results: Results) -> dict[str, str]:
    """File name and SVG of each picture for which there are figures."""
    made = {
        "latency": _latency(results),
        "five-nodes": _five_nodes(results),
        "cpu": _cpu(results),
        "throughput": _throughput(results),
        "far": _far(results, "all far", "Five nodes, 0.5 ms away"),
        "slow-node": _far(results, "one slow", "Five nodes, one of them 20 ms away"),
        "hung-node": _faulty(results, "hung", "Five nodes, one of them hangs"),
        "dead-node": _faulty(results, "dead", "Five nodes, one of them is dead"),
        "contention": _contention(results),
        "held": _held(results),
    }
    return {f"{name}.svg": picture for name, picture in made.items() if picture}


def _kind(entrant: Entrant) -> str:
    if entrant.role == OURS:
        return "plain" if entrant.variant else "ours"
    return entrant.role


def _latency(results: Results) -> str:
    nodes = sorted({row["nodes"] for row in results.select("single")})
    series = _series(
        results, "p50", "single", [(count, {"nodes": count}) for count in nodes], _IN_LINES
    )
    return (
        ""
        if not series
        else lines(
            "Acquire and release, one at a time, by number of nodes",
            "Median time of a pair; nobody else wants the lock. Less is better.",
            series,
            spoken,
            [(number, f"{number} node{'s' * (number > 1)}") for number in nodes],
        )
    )


def _throughput(results: Results) -> str:
    numbers = sorted({row["in_flight"] for row in results.select("flight", nodes=5)})
    names = [name for name in _IN_LINES if name != "floor"]
    series = _series(
        results, "per_second", "flight",
        [(number, {"nodes": 5, "in_flight": number}) for number in numbers], names,
    )  # fmt: skip
    return (
        ""
        if not series
        else lines(
            "Pairs per second on five nodes, by number in flight",
            "One process, each lock on a resource of its own. More is better.",
            series,
            lambda value: f"{value:,.0f}",
            [(number, str(number)) for number in numbers],
        )
    )


def _series(
    results: Results,
    field: str,
    workload: str,
    cases: Sequence[tuple[float, Mapping[str, object]]],
    names: Iterable[str],
) -> list[Line]:
    found = []
    for name in names:
        seen = [(x, results.median(field, workload, name, **case)) for x, case in cases]
        points = [(x, value) for x, value in seen if value]
        if points:
            entrant = named(name)
            dash = "" if entrant.role != PEER else _DASHES.get(entrant.language, "")
            found.append(Line(entrant.label, _kind(entrant), points, dash))
    return found


def _five_nodes(results: Results) -> str:
    return _bars_of(
        results, "p50", "single", spoken, {"nodes": 5},
        "Acquire and release on five nodes, one at a time",
        "Median, and the middle half of all pairs. Less is better.",
        ("p25", "p75"),
    )  # fmt: skip


def _cpu(results: Results) -> str:
    return _bars_of(
        results, "cpu", "single", spoken, {"nodes": 5},
        "Processor time of the client for one pair on five nodes",
        "All threads of the process, user and system. Less is better.",
    )  # fmt: skip


def _far(results: Results, case: str, title: str) -> str:
    return _bars_of(
        results, "p50", "far", spoken, {"case": case}, f"{title}: acquire and release",
        "Median, and the middle half of all pairs. Less is better.", ("p25", "p75"),
    )  # fmt: skip


def _faulty(results: Results, fault: str, title: str) -> str:
    case = {"case": fault, "phase": "after"}
    return _bars_of(
        results, "p50", "faulty", spoken, case, f"{title}: acquire and release",
        "Median of the calls after the first five. Less is better.",
        failed=results.failures("faulty", case=fault),
    )  # fmt: skip


def _contention(results: Results) -> str:
    return _bars_of(
        results, "mean", "contention", spoken, {"contenders": 20},
        "Twenty contenders in four processes: the lock lies idle while others wait",
        "Mean time between a release and the next acquisition, three nodes. Less is better.",
    )  # fmt: skip


def _held(results: Results) -> str:
    leases = max((row["leases"] for row in results.select("held")), default=0)
    return _bars_of(
        results, "core", "held", lambda part: f"{100 * part:.1f} %", {},
        f"{leases:,} leases that renew themselves, five nodes",
        "Part of one core that the client needs, ttl 10 s. Less is better.",
    )  # fmt: skip


def _bars_of(
    results: Results,
    field: str,
    workload: str,
    told: Callable[[float], str],
    case: Mapping[str, object],
    title: str,
    subtitle: str,
    whisker: tuple[str, str] | None = None,
    failed: Mapping[str, Failures] | None = None,
) -> str:
    rows = []
    for entrant in results.entrants(workload, **case):
        value = results.median(field, workload, entrant.name, **case)
        if value is None:
            continue
        low, high = (
            (results.median(part, workload, entrant.name, **case) for part in whisker)
            if whisker
            else (None, None)
        )
        rows.append(Bar(entrant.label, _kind(entrant), value, low, high))
    if not rows:
        return ""
    rows.sort(key=lambda row: row.value or 0)
    shown = {row.label for row in rows}
    for name, it in (failed or {}).items():
        if named(name).label not in shown:
            rows.append(Bar(named(name).label, _kind(named(name)), None, note=short(it.problem)))
    scale = " Logarithmic." if differ_a_lot(rows) else ""
    return bars(title, subtitle + scale, rows, told)


def short(problem: str) -> str:
    """What a reader needs to know of a failure."""
    told = problem.partition(": ")[2] or problem
    return told if len(told) < 50 else f"{told.partition(':')[0]}: raises"
