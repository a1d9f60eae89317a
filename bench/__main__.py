"""The command: `python -m bench [--quick] [WORKLOAD...]`.

Prepares, measures and prints the targets. A whole run keeps its figures in bench/results and
writes docs/benchmarks.md; a part, or a quick one, does the same under target/bench.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench import entrants, machine, prepare
from bench.measure import FULL, QUICK, SHORT, Run
from bench.report import page
from bench.workloads import WORKLOADS
from tests.support.binary import server_version

RESULTS = prepare.HERE / "results"
DOCS = prepare.ROOT / "docs"


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("workloads", nargs="*", metavar="WORKLOAD", help=", ".join(WORKLOADS))
    parser.add_argument(
        "--short", action="store_true", help="in a quarter of the time, and noisier"
    )
    parser.add_argument("--quick", action="store_true", help="only to try the bench itself")
    parser.add_argument("--only", action="append", metavar="TEXT", default=[],
                        help="contestants whose name contains TEXT")  # fmt: skip
    parser.add_argument("--unprepared", action="store_true", help="build and install nothing")
    parser.add_argument("--report", action="store_true", help="only write the page anew")
    arguments = parser.parse_args()
    if unknown := set(arguments.workloads) - set(WORKLOADS):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    whole = not (arguments.workloads or arguments.quick or arguments.only)
    kept = (RESULTS if whole else prepare.TARGET / "results") / "latest.json"
    if not arguments.report:
        if whole and (changes := prepare.uncommitted()):
            parser.error(
                "a whole run is kept and names its commit: commit or put aside first\n" + changes
            )
        if not arguments.unprepared:
            prepare.prepare()
        measured = measure(arguments)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(written(measured))
    return report(kept, DOCS if whole else prepare.TARGET)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Runs the workloads that are wanted."""
    taking_part = [
        entrant
        for entrant in entrants.ENTRANTS
        if not arguments.only or any(text in entrant.name for text in arguments.only)
    ]
    run = Run(QUICK if arguments.quick else SHORT if arguments.short else FULL, taking_part)
    name, version = server_version()
    with machine.steady() as conditions:
        for workload in arguments.workloads or WORKLOADS:
            start = time.monotonic()
            run.tell(workload)
            try:
                WORKLOADS[workload].run(run)
            except Exception as problem:  # noqa: BLE001 - what others measured must not be lost
                run.failed(workload, {}, "the bench", problem)
            run.tell(f"  took {time.monotonic() - start:.0f} s")
        return {
            "date": time.strftime("%Y-%m-%d"),
            "quick": arguments.quick,
            "notes": [],
            "turns": f"{run.effort.rounds} rounds of turns of {run.effort.seconds} s",
            "machine": conditions.as_json(),
            "server": f"{name} {'.'.join(map(str, version))}",
            "versions": {**prepare.versions(), **run.versions},
            "rows": run.rows,
        }


def written(measured: dict[str, Any]) -> str:
    """As JSON, a row a line, without digits that mean nothing."""
    rows = [
        json.dumps(
            {name: round(it, 4) if isinstance(it, float) else it for name, it in row.items()}
        )
        for row in measured.pop("rows")
    ]
    head = json.dumps(measured, indent=1).removesuffix("\n}")
    return f'{head},\n "rows": [\n  ' + ",\n  ".join(rows) + "\n ]\n}\n"


def report(kept: Path, folder: Path) -> int:
    """Writes the page and prints the targets."""
    results = json.loads(kept.read_text())
    targets = page.write(results, kept.relative_to(prepare.ROOT), folder)
    print("\n".join(str(target) for target in targets if target.met is not None))
    print(f"\n{folder.relative_to(prepare.ROOT) / page.NAME}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
