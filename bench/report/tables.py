"""Writes the tables of the page in Markdown: lines, or none where nothing was measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bench.entrants import OURS, Entrant, named
from bench.report.figures import Failures, Results, spoken
from bench.report.plots import short
from bench.report.targets import Target

_NOTHING = "\u2013"


def of_targets(judged: Sequence[Target]) -> Iterator[str]:
    """Each target with what was seen."""
    rows = []
    for target in judged:
        seen = [target.told(value) for value in (target.value, target.plain, target.floor)]
        verdict = f"**{target.verdict}**" if target.met is False else target.verdict
        rows.append([target.area, target.text, target.demand, *seen, verdict])
    return _table(["", "target", "demand", "seen", "plain", "floor", ""], rows)


def not_met(judged: Sequence[Target]) -> Iterator[str]:
    """The targets that were missed, one a line."""
    missed = [target for target in judged if target.met is False]
    for target in missed:
        yield f"- {target.area}: {target.text}: {target.told(target.value)}, not {target.demand}."
    unknown = sum(target.met is None for target in judged)
    if unknown:
        yield f"- {unknown} {'was' if unknown == 1 else 'were'} not measured in this run."
    if not missed and not unknown:
        yield "None."


def single(results: Results) -> Iterator[str]:
    """Times by number of nodes."""
    nodes = sorted({row["nodes"] for row in results.select("single")})
    rows = []
    for entrant in _sorted(results, "single", "p50", {"nodes": 5}):
        spread = results.spread("p50", "single", entrant.name, nodes=5)
        rows.append([
            _label(entrant),
            *(_time(results, "p50", "single", entrant, nodes=count) for count in nodes),
            *(_time(results, field, "single", entrant, nodes=5) for field in ("p99", "cpu")),
            _NOTHING if spread is None else f"{100 * spread:.0f} %",
        ])  # fmt: skip
    heads = [f"{count} node{'s' * (count > 1)}" for count in nodes]
    return _table(["", *heads, "p99 of 5", "cpu of 5", "spread of 5"], rows)


def flight(results: Results) -> Iterator[str]:
    """Pairs a second by number in flight, one table for each number of nodes."""
    for nodes in sorted({row["nodes"] for row in results.select("flight")}, reverse=True):
        numbers = sorted({row["in_flight"] for row in results.select("flight", nodes=nodes)})
        rows = []
        case = {"nodes": nodes, "in_flight": 64}
        for entrant in _sorted(results, "flight", "per_second", case, least=False, nodes=nodes):
            cells = [_label(entrant)]
            for number in numbers:
                rate = results.median(
                    "per_second", "flight", entrant.name, nodes=nodes, in_flight=number
                )
                cells.append(_NOTHING if rate is None else f"{rate:,.0f}")
            cells.append(_time(results, "cpu", "flight", entrant, **case))
            cells.append(_time(results, "p99", "flight", entrant, **case))
            rows.append(cells)
        yield from _table(
            [f"{nodes} node{'s' * (nodes > 1)}", *map(str, numbers), "cpu of 64", "p99 of 64"], rows
        )
        yield ""


def far(results: Results) -> Iterator[str]:
    """Times over links."""
    rows = [
        [
            _label(entrant),
            *(
                _time(results, field, "far", entrant, case=case)
                for case in ("all far", "one slow")
                for field in ("p50", "p99")
            ),
        ]
        for entrant in _sorted(results, "far", "p50", {"case": "all far"})
    ]
    return _table(["", "all far", "p99", "one slow", "p99"], rows)


def faulty(results: Results) -> Iterator[str]:
    """Times with a fault: healthy, finding out, after; and the rounds that failed."""
    for fault in ("hung", "dead"):
        failures = results.failures("faulty", case=fault)
        names = [
            one.name
            for one in _sorted(results, "faulty", "p50", {"case": fault, "phase": "after"})
            if results.select("faulty", one.name, case=fault)
        ]
        names += [name for name, it in failures.items() if it.all]
        rows = []
        for name in names:
            entrant = named(name)
            healthy, after = (
                results.median("p50", "faulty", name, case=fault, phase=phase)
                for phase in ("healthy", "after")
            )
            rows.append([
                _label(entrant),
                _time(results, "p50", "faulty", entrant, case=fault, phase="healthy"),
                _time(results, "max", "faulty", entrant, case=fault, phase="first"),
                _time(results, "p50", "faulty", entrant, case=fault, phase="after"),
                _time(results, "p99", "faulty", entrant, case=fault, phase="after"),
                f"{after / healthy:.2f}x" if healthy and after else _NOTHING,
                _failed(failures.get(name)),
            ])  # fmt: skip
        heads = ["healthy", "longest of the first", "after", "p99 after", "of healthy"]
        yield from _table([f"one of five {fault}", *heads, "rounds that failed"], rows)
        yield ""


def _failed(failures: Failures | None) -> str:
    return f"{failures.share}: {short(failures.problem)}" if failures else "none"


def blocks(results: Results) -> Iterator[str]:
    """Those whose every lock is a block that renews it: one at a time, and many."""
    rows = []
    for entrant in _sorted(results, "single", "p50", {"nodes": 5}):
        if not entrant.renews:
            continue
        case = {"nodes": 5, "in_flight": 64}
        rate = results.median("per_second", "flight", entrant.name, **case)
        rows.append([
            _label(entrant),
            *(_time(results, field, "single", entrant, nodes=5) for field in ("p50", "p99")),
            _NOTHING if rate is None else f"{rate:,.0f}",
            _time(results, "p99", "flight", entrant, **case),
        ])  # fmt: skip
    return _table(["5 nodes", "one at a time", "p99", "pairs a second, 64", "p99 of 64"], rows)


def contention(results: Results) -> Iterator[str]:
    """How a lock changes hands."""
    for contenders in sorted({row["contenders"] for row in results.select("contention")}):
        rows = []
        for entrant in _sorted(results, "contention", "mean", {"contenders": contenders}):
            found = results.select("contention", entrant.name, contenders=contenders)
            rate = results.median("per_second", "contention", entrant.name, contenders=contenders)
            rows.append([
                _label(entrant),
                *(_time(results, field, "contention", entrant, contenders=contenders)
                  for field in ("mean", "p90", "longest_wait")),
                f"{rate or 0:,.0f}",
                f"{min(row['least'] for row in found)} to {max(row['most'] for row in found)}",
                str(sum(row["overlaps"] for row in found)),
            ])  # fmt: skip
        yield from _table(
            [f"{contenders} contenders", "idle", "p90", "longest wait", "locks a second", "turns",
             "overlaps"],
            rows,
        )  # fmt: skip
        yield ""


def held(results: Results) -> Iterator[str]:
    """What leases cost."""
    rows = []
    for entrant in results.entrants("held"):
        (row,) = results.select("held", entrant.name)[-1:]
        rows.append([
            _label(entrant),
            f"{100 * row['core']:.1f} %",
            f"{row['commands']:,.0f}",
            f"{row['reads']:,.0f}",
            f"{100 * row['server_core']:.1f} %",
            f"{row['bytes']:,.0f} B",
        ])  # fmt: skip
    leases = max((row["leases"] for row in results.select("held")), default=0)
    heads = ["of a core", "commands", "reads", "of a server's core"]
    return _table([f"{leases:,} leases", *heads, "memory"], rows)


def startup(results: Results) -> Iterator[str]:
    """Milliseconds."""
    rows = []
    for entrant in _sorted(results, "startup", "millis", {}):
        millis = results.median("millis", "startup", entrant.name)
        rows.append([_label(entrant), f"{millis:.0f} ms"])
    return _table(["", "first lock after"], rows)


def flat(results: Results) -> Iterator[str]:
    """Ours by number of resources and by time."""

    def told(entrant: Entrant, **case: object) -> str:
        return _time(results, "p50", "flat", entrant, **case)

    def of_one(entrant: Entrant) -> Iterator[str]:
        yield _label(entrant)
        for count in (1, 10_000):
            yield told(entrant, case="resources", resources=count)
        for quarter in (0, 3):
            for age in ("old", "new"):
                yield told(entrant, case="time", quarter=quarter, age=age)

    rows = [list(of_one(entrant)) for entrant in results.entrants("flat")]
    end = max((row["minute"] for row in results.select("flat", case="time")), default=0)
    after = "after a minute" if round(end) == 1 else f"after {end:.0f} minutes"
    heads = ["at first", "a new one", after, "a new one then"]
    return _table(["", "1 resource", "10,000", *heads], rows)


def _sorted(
    results: Results,
    workload: str,
    field: str,
    case: Mapping[str, object],
    *,
    least: bool = True,
    **among: object,
) -> list[Entrant]:
    """Those of some cases by a figure of one; who has none comes last."""
    entrants = results.entrants(workload, **among)
    known = {one.name: results.median(field, workload, one.name, **case) for one in entrants}
    sign = 1 if least else -1
    return sorted(
        entrants, key=lambda one: (known[one.name] is None, sign * (known[one.name] or 0))
    )


def _label(entrant: Entrant) -> str:
    return f"**{entrant.label}**" if entrant.role == OURS else entrant.label


def _time(results: Results, field: str, workload: str, entrant: Entrant, **case: object) -> str:
    value = results.median(field, workload, entrant.name, **case)
    return _NOTHING if value is None else spoken(value)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    rows = list(rows)
    if not rows:
        return
    yield f"| {' | '.join(heads)} |"
    yield f"|---|{'---:|' * (len(heads) - 1)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"
