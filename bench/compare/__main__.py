"""The command: `python -m bench.compare [--times N] [NAME...]`. Prints claim, seen and how often.

Ends with 1 if a cell of COMPARE.md is not what was seen in most tries.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from bench import prepare
from bench.compare import holding, nodes, rounds
from bench.compare.rows import ALL, ROWS, Row
from bench.compare.trial import Failed, Trial

PAGE = prepare.ROOT / "COMPARE.md"
#: The modules whose functions are the rows, imported for that.
PARTS = (nodes, rounds, holding)


@dataclass(frozen=True)
class Claim:
    """A cell of the table in COMPARE.md."""

    row: Row
    library: str
    said: str

    def names(self, words: list[str]) -> bool:
        """Whether one of the words is in its row's title or its library's name."""
        return not words or any(word in f"{self.row.title} {self.library}" for word in words)


def cells() -> dict[tuple[str, str], str]:
    """The table of COMPARE.md that begins with ours, by row and library."""
    lines = PAGE.read_text().splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("| | quorlock |"))
    heads = _split(lines[start])[1:]
    found: dict[tuple[str, str], str] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        title, *said = _split(line)
        found |= {(title, head): cell for head, cell in zip(heads, said, strict=True)}
    return found


def _split(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def claims() -> Iterator[Claim]:
    """Every cell that has a program."""
    said = cells()
    for row in ROWS:
        for library in row.libraries:
            yield Claim(row, library, said.get((row.title, library), "nothing"))


def seen(claim: Claim) -> str:
    """One try."""
    try:
        with Trial(claim.library) as trial:
            return claim.row.play(trial)
    except (Failed, OSError, RuntimeError, AssertionError) as problem:
        return f"failed: {problem}"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="NAME", help="parts of titles or libraries")
    parser.add_argument("--times", type=int, default=3, help="tries of each (default 3)")
    arguments = parser.parse_args()
    differ = 0
    print("| row | library | COMPARE.md | seen, how often | |\n|---|---|---|---|---|", flush=True)
    for claim in claims():
        if not claim.names(arguments.words):
            continue
        counts = Counter(seen(claim) for _ in range(arguments.times))
        (most, _), *_rest = counts.most_common()
        told = ", ".join(f"{what} {often} of {counts.total()}" for what, often in counts.items())
        same = most == claim.said
        differ += not same
        verdict = "same" if same else "**DIFFERS**"
        print(f"| {claim.row.title} | {claim.library} | {claim.said} | {told} | {verdict} |",
              flush=True)  # fmt: skip
    print(f"\n{differ} differ" if differ else "\nEverything is as COMPARE.md says.")
    return 1 if differ else 0


__all__ = ["ALL", "PARTS"]

if __name__ == "__main__":
    sys.exit(main())
