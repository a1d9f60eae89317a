"""The targets for Quorlock's speed: ratios within one run, each met or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from bench.entrants import ENTRANTS, FLOOR, PEER
from bench.report.figures import Results

PYTHON, ASYNCIO, NODE, RUST = (
    "quorlock Python",
    "quorlock Python asyncio",
    "quorlock Node",
    "quorlock Rust",
)
LANGUAGES = (RUST, PYTHON, ASYNCIO, NODE)
#: The time that one node is given where a lock has a ttl of ten seconds; in microseconds.
NODE_TIMEOUT = 200_000


@dataclass(frozen=True)
class Target:
    """One promise."""

    area: str
    text: str
    value: float | None
    limit: float
    at_most: bool
    unit: str = "x"
    #: The same without fencing, which is what the peers do.
    plain: float | None = None
    #: The same for the floor, the least that a client can do.
    floor: float | None = None

    @property
    def met(self) -> bool | None:
        """None where it was not measured."""
        if self.value is None:
            return None
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    @property
    def verdict(self) -> str:
        """In words."""
        return {True: "met", False: "NOT met", None: "not measured"}[self.met]

    @property
    def demand(self) -> str:
        """The limit in words."""
        return f"{'at most' if self.at_most else 'at least'} {self.told(self.limit)}"

    def __str__(self) -> str:
        return (
            f"{self.verdict:>12}  {self.area}: {self.text}: {self.told(self.value)} ({self.demand})"
        )

    def told(self, value: float | None) -> str:
        """A figure of this target as one reads it."""
        if value is None:
            return "\u2013"
        return (f"{value:,.0f}" if value >= 100 else f"{value:.3g}") + self.unit


def targets(results: Results) -> list[Target]:
    """All of them, in the order of the page."""
    return [
        *_python(results),
        *_asyncio(results),
        *_node(results),
        *_rust(results),
        *_faulty(results),
        *_held(results),
        *_flat(results),
    ]


def _peers(style: str) -> list[str]:
    return [one.name for one in ENTRANTS if one.role == PEER and one.style == style]


def _python(results: Results) -> Iterator[Target]:
    def faster(peer: str, ours: str, nodes: int) -> float | None:
        return results.ratio("p50", "single", peer, ours, nodes=nodes)

    def against(peer: str, limit: float, nodes: int) -> Target:
        text = f"{nodes} node{'s' * (nodes > 1)}, one at a time, faster than {peer}"
        plain = faster(peer, f"{PYTHON}, no fencing", nodes)
        return Target(
            "Python", text, faster(peer, PYTHON, nodes), limit, False,
            plain=plain, floor=faster(peer, FLOOR, nodes),
        )  # fmt: skip

    yield _floor(results, "Python", PYTHON, 1.35)
    yield against("redlock-py", 5, 5)
    yield against("pottery", 12, 5)
    yield against("redis-py", 1.2, 1)
    cpu, plain, floor = (
        results.ratio("cpu", "single", ours, "redlock-py", nodes=5)
        for ours in (PYTHON, f"{PYTHON}, no fencing", FLOOR)
    )
    text = "5 nodes, processor time a pair, of redlock-py's"
    yield Target("Python", text, cpu, 0.25, at_most=True, plain=plain, floor=floor)


def _floor(results: Results, area: str, ours: str, limit: float) -> Target:
    value, plain = (
        results.ratio("p50", "single", name, FLOOR, nodes=5)
        for name in (ours, f"{ours}, no fencing")
    )
    text = "5 nodes, one at a time, of the floor's time"
    return Target(area, text, value, limit, at_most=True, plain=plain)


def _against_best(
    results: Results, area: str, ours: str, style: str
) -> Callable[[str, str, str, float], Target]:
    """Makes targets against whichever peer is ahead in a case."""

    def make(text: str, field: str, case: str, limit: float) -> Target:
        workload, _, numbers = case.partition(" ")
        nodes, _, in_flight = numbers.partition("/")
        where: dict[str, object] = {"nodes": int(nodes)}
        if in_flight:
            where["in_flight"] = int(in_flight)
        # Whose pairs are the most is also the one whose processor time counts.
        lead = "per_second" if field == "cpu" else field
        peers = _peers(style)
        best = results.best(lead, workload, peers, least=lead == "p50", **where)
        if best is None:
            return Target(area, text, None, limit, at_most=field == "cpu")

        def against_it(name: str) -> float | None:
            pair = (best, name) if field == "p50" else (name, best)
            return results.ratio(field, workload, *pair, **where)

        told = f"{text} {best}" + ("'s" if field == "cpu" else "")
        return Target(
            area, told, against_it(ours), limit, at_most=field == "cpu",
            plain=against_it(f"{ours}, no fencing"), floor=against_it(FLOOR),
        )  # fmt: skip

    return make


def _asyncio(results: Results) -> Iterator[Target]:
    make = _against_best(results, "asyncio", ASYNCIO, "asyncio")
    yield make("5 nodes, 64 in flight, pairs a second of", "per_second", "flight 5/64", 5)
    # On several nodes those that know only one are not there.
    yield make("5 nodes, one at a time, faster than", "p50", "single 5", 2)


def _node(results: Results) -> Iterator[Target]:
    make = _against_best(results, "Node", NODE, "node")
    yield _floor(results, "Node", NODE, 1.6)
    yield make("5 nodes, one at a time, faster than", "p50", "single 5", 1)
    yield make("5 nodes, 64 in flight, pairs a second of", "per_second", "flight 5/64", 3)
    yield make("5 nodes, 64 in flight, processor time a pair, of", "cpu", "flight 5/64", 1 / 3)
    yield make("1 node, one at a time, faster than", "p50", "single 1", 1 / 1.1)
    yield make("1 node, 64 in flight, pairs a second of", "per_second", "flight 1/64", 1)


def _rust(results: Results) -> Iterator[Target]:
    yield _floor(results, "Rust", RUST, 1.35)
    value, plain, floor = (
        results.ratio("p50", "single", "rslock", ours, nodes=5)
        for ours in (RUST, f"{RUST}, no fencing", FLOOR)
    )
    text = "5 nodes, one at a time, faster than rslock"
    yield Target("Rust", text, value, 1, at_most=False, plain=plain, floor=floor)


def _faulty(results: Results) -> Iterator[Target]:
    for fault in ("hung", "dead"):
        for field, limit in (("p50", 1.1), ("p99", 1.5)):
            ratios = [_after_fault(results, fault, field, ours) for ours in LANGUAGES]
            name = {"p50": "median", "p99": "p99"}[field]
            text = f"one of 5 {fault}, {name} of the healthy one, worst language"
            yield Target("Faults", text, _worst(ratios), limit, at_most=True)
        longest = [
            max((row["max"] for row in found), default=None)
            for ours in LANGUAGES
            if (found := results.select("faulty", ours, case=fault, phase="first"))
        ]
        text = f"one of 5 {fault}, the longest of the first calls, of one node timeout"
        worst = _worst(longest)
        value = None if worst is None else worst / NODE_TIMEOUT
        yield Target("Faults", text, value, 1, at_most=True)


def _after_fault(results: Results, fault: str, field: str, ours: str) -> float | None:
    healthy, after = ({"case": fault, "phase": phase} for phase in ("healthy", "after"))
    return results.change(field, "faulty", ours, healthy, after)


def _held(results: Results) -> Iterator[Target]:
    names = [name for name in LANGUAGES if results.select("held", name)]
    leases = max((row["leases"] for row in results.select("held")), default=10_000)

    def worst(field: str) -> float | None:
        return _worst([results.median(field, "held", name) for name in names])

    core = worst("core")
    yield Target(
        "Held", f"{leases} leases, of one core, worst language",
        None if core is None else 100 * core, 3, at_most=True, unit=" %",
    )  # fmt: skip
    commands = worst("commands")
    yield Target(
        # Every lease is renewed when a third of its ttl of ten seconds is over.
        "Held", f"{leases} leases, commands, of one for each lease and renewal",
        None if commands is None else 100 * commands / (leases / (10 / 3)), 10, True, unit=" %",
    )  # fmt: skip
    for name, limit in ((RUST, 1024), (PYTHON, 2048)):
        text = f"memory of a lease in {name}"
        value = results.median("bytes", "held", name)
        yield Target("Held", text, value, limit, at_most=True, unit=" B")


def _flat(results: Results) -> Iterator[Target]:
    many, long = [], []
    for name in LANGUAGES:
        one, thousands = ({"case": "resources", "resources": count} for count in (1, 10_000))
        many.append(results.change("p50", "flat", name, one, thousands))
        new, old = ({"case": "time", "age": age, "quarter": 3} for age in ("new", "old"))
        long.append(results.change("p50", "flat", name, new, old))
    text = "10,000 resources, median of that of one, worst language"
    yield Target("Flat", text, _worst(many), 1.1, at_most=True)
    text = "at the end of the long run, median of that of what has just begun, worst language"
    yield Target("Flat", text, _worst(long), 1.1, at_most=True)


def _worst(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
