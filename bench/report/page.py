"""Writes the page and its pictures from the results of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.entrants import ENTRANTS, OURS
from bench.report import races, tables
from bench.report.figures import Results
from bench.report.plots import pictures
from bench.report.targets import Target, targets

NAME = "benchmarks.md"


def write(content: Mapping[str, Any], kept: Path, folder: Path) -> list[Target]:
    """The page in a folder, with its pictures; gives the targets. The figures are in `kept`."""
    results = Results(content)
    judged = targets(results)
    drawn = pictures(results)
    beside = folder / "benchmarks"
    beside.mkdir(parents=True, exist_ok=True)
    for old in beside.glob("*.svg"):
        old.unlink()
    for name, picture in drawn.items():
        (beside / name).write_text(picture)
    (folder / NAME).write_text("\n".join(_page(results, judged, set(drawn), kept)) + "\n")
    return judged


def _page(results: Results, judged: list[Target], drawn: set[str], kept: Path) -> Iterator[str]:
    yield "# Benchmarks"
    yield ""
    yield from _conditions(results, kept)
    for note in results.content.get("notes", ()):
        yield from (str(note), "")
    yield "## Targets"
    yield ""
    yield (
        "Ratios within one run: the median over rounds of the ratio within a round, which can "
        "differ from the quotient of two medians of the tables below. *Plain* is the same with "
        "fencing off, which is all that the other libraries give. *Floor* is the same for the "
        "least that a client can do, bare sockets in C: it asks all nodes at once, looks for "
        "replies without sleeping, releases by the server's own command, and checks nothing. *A "
        "plain client in C* sleeps until a reply comes and releases by script. Five servers that "
        "share one core answer one after the other, so that asking at once gains little here."
    )
    yield ""
    yield from tables.of_targets(judged)
    yield ""
    yield "## Targets that are not met"
    yield ""
    yield from tables.not_met(judged)
    yield ""
    yield "## Where Quorlock is not the fastest"
    yield ""
    yield from races.behind(results)
    yield ""
    for section in _SECTIONS:
        rows = list(section.table(results))
        if not rows:
            continue
        yield f"## {section.heading}"
        yield ""
        yield section.text
        yield ""
        for name in section.pictures:
            if name in drawn:
                yield f"![{section.heading}](benchmarks/{name})"
                yield ""
        yield from rows
        yield ""
    yield from _failures(results)
    yield from _versions(results)


def _conditions(results: Results, kept: Path) -> Iterator[str]:
    content = results.content
    machine = content["machine"]
    quick = " This was a short run, to try the bench itself: the figures are rough." * bool(
        content["quick"]
    )
    steady = [
        "servers on one core and clients on the other" if machine["pinned"] else "nothing pinned",
        "cores kept from halting" if machine["spinning"] else "cores free to halt",
    ]
    yield (
        f"Measured on {content['date']} with `make bench` at {_commit(content)}: "
        f"{content['server']} on "
        f"{machine['system']}, {machine['processor']}, {machine['cores']} cores; "
        f"{', '.join(steady)}; loopback; {content['turns']}.{quick}"
    )
    yield ""
    yield (
        "All contestants take turns on the same servers, in several rounds, so that a disturbance "
        "hits everybody alike. Only ratios mean anything on another machine. Each is used as its "
        "own documentation shows, with a ttl of ten seconds and its own defaults; ours with "
        "fencing tokens and guards, with neither where it says *no fencing*; in Node ours waits "
        "until it has the lock (`retryCount: -1`). *Tuned* is a peer as one would set it who "
        "knows it: 250 ms for a node, no tries within the client, and ioredis' own pipelining. "
        f"All figures are in `{kept.as_posix()}`."
    )
    yield ""


def _commit(content: Mapping[str, Any]) -> str:
    commit = str(content["versions"].get("commit", "a commit that is not known"))
    changed = commit.endswith("-dirty")
    told = f"commit {commit.removesuffix('-dirty')}"
    return told + " and changes that were not committed" * changed


def _failures(results: Results) -> Iterator[str]:
    """What did not work, beside the faults that were meant."""
    found = list(races.failures(results))
    if found:
        yield from ("## What failed", "", *found, "")


def _versions(results: Results) -> Iterator[str]:
    yield "## Versions"
    yield ""
    versions = dict(results.content["versions"])
    ours = {one.name for one in ENTRANTS if one.role == OURS}
    ours.add("commit")  # told at the top
    told = [f"{name} {version}" for name, version in versions.items() if name not in ours]
    yield ", ".join(told) + "."


@dataclass(frozen=True)
class Section:
    """A part of the page; left out where nothing of it was measured."""

    heading: str
    text: str
    pictures: Sequence[str]
    table: Callable[[Results], Iterator[str]]


_SECTIONS = (
    Section(
        "One at a time",
        "A process acquires and releases a lock that nobody else wants, again and again. *Spread* "
        "is the middle half of the rounds' medians as a part of their median.",
        ("latency.svg", "five-nodes.svg", "cpu.svg"),
        tables.single,
    ),
    Section(
        "Many at once",
        "One process holds many locks at the same time, each on a resource of its own; blocking "
        "libraries do it with threads, up to 64. Pairs per second, and processor time a pair.",
        ("throughput.svg",),
        tables.flight,
    ),
    Section(
        "Blocks that renew",
        "What most code uses: `using`, `with`, or a lock that renews itself from the beginning, "
        "each beside the others' of its kind. The others of ours above do not renew.",
        (),
        tables.blocks,
    ),
    Section(
        "Over a network",
        "Every node half a millisecond away, there and back; and all near but one, which is 20 ms "
        "away. The link and the servers share a core, which the floor pays for as well.",
        ("far.svg", "slow-node.svg"),
        tables.far,
    ),
    Section(
        "A node that fails",
        "One of five nodes is stopped (it hangs: connections stay open and nothing is answered) or "
        "killed while a process goes on locking. The first five calls count as finding out; "
        "*after* begins half a second later. A pair that takes longer than 10 s fails its round; "
        "figures are those of the rounds that did not fail. Who fails in the first three rounds is "
        "not asked again.",
        ("hung-node.svg", "dead-node.svg"),
        tables.faulty,
    ),
    Section(
        "Contention",
        "Two and twenty contenders in several processes hold one lock for 2 ms and rest for 20 ms, "
        "three nodes. *Idle* is the mean time for which nobody held it although somebody "
        "waited; "
        "*longest wait* is that of the unluckiest contender; *turns* are those of the unluckiest "
        "and of the luckiest.",
        ("contention.svg",),
        tables.contention,
    ),
    Section(
        "Leases that are held",
        "They renew themselves, ttl 10 s, five nodes. Commands and reads (one may bring several "
        "commands) are those of one node in a second; memory is what the process grew by for "
        "each lease.",
        ("held.svg",),
        tables.held,
    ),
    Section(
        "From start to first lock",
        "The start of a process until it has acquired and released its first lock on three nodes; "
        "the start of the interpreter is a part of it.",
        (),
        tables.startup,
    ),
    Section(
        "Flat cost",
        "The same for one resource and for ten thousand, and at the end of a long run. As a "
        "machine is quicker in one minute than in another, a process that has just begun, on "
        "servers that have just begun, takes turns with the old one.",
        (),
        tables.flat,
    ),
)
