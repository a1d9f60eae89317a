"""`python -m bench.guard`: fails if a lock takes the machines more instructions than it may.

`--set` writes the present number as the new measure. Counting is by single steps and therefore
exact; what is allowed for is only that another compiler makes other code.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

from bench.prepare import ROOT, compile_c, release_build

HERE = Path(__file__).resolve().parent
MEASURE = HERE / "measure.json"
PAIRS = 10
#: How far a compiler may lie from the one that the measure was taken with.
ALLOWANCE = 0.10
_NOT_ALLOWED = 3


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.guard", description=__doc__)
    parser.add_argument("--set", action="store_true", help="take the present number as the measure")
    arguments = parser.parse_args()
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        print("not counted: the measure is of Linux on x86-64")
        return 0
    found = count()
    if found is None:
        print("not counted: tracing a process is not permitted here")
        return 1 if os.environ.get("CI") else 0
    if arguments.set:
        measure = {"instructions": found, "rustc": _compiler()}
        MEASURE.write_text(json.dumps(measure, indent=2) + "\n")
    return judge(found, json.loads(MEASURE.read_text()))


def count() -> int | None:
    """Instructions for one lock over five nodes, or None if it cannot be counted."""
    subprocess.run(["cargo", "build", "--quiet", "--release", "-p", "quorlock-guard"],
                   cwd=ROOT, check=True)  # fmt: skip
    counter = compile_c(HERE / "count.c")
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = release_build(built, "quorlock-guard")
    done = subprocess.run(
        [counter, program, str(PAIRS)], capture_output=True, text=True, check=False
    )
    if done.returncode == _NOT_ALLOWED:
        return None
    if done.returncode:
        raise SystemExit(f"{program.name} failed\n{done.stderr}")
    return round(int(done.stdout) / PAIRS)


def judge(found: int, measure: dict[str, int | str]) -> int:
    """Tells how it compares."""
    allowed = int(measure["instructions"])
    part = found / allowed
    print(
        f"{found} instructions for a lock over five nodes; the measure is {allowed} ({part:.2f}x)"
    )
    if part > 1 + ALLOWANCE:
        print(
            "The machines do more than they did. If that is worth it: python -m bench.guard --set"
        )
        return 1
    if part < 1 - ALLOWANCE:
        print("They do less than they did: python -m bench.guard --set keeps it so.")
    return 0


def _compiler() -> str:
    told = subprocess.run(["rustc", "--version"], capture_output=True, text=True, check=True)
    return told.stdout.split()[1]


if __name__ == "__main__":
    sys.exit(main())
